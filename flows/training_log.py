"""Progress, curves and speed of a training, for the log and for the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prefect import get_run_logger

from components.evaluation.metrics.intervals import Estimate, exact_value
from components.language.training.fine_tuning import OnFigures, OnStep
from components.language.training.training_run import TrainingRecord

SECONDS_BETWEEN_LINES = 20.0


def progress_logger(total: float) -> OnStep:
    """Return a callback for `supervised_finetune` that logs at most one line every 20 seconds.

    Args:
        total: tokens of the whole training.
    """
    log = get_run_logger()
    last_line = time.monotonic()

    def log_progress(step: int, tokens: int, loss: float) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            log.info(
                "update %d, %.0f %% of %s tokens, loss %.3f",
                step,
                100 * tokens / total,
                f"{total / 1e6:.1f} M" if total >= 1e6 else f"{total:,.0f}",
                loss,
            )

    return log_progress


def tenths_logger(what: str) -> Callable[[int, int], None]:
    """Return a callback (done, of) that logs `DONE of OF WHAT` at each tenth of the work."""
    log = get_run_logger()
    tenths = 0

    def log_tenth(done: int, of: int) -> None:
        nonlocal tenths
        if 10 * done // of > tenths:
            tenths = 10 * done // of
            log.info("%s of %s %s", f"{done:,}", f"{of:,}", what)

    return log_tenth


def curve_logger(name: str, log_curves: Callable[[int, Mapping[str, float]], None]) -> OnFigures:
    """Return a callback of `supervised_finetune` that logs `name/loss` and `name/learning_rate`."""
    return lambda step, figures: log_curves(
        step, {f"{name}/{figure}": value for figure, value in figures.items()}
    )


def speed_metrics(name: str, record: TrainingRecord) -> dict[str, Estimate]:
    """Return `name/tokens_per_second` of a training, and on a GPU `name/gpu_...`."""
    return {f"{name}/{figure}": exact_value(value) for figure, value in record.speed.items()}
