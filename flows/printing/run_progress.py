"""The progress of a run on the terminal: a line when a step begins or ends, and one line a minute within it.

Each line says in plain words what is going on and how long the run may still take. Prefect's log lines go to
a file in full; warnings and errors are shown at once, too.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from flows.printing.formats import duration

INTERVAL_SECONDS = 60.0
STEP_COUNT = 12
STEPS: Mapping[str, tuple[int, str]] = {
    "validate": (1, "checking the offline data"),
    "experience_model": (2, "fine-tuning the experience model and measuring its fidelity"),
    "clone": (4, "cloning the policy from recorded episodes"),
    "check_cloned": (5, "comparing the dream with the real environment on the cloned policy's episodes"),
    "synthetic_rl": (6, "training the policy with RL in the dream"),
    "check_dreamed": (7, "comparing the dream with the real environment on the trained policy's episodes"),
    "sim_to_real": (9, "training the policy in the real environment"),
    "evaluate": (10, "playing validation games"),
}
"""Stage -> the number of its step in `flows/retrain.py`, and what it does."""
TYPICAL_SECONDS: Mapping[str, Mapping[str, float]] = {
    "alfworld": {
        "validate": 5,
        "experience_model": 280,
        "clone": 371,
        "check_cloned": 147,
        "synthetic_rl": 611,
        "check_dreamed": 65,
        "sim_to_real": 47,
        "evaluate": 86,
    },
    "webshop": {
        "validate": 6,
        "experience_model": 1468,
        "clone": 507,
        "check_cloned": 302,
        "synthetic_rl": 2749,
        "check_dreamed": 55,
        "sim_to_real": 70,
        "evaluate": 50,
    },
    "browser": {
        "validate": 3,
        "experience_model": 414,
        "clone": 52,
        "check_cloned": 111,
        "synthetic_rl": 415,
        "check_dreamed": 133,
        "sim_to_real": 304,
        "evaluate": 151,
    },
}
"""Environment -> stage -> seconds of one recorded run of its quick config on two cores."""
_STARTED = re.compile(r"(\w+): started")
_ENDED = re.compile(r"(\w+): (done|reused, made) in (\d+) s")
_PREFECT_NOISE = ("Beginning ", "Finished in state", "Created ")


class RunProgress:
    """What is printed of a run. Args: expected: stage -> seconds, in the order of the stages."""

    def __init__(self, console: Console, expected: Mapping[str, float]) -> None:
        self._console = console
        self._expected = dict(expected)
        self._remaining = list(expected)
        self._stage = ""
        self._stage_started = 0.0
        self._latest = ""
        self._spent = self._planned = 0.0
        self._lock = threading.Lock()

    def receive(self, message: str) -> None:
        """Take in one log message of the run, and print a line if a step begins or ends."""
        if match := _STARTED.fullmatch(message):
            self._start(match[1])
        elif match := _ENDED.fullmatch(message):
            self._end(match[1], float(match[3]), reused=match[2] != "done")
        elif not message.startswith(_PREFECT_NOISE):
            self._latest = message

    def _start(self, stage: str) -> None:
        with self._lock:
            self._stage, self._stage_started, self._latest = stage, time.monotonic(), ""
        if stage in STEPS:
            number, words = STEPS[stage]
            self._print(f"Step {number} of {STEP_COUNT}: {words}.{self._forecast()}")

    def _end(self, stage: str, seconds: float, *, reused: bool) -> None:
        with self._lock:
            if stage in self._remaining:
                self._remaining.remove(stage)
                if not reused:
                    self._spent += seconds
                    self._planned += self._expected[stage]
            self._stage = ""
        if reused and stage in STEPS:
            number, words = STEPS[stage]
            self._print(f"Step {number} of {STEP_COUNT}: {words}: reused from an earlier run.")

    def tick(self) -> None:
        """Print the line of this minute, if a step is under way."""
        with self._lock:
            stage, latest = self._stage, self._latest
            elapsed = time.monotonic() - self._stage_started
        if stage in STEPS:
            number, words = STEPS[stage]
            detail = f" ({latest})" if latest else ""
            self._print(
                f"Step {number} of {STEP_COUNT}: still {words}, {duration(elapsed)} so "
                f"far{detail}.{self._forecast()}"
            )

    def _forecast(self) -> str:
        seconds = self.seconds_left()
        return f" About {duration(seconds)} left." if seconds is not None else ""

    def seconds_left(self) -> float | None:
        """Expected rest of the run in seconds, by the speed of its finished stages; None if nothing is
        known.
        """
        with self._lock:
            if not self._remaining:
                return None
            speed = self._spent / self._planned if self._planned >= INTERVAL_SECONDS else 1.0
            elapsed = time.monotonic() - self._stage_started if self._stage else 0.0
            rest = sum(self._expected[stage] for stage in self._remaining if stage != self._stage) * speed
            current = max(0.0, self._expected.get(self._stage, 0.0) * speed - elapsed)
        return rest + current

    def _print(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M')}  {line}", soft_wrap=True, highlight=False)


class _Handler(logging.Handler):
    """Writes each record to the log file, warnings to the terminal too, and tells the progress."""

    def __init__(self, progress: RunProgress, file: logging.Handler, terminal: logging.Handler) -> None:
        super().__init__()
        self._progress, self._file, self._terminal = progress, file, terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one record."""
        self._file.handle(record)
        if record.levelno >= logging.WARNING:
            self._terminal.handle(record)
        elif record.name.startswith("prefect."):
            self._progress.receive(record.getMessage())


@contextmanager
def run_progress(console: Console, log_file: Path, expected: Mapping[str, float]) -> Iterator[None]:
    """Within this block Prefect's log lines go to `log_file`, and the terminal shows the progress of a run.

    Args: expected: stage -> seconds, in the order of the stages.
    """
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import PrefectConsoleHandler

    setup_logging()
    root = logging.getLogger()
    terminals = [handler for handler in root.handlers if isinstance(handler, PrefectConsoleHandler)]
    if not terminals:  # a logging configuration of the user's own
        yield
        return
    (terminal, *_) = terminals
    log_file.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(log_file, encoding="utf-8")
    file.setFormatter(terminal.formatter)
    progress = RunProgress(console, expected)
    handler = _Handler(progress, file, terminal)
    root.removeHandler(terminal)
    root.addHandler(handler)
    stop = threading.Event()
    ticker = threading.Thread(target=_tick_until, args=(stop, progress), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        stop.set()
        ticker.join()
        root.removeHandler(handler)
        root.addHandler(terminal)
        file.close()


def _tick_until(stop: threading.Event, progress: RunProgress) -> None:
    while not stop.wait(INTERVAL_SECONDS):
        progress.tick()


def expected_seconds(environment: str, earlier: Mapping[str, float]) -> dict[str, float]:
    """Stage -> expected seconds, of an earlier result in this clone if there is one.

    Args: earlier: stage -> seconds of its newest result.
    """
    seconds = {**TYPICAL_SECONDS.get(environment, {}), **earlier}
    return {stage: seconds[stage] for stage in STEPS if stage in seconds}
