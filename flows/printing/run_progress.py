"""Progress of a run on the terminal: a line when a step starts or is reused, and one a minute within it.

A line says in plain words what the step does and about how long the rest of the run takes. All of Prefect's
log lines go to a file; warnings and errors are also shown at once.
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
# The log lines of `Run.stage` in flows/run/pipeline_run.py.
_STARTED = re.compile(r"(\w+): started")
_ENDED = re.compile(r"(\w+): (done|reused, made) in (\d+) s")
_PREFECT_NOISE = ("Beginning ", "Finished in state", "Created ")


class RunProgress:
    """Prints the progress of a run.

    Args:
        expected: stage -> seconds, in the order of the stages.
    """

    def __init__(self, console: Console, expected: Mapping[str, float]) -> None:
        self._console = console
        self._expected = dict(expected)
        self._remaining = list(expected)
        self._stage = ""
        self._stage_start = 0.0
        self._latest_message = ""
        self._actual_seconds = 0.0
        self._expected_seconds = 0.0
        self._lock = threading.Lock()

    def receive(self, message: str) -> None:
        """Process one log message of the run; print a line if a step starts or is reused."""
        if match := _STARTED.fullmatch(message):
            self._start_stage(match[1])
        elif match := _ENDED.fullmatch(message):
            self._end_stage(match[1], float(match[3]), is_reused=match[2] != "done")
        elif not message.startswith(_PREFECT_NOISE):
            self._latest_message = message

    def _start_stage(self, stage: str) -> None:
        with self._lock:
            self._stage = stage
            self._stage_start = time.monotonic()
            self._latest_message = ""
        if stage in STEPS:
            self._print_step(stage, f"{STEPS[stage][1]}.{self._forecast()}")

    def _end_stage(self, stage: str, seconds: float, *, is_reused: bool) -> None:
        with self._lock:
            if stage in self._remaining:
                self._remaining.remove(stage)
                if not is_reused:
                    self._actual_seconds += seconds
                    self._expected_seconds += self._expected[stage]
            self._stage = ""
        if is_reused and stage in STEPS:
            self._print_step(stage, f"{STEPS[stage][1]}: reused from an earlier run.")

    def tick(self) -> None:
        """Print the line of this minute, if a step is under way."""
        with self._lock:
            stage = self._stage
            message = self._latest_message
            elapsed = time.monotonic() - self._stage_start
        if stage in STEPS:
            detail = f" ({message})" if message else ""
            self._print_step(
                stage,
                f"still {STEPS[stage][1]}, {duration(elapsed)} so far{detail}.{self._forecast()}",
            )

    def _forecast(self) -> str:
        seconds = self.seconds_left()
        return f" About {duration(seconds)} left." if seconds is not None else ""

    def seconds_left(self) -> float | None:
        """Return the expected rest of the run in seconds, by the speed of its finished stages.

        None if no stage is left.
        """
        with self._lock:
            if not self._remaining:
                return None
            slowdown = 1.0
            if self._expected_seconds >= INTERVAL_SECONDS:
                slowdown = self._actual_seconds / self._expected_seconds
            elapsed = time.monotonic() - self._stage_start if self._stage else 0.0
            later_stages = [stage for stage in self._remaining if stage != self._stage]
            later_seconds = sum(self._expected[stage] for stage in later_stages) * slowdown
            current_seconds = max(0.0, self._expected.get(self._stage, 0.0) * slowdown - elapsed)
        return later_seconds + current_seconds

    def _print_step(self, stage: str, text: str) -> None:
        line = f"{time.strftime('%H:%M')}  Step {STEPS[stage][0]} of {STEP_COUNT}: {text}"
        self._console.print(line, soft_wrap=True, highlight=False)


class _Handler(logging.Handler):
    """Writes each record to the log file, warnings to the terminal too, and Prefect's to the progress."""

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
    """Write Prefect's log lines to `log_file` within this block, and show the progress of a run.

    A logging configuration without Prefect's console handler is left as it is.

    Args:
        expected: stage -> seconds, in the order of the stages.
    """
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import PrefectConsoleHandler

    setup_logging()
    root = logging.getLogger()
    terminals = [handler for handler in root.handlers if isinstance(handler, PrefectConsoleHandler)]
    if not terminals:  # the user's own logging configuration
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
    """Return stage -> expected seconds, those of an earlier result in this clone if there is one.

    Args:
        environment: name; one without typical times has only those of `earlier`.
        earlier: stage -> seconds of its newest result.
    """
    seconds = {**TYPICAL_SECONDS.get(environment, {}), **earlier}
    return {stage: seconds[stage] for stage in STEPS if stage in seconds}
