"""Record the offline data: play tasks of the real environment and write tasks and trajectories as Parquet
under `data/`.

    dreamgym collect --config configs/quick.yaml

The same config and seed give the same bytes, so the same DVC hash. All games are played before the first file
is written, and all files are written before the first is renamed into its place: a collection that fails
leaves the old data whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Adapter
from components.environments.text_world.listed_tasks import listed_tasks
from components.errors import DataError, EnvironmentFailure
from components.files import cannot_write, write_json
from components.records import TEST, TRAIN, Task, Trajectory
from components.trajectories.dvc.snapshots import Snapshot, push, snapshot
from components.trajectories.recording import BEHAVIOURS, collect, plan
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.dead_flow_runs import end_dead_runs_if_tracked

ROWS = 64
"""Episodes played side by side; it changes no result."""
TEST_TASKS = 200
"""Held-out games listed in the data: more than an evaluation plays, so that it may play more without new
data.
"""

SPARE_TEST = 4
"""Test tasks looked at for each one wanted in an unseen world."""

STAGED = ".new.tmp"
"""Directory under `data/` that new files are written to; DVC never looks at *.tmp, so one that a power cut
left is in no version.
"""

OnBatch = Callable[[str, int, int], None]
"""Called with (`train` or `fidelity`, episodes done, episodes in all)."""


@dataclass(frozen=True)
class Collected:
    """What was recorded: split -> number of (tasks, episodes, transitions), and the version that it
    became.
    """

    counts: dict[str, tuple[int, int, int]]
    version: Snapshot


@flow(name="collect", validate_parameters=False)
def collect_data(config: Config, root: Path = Path(), on_batch: OnBatch | None = None) -> Collected:
    """Tasks, episodes, files, snapshot.

    Raises:
        EnvironmentFailure: a game cannot be made, loaded or played.
        DataError: the disk refuses, or `root` is no git repository.
    """
    end_dead_runs_if_tracked(config.tracking, root.resolve())
    # 1. Choose the tasks: those of the fidelity set follow those of the training set (and of the test set),
    # and are other games.
    tasks = choose_tasks(config)
    # 2. Play every behaviour on them.
    played = {name: play_episodes(config, name, tasks[name], on_batch) for name in ("train", "fidelity")}
    # 3. Keep a version of what lies there, then write.
    keep_old_version(root)
    write(config, DataLayout.of(root, config.environment.name), tasks, played)
    # 4. Version the new data and push it to the remote that takes new versions.
    version = snapshot(root)
    push(root)
    counts = {
        name: (len(tasks[name]), len(episodes), sum(len(e.steps) for e in episodes))
        for name, episodes in played.items()
    }
    return Collected({**counts, "test": (len(tasks["test"]), 0, 0)}, version)


@task(cache_policy=NO_CACHE)
def choose_tasks(config: Config) -> dict[str, list[Task]]:
    """Tasks of `train`, `fidelity` and `test`."""
    adapter, data = make_adapter(config.environment), config.data
    train = listed_tasks(
        adapter, config.environment.name, TRAIN, data.train_tasks + data.fidelity_tasks, data.seed
    )
    listed, test = _held_out(config, adapter)
    strange = [task for task in test[listed:] if adapter.unseen(task)][: data.fidelity_worlds]
    if len(strange) < data.fidelity_worlds:
        found = (
            f"The test split has {len(strange)} tasks in unseen worlds beside the {listed} that "
            "policies are evaluated on."
        )
        raise EnvironmentFailure(
            found, f"data.fidelity_worlds={data.fidelity_worlds} are wanted.", "Lower data.fidelity_worlds."
        )
    return {
        "train": train[: data.train_tasks],
        "fidelity": [*train[data.train_tasks :], *strange],
        "test": test[:listed],
    }


def _held_out(config: Config, adapter: Adapter) -> tuple[int, list[Task]]:
    """How many test tasks are listed for evaluations, and these with the spare ones behind them.

    A world with fewer than TEST_TASKS lists what an evaluation plays.
    """
    spare, wanted, name = (
        SPARE_TEST * config.data.fidelity_worlds,
        config.evaluation.tasks,
        config.environment.name,
    )
    try:
        return max(TEST_TASKS, wanted), listed_tasks(
            adapter, name, TEST, max(TEST_TASKS, wanted) + spare, config.data.seed
        )
    except EnvironmentFailure:
        if wanted >= TEST_TASKS:
            raise
        return wanted, listed_tasks(adapter, name, TEST, wanted + spare, config.data.seed)


@task(cache_policy=NO_CACHE)
def play_episodes(
    config: Config, name: str, tasks: list[Task], on_batch: OnBatch | None = None
) -> list[Trajectory]:
    """Every task's episodes, in order. Raises EnvironmentFailure if the engine breaks one each time it is
    played.
    """
    adapter, data = make_adapter(config.environment), config.data
    episodes = plan(tasks, {behaviour: getattr(data, behaviour) for behaviour in BEHAVIOURS}, data.seed)
    if not episodes:
        raise EnvironmentFailure(
            "No behaviour has an episode.",
            "Expected at least one.",
            "Set data.expert=1 and data.near_miss=2, for example.",
        )
    log = get_run_logger()
    log.info("%s: playing %d episodes of %d tasks", name, len(episodes), len(tasks))

    def report(done: int, count: int) -> None:
        if on_batch is not None:
            on_batch(name, done, count)
        if 10 * done // count > 10 * max(0, done - ROWS) // count:
            log.info("%s: %d of %d episodes", name, done, count)

    return collect(adapter, episodes, config.environment.max_steps, rows=ROWS, on_batch=report)


@task(cache_policy=NO_CACHE)
def keep_old_version(root: Path) -> None:
    """What lies under `data/` now goes into DVC's cache before it is replaced, unless there is nothing."""
    if any(path.is_file() for path in (root / "data").rglob("*")):
        get_run_logger().info("data/ as it was stays in DVC's cache as %s", snapshot(root).hash)


@task(cache_policy=NO_CACHE)
def write(
    config: Config, layout: DataLayout, tasks: dict[str, list[Task]], played: dict[str, list[Trajectory]]
) -> None:
    """The five Parquet files, and the settings that made them: all written beside the old ones, then renamed
    one after the other.
    """
    staged = DataLayout(layout.root / STAGED)
    shutil.rmtree(staged.root, ignore_errors=True)
    try:
        for name, chosen in tasks.items():
            write_tasks(staged.tasks(name), chosen)
        for name, episodes in played.items():
            write_transitions(
                staged.trajectories(name), [step for episode in episodes for step in episode.steps]
            )
        write_json(staged.settings, recorded_settings(config))
        _place(staged.root, layout.root)
    finally:
        shutil.rmtree(staged.root, ignore_errors=True)


def _place(staged: Path, target: Path) -> None:
    files = [file.relative_to(staged) for file in staged.rglob("*") if file.is_file()]
    try:
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        for file in files:
            (staged / file).replace(target / file)
    except OSError as error:
        found = f"{target} now holds new files beside old ones: {error}."
        raise DataError(
            found, next_step="Type `dvc checkout --force data.dvc` to get the old data back."
        ) from error


def recorded_settings(config: Config) -> dict[str, dict[str, Any]]:
    """The part of the config that the recorded games and episodes depend on."""
    return {
        "environment": config.environment.decisive(),
        "data": config.data.model_dump(exclude={"quarantine_share", "max_text_chars"}),
    }
