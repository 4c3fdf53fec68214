"""`dreamgym bench data`: time and memory of what grows with the data, at several numbers of transitions.

    dreamgym bench data --sizes 10000,100000,1000000 --json bench-data.json

Episodes of 20 steps are made up, with texts of some 100 letters. Each part runs in a process of its own, so
that its peak of memory is its own, and reads what the part before wrote:

- `write`, `read`: the Parquet file of the transitions, read as a list;
- `stream`: one pass over its episodes, none of which is kept;
- `validate`: all rules of Great Expectations, with the clean file;
- `snapshot`: the DVC version of a data directory with that file;
- `exact`, `chroma`: the replay buffer is filled, then asked for demonstrations of steps that it has not seen.
  Time of filling, also of the processor, and of one question are apart. Chroma's index, which takes minutes
  and at a million three quarters of an hour, is built up to `most_in_chroma` transitions.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from components.config import DataConfig, RetrievalConfig
from components.errors import ConfigError
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import TRAIN, Task, Transition
from components.trajectories.dvc.snapshots import snapshot
from components.trajectories.parquet_file import bytes_of_table
from components.trajectories.store import (
    DataLayout,
    iter_episodes,
    read_transitions,
    write_tasks,
    write_transitions,
)
from components.trajectories.validation import validate
from flows.printing.output import Output
from flows.printing.table import Column, Table

EPISODE_STEPS = 20
QUESTIONS = 64
"""Steps for which demonstrations are asked, as a batch of rollouts asks."""
MOST_IN_CHROMA = 200_000
WORLD = "own"
TRANSITIONS = "transitions.parquet"
Figures = dict[str, float]
"""Seconds, `gb` of memory and `mb` on disk, by name."""


def bench_data(
    sizes: Sequence[int], report: Callable[[str], None], most_in_chroma: int = MOST_IN_CHROMA
) -> dict[str, Figures]:
    """Return, for each size in transitions, the figures of each part as `PART/FIGURE`.

    A part whose process was killed, such as for lack of memory, has none; without the table that `write`
    makes, no later part of that size has any.

    Args:
        most_in_chroma: a larger size has no index of Chroma.
    """
    found: dict[str, Figures] = {}
    for size in sizes:
        own = found[str(size)] = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, part in PARTS.items():
                if name == "chroma" and size > most_in_chroma:
                    continue
                try:
                    figures = _in_own_process(part, size, Path(folder))
                except BrokenProcessPool:
                    report(f"{size:,} transitions, {name}: its process was killed")
                    if name == "write":
                        break
                    continue
                own |= {f"{name}/{figure}": value for figure, value in figures.items()}
                report(f"{size:,} transitions, {name}: {_in_words(figures)}")
    return found


def made_up_tasks(size: int) -> list[Task]:
    """Return a task for every five episodes of `size` transitions."""
    count = max(1, size // EPISODE_STEPS // 5)
    return [_task(number) for number in range(count)]


def made_up_transitions(size: int) -> Iterator[Transition]:
    """Yield `size` transitions of whole episodes, a third of them won."""
    tasks = max(1, size // EPISODE_STEPS // 5)
    for number in range(size // EPISODE_STEPS):
        task, state = _task(number % tasks), _task(number % tasks).initial_state
        for step in range(EPISODE_STEPS):
            is_last = step == EPISODE_STEPS - 1
            door = number * 31 + step * 7
            seen = f"Door {door % 997} of house {number} is open. You see box {step} and lamp {door % 89}."
            yield Transition(
                task.id,
                f"{WORLD}/episode/{number}",
                step,
                state,
                f"open door {door % 997} with key {step % 7}",
                seen,
                float(is_last and number % 3 == 0),
                is_last,
                behaviour="random",
            )
            state = seen


def read_sizes(text: str) -> list[int]:
    """Return the sizes that `text` lists, separated by commas.

    Raises:
        ConfigError: one is no number of whole episodes.
    """
    sizes = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if any(size < EPISODE_STEPS or size % EPISODE_STEPS for size in sizes):
        raise ConfigError(
            f"--sizes is {text!r}.",
            f"Expected numbers of transitions, multiples of {EPISODE_STEPS}, separated by commas.",
            "For example: --sizes 10000,100000",
        )
    return sizes


def _task(number: int) -> Task:
    first = f"You are in house {number}. There are {number % 13 + 2} doors and a shelf."
    return Task(f"{WORLD}/train/{number}", WORLD, TRAIN, f"find the cup of house {number}", first)


def _in_own_process(part: Callable[[int, Path], Figures], size: int, folder: Path) -> Figures:
    """Return the part's figures, with `gb`: the most memory that its process took."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, part, size, folder).result()


def _measured(part: Callable[[int, Path], Figures], size: int, folder: Path) -> Figures:
    figures = part(size, folder)
    # Not ru_maxrss: a spawned process begins at the peak of the one that started it.
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return figures | {"gb": int(peak) / 1e6}


def _write(size: int, folder: Path) -> Figures:
    began = time.perf_counter()
    write_transitions(folder / TRANSITIONS, made_up_transitions(size))
    return {"seconds": time.perf_counter() - began, "mb": bytes_of_table(folder / TRANSITIONS) / 1e6}


def _read(size: int, folder: Path) -> Figures:
    began = time.perf_counter()
    assert len(read_transitions(folder / TRANSITIONS)) == size
    return {"seconds": time.perf_counter() - began}


def _stream(size: int, folder: Path) -> Figures:
    tasks = made_up_tasks(size)
    began = time.perf_counter()
    assert sum(len(episode.steps) for episode in iter_episodes(tasks, folder / TRANSITIONS)) == size
    return {"seconds": time.perf_counter() - began}


def _validate(size: int, folder: Path) -> Figures:
    tasks = {TRAIN: made_up_tasks(size)}
    began = time.perf_counter()
    found = validate(folder / TRANSITIONS, tasks, DataConfig(), folder / "validated", environments=[WORLD])
    assert found.valid_rows == size
    return {"seconds": time.perf_counter() - began}


def _snapshot(size: int, folder: Path) -> Figures:
    root = folder / "repository"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    layout = DataLayout.of(root, WORLD)
    for path in (layout.tasks(TRAIN), layout.trajectories(TRAIN)):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_tasks(layout.tasks(TRAIN), made_up_tasks(size))
    copy = shutil.copytree if (folder / TRANSITIONS).is_dir() else shutil.copyfile
    copy(folder / TRANSITIONS, layout.trajectories(TRAIN))
    began = time.perf_counter()
    snapshot(root)
    return {"seconds": time.perf_counter() - began}


def _exact(size: int, folder: Path) -> Figures:
    return _buffer(size, folder, RetrievalConfig(capacity=max(size, 1)))


def _chroma(size: int, folder: Path) -> Figures:
    return _buffer(size, folder, RetrievalConfig(capacity=max(size, 1), index="chroma"))


def _buffer(size: int, folder: Path, config: RetrievalConfig) -> Figures:
    transitions = read_transitions(folder / TRANSITIONS)
    questions = [
        (
            f"You see box {number} and lamp {number % 7}, and no cup.",
            f"open door {number} with key {number % 5}",
        )
        for number in range(QUESTIONS)
    ]
    began_cpu = time.process_time()
    began = time.perf_counter()
    buffer = ReplayBuffer(config, transitions)
    filled = time.perf_counter()
    filled_cpu = time.process_time()
    buffer.retrieve(questions, [f"{WORLD}/test/0"] * len(questions))
    asked = time.perf_counter()
    buffer.close()
    return {
        "seconds": filled - began,
        "cpu_seconds": filled_cpu - began_cpu,
        "milliseconds_a_question": 1000 * (asked - filled) / QUESTIONS,
    }


PARTS: dict[str, Callable[[int, Path], Figures]] = {
    "write": _write,
    "read": _read,
    "stream": _stream,
    "validate": _validate,
    "snapshot": _snapshot,
    "exact": _exact,
    "chroma": _chroma,
}


def _in_words(figures: Figures) -> str:
    return ", ".join(f"{name} {value:,.3g}" for name, value in figures.items())


def print_data(page: Output, found: dict[str, Figures]) -> None:
    """Print a row for each figure and a column for each size."""
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    rows = [
        [name, *(f"{figures[name]:,.3g}" if name in figures else "" for figures in found.values())]
        for name in names
    ]
    columns = [Column("part"), *(Column(f"{int(size):,}", right=True) for size in found)]
    page.table("", Table("What grows with the data, by number of transitions", columns, rows))
