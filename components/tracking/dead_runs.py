"""A run whose process was killed says `running` for ever, in its manifest or in MLflow alone: the next one in
the clone closes it.

The manifest names the process, and so does a tag of the MLflow run: `pretrain` and `evaluate` have no
manifest. A run whose process lives is left alone, and so is one of another machine, another clone or another
MLflow store, or of a version that noted no process.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from components.errors import DataError, ServiceUnreachable, TrackingError
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import CLONE_TAG, PROCESS_TAG, Tracker
from components.tracking.process import OwnProcess, is_dead
from components.tracking.runs import list_runs

_LOG = logging.getLogger(__name__)
KILLED = "**Killed.** Its process ended without a word.\n\n"
RESUMABLE = ("retrain", "study")
"""Jobs whose runs `dreamgym resume` takes."""


def close_dead_runs(runs: Path, tracker: Tracker) -> list[str]:
    """Mark runs under `runs` whose process is gone as killed, in MLflow and then in the manifest; their ids.

    One that had finished, and was killed before MLflow knew it, is finished there.

    Raises:
        ServiceUnreachable: MLflow does not answer.
        DataError: the disk refuses.
    """
    closed, running = [], tracker.running()
    for name in list_runs(runs):
        manifest = _manifest_of_dead_run(runs / name, running)
        if manifest is None or manifest.process is None or not is_dead(manifest.process):
            continue
        if (
            manifest.mlflow_uri != tracker.uri and manifest.mlflow_run_id not in running
        ):  # a clone that was moved has a new URI
            continue
        try:
            if manifest.status == "finished":
                _finish(runs / name, manifest, tracker)
            else:
                tracker.kill(manifest.mlflow_run_id, _note(manifest.flow))
        except ServiceUnreachable:
            raise
        except TrackingError as error:  # its run was deleted there: no reason not to begin this one
            _LOG.warning("MLflow's run of %s could not be closed: %s", name, error)
        if manifest.status == "finished":
            continue
        manifest.status = "killed"
        manifest.save(runs / name)
        closed.append(name)
    _close_without_manifest(tracker)
    return closed


def _note(flow: str) -> str:
    cure = "`dreamgym resume` goes on" if flow in RESUMABLE else "The same command, typed again, goes on"
    return f"{KILLED}{cure} from what is finished."


def _close_without_manifest(tracker: Tracker) -> None:
    """End the runs that still go on in MLflow and whose tags name a process that is gone, of this clone."""
    for run_id, tags in tracker.running().items():
        process = OwnProcess.from_text(tags.get(PROCESS_TAG, ""))
        if process is None or not is_dead(process) or not _is_of_this_clone(tracker, tags.get(CLONE_TAG, "")):
            continue
        try:
            tracker.kill(run_id, _note(""))
        except ServiceUnreachable:
            raise
        except TrackingError as error:
            _LOG.warning("MLflow's run %s could not be closed: %s", run_id, error)


def _is_of_this_clone(tracker: Tracker, clone: str) -> bool:
    """A clone that was moved has another path now: a store inside it is its own, and a path that is gone is
    nobody else's.
    """
    return clone == str(tracker.root) or str(tracker.root) in tracker.uri or not Path(clone).is_dir()


def _finish(directory: Path, manifest: Manifest, tracker: Tracker) -> None:
    """Give MLflow the record that it has not got, and the end."""
    for path in directory.glob("*.json"):
        tracker.log_artifact(manifest.mlflow_run_id, path)
    tracker.finish(manifest.mlflow_run_id)


def _manifest_of_dead_run(directory: Path, running: Collection[str]) -> Manifest | None:
    """The manifest of a run that says running, there or in MLflow."""
    with suppress(DataError):  # one that was cut short has no manifest, or half of one
        manifest = Manifest.load(directory)
        return (
            manifest
            if manifest.status == "running"
            or (manifest.status == "finished" and manifest.mlflow_run_id in running)
            else None
        )
    return None
