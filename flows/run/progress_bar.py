"""The progress bar of a run in the Prefect UI."""

from __future__ import annotations

from typing import TypeVar

from prefect.artifacts import create_progress_artifact, update_progress_artifact

T = TypeVar("T")


class Progress:
    """A progress bar in the Prefect UI. Args: steps: their number."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._artifact = create_progress_artifact(progress=0.0, description="stages of this run")

    def after(self, result: T) -> T:
        """Count one more finished step, and return its result."""
        self._done += 1
        update_progress_artifact(artifact_id=self._artifact, progress=100.0 * self._done / self._steps)  # type: ignore[arg-type]
        return result
