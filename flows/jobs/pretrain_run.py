"""The MLflow run of a pretraining: its config as parameters, and its curves of loss and learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from components.config import Config
from components.tracking.curve_file import CURVES, Curves
from components.tracking.mlflow_adapter.tracker import Tracker
from flows.dead_flow_runs import end_dead_runs

LogCurves = Callable[[int, Mapping[str, float]], None]


@contextmanager
def pretraining_run(config: Config, root: Path, work: Path) -> Iterator[LogCurves]:
    """Open an MLflow run for the duration of the context; yields the function that adds points to its curves.

    Args:
        work: directory in which the points are kept, so that a resumed pretraining has them.

    Raises:
        TrackingError: MLflow cannot be reached.
    """
    tracker = Tracker(config.tracking, root.resolve())
    end_dead_runs(root.resolve(), tracker)
    run = tracker.start_run(f"pretrain, seed {config.pretrain.seed}", {}, config.model_dump(mode="json"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        with Curves(work, lambda points: tracker.log_points((run,), points)) as curves:
            yield curves.add
    except BaseException:
        tracker.finish(run, "FAILED")
        raise
    (work / CURVES).unlink(missing_ok=True)
    tracker.finish(run)
