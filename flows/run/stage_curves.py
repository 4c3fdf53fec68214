"""Curves of a run's stages: of the result as lists, and in MLflow while a stage runs or when it is reused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.tracking.curve_file import Curves, Point, read_curves
from components.tracking.stage_store.stage_result import RECORD, StageResult

MlflowRuns = tuple[str, ...]
"""Ids of the MLflow runs that get the points: the stage's run and the parent run."""


def series_of(result: StageResult) -> dict[str, list[float]]:
    """Return the curves of a stage; NaN where an iteration had no value (null in the file)."""
    series = result.details.get("series", {})
    return {
        name: [math.nan if value is None else value for value in values] for name, values in series.items()
    }


def json_series(series: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    """Return the curves as JSON values: null for a value that is not finite, since JSON has no NaN."""
    return {
        name: [value if math.isfinite(value) else None for value in values] for name, values in series.items()
    }


class StageCurves:
    """Logs the curves of a run's stages in MLflow, each point once.

    Args:
        log_points: logs points on MLflow runs.
    """

    def __init__(self, log_points: Callable[[MlflowRuns, Sequence[Point]], None]) -> None:
        self.names: set[str] = set()
        """Names of all curves of the run so far."""
        self._log_points = log_points
        self._open_curves: Curves | None = None
        self._streamed_names: set[str] = set()

    @contextmanager
    def streaming(self, directory: Path, mlflow_runs: MlflowRuns) -> Iterator[None]:
        """Within this block `add` logs points of the stage that works in `directory`."""
        curves = Curves(directory, lambda points: self._log_points(mlflow_runs, points))
        self._open_curves = curves
        try:
            with curves:
                yield
        finally:
            self._open_curves = None
            self._streamed_names = curves.names

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve of the stage under way, with the present time; nothing without a stage.

        Args:
            step: from 0.
        """
        if self._open_curves is not None:
            self._open_curves.add(step, values)

    def log_missing(self, result: StageResult, mlflow_runs: MlflowRuns) -> None:
        """Log the curves that are not in MLflow yet.

        These are the curves of a reused stage, and those that were not streamed point by point. Points
        without a time get that of the stage's end.
        """
        missing = [
            point
            for name, points in _points_of(result).items()
            if name not in self._streamed_names
            for point in points
        ]
        self._log_points(mlflow_runs, missing)
        self.names |= self._streamed_names | {point.name for point in missing}
        self._streamed_names = set()


def _points_of(result: StageResult) -> dict[str, list[Point]]:
    """Return the points of each curve, those of the curve file first."""
    curves = read_curves(result.directory)
    end_time_ms = int((result.directory / RECORD).stat().st_mtime * 1000)
    for name, values in series_of(result).items():
        points = [
            Point(name, step, end_time_ms, value) for step, value in enumerate(values) if math.isfinite(value)
        ]
        curves.setdefault(name, points)
    return curves
