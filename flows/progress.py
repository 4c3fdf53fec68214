"""A line of log now and then from a long training, so that nobody wonders whether it hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prefect import get_run_logger

from components.language.training.fine_tuning import OnFigures, OnStep

SECONDS = 20.0


def telling(total: float) -> OnStep:
    """A callback for `supervised_finetune` over `total` tokens: at most one line in `SECONDS`."""
    log, told = get_run_logger(), time.monotonic()

    def tell(step: int, tokens: int, loss: float) -> None:
        nonlocal told
        if time.monotonic() - told >= SECONDS:
            told = time.monotonic()
            log.info(
                "update %d, %.0f %% of %.1f M tokens, loss %.3f",
                step,
                100 * tokens / total,
                total / 1e6,
                loss,
            )

    return tell


def drawing(name: str, log_curves: Callable[[int, Mapping[str, float]], None]) -> OnFigures:
    """A callback for `supervised_finetune` that draws the curves `name/loss` and `name/learning_rate`."""
    return lambda step, figures: log_curves(
        step, {f"{name}/{figure}": value for figure, value in figures.items()}
    )
