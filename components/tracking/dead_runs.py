"""Close runs whose process was killed, which still have the status `running`.

The status is in the manifest, in MLflow or in both. The next run in the clone closes them. The manifest names
the process, and so does a tag of the MLflow run, because `pretrain` and `evaluate` have no manifest. These
runs are left alone: runs of living processes, of another machine, clone or MLflow store, and runs of a
version that recorded no process.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from components.errors import DataError, ServiceUnreachable, TrackingError
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.run_lifecycle import CLONE_TAG, PROCESS_TAG
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.process import OwnProcess, is_dead
from components.tracking.runs import list_runs

_LOG = logging.getLogger(__name__)
KILLED_NOTE = "**Killed.** Its process ended unexpectedly.\n\n"
RESUMABLE_JOBS = ("retrain", "study")
"""Jobs whose runs `dreamgym resume` can continue."""


def close_dead_runs(runs: Path, tracker: Tracker) -> list[str]:
    """Mark runs under `runs` whose process is gone as killed, in MLflow and then in the manifest.

    A run that was killed after its manifest said `finished` is finished in MLflow, too.

    Returns:
        Ids of the runs that were marked as killed.

    Raises:
        ServiceUnreachable: MLflow does not answer.
        DataError: the disk refuses.
    """
    closed: list[str] = []
    running = tracker.running()
    for name in list_runs(runs):
        manifest = _manifest_of_running_run(runs / name, running)
        if manifest is None or manifest.process is None or not is_dead(manifest.process):
            continue
        # The URI of a clone that was moved is another one, but its store has the run.
        if manifest.mlflow_uri != tracker.uri and manifest.mlflow_run_id not in running:
            continue
        try:
            if manifest.status == "finished":
                _finish_in_mlflow(runs / name, manifest, tracker)
            else:
                tracker.kill(manifest.mlflow_run_id, _note(manifest.flow))
        except ServiceUnreachable:
            raise
        except TrackingError as error:  # MLflow's run was deleted, which must not stop the new run
            _LOG.warning("MLflow's run of %s could not be closed: %s", name, error)
        if manifest.status == "finished":
            continue
        manifest.status = "killed"
        manifest.save(runs / name)
        closed.append(name)
    _close_without_manifest(tracker)
    return closed


def _note(flow: str) -> str:
    command = "`dreamgym resume` continues" if flow in RESUMABLE_JOBS else "The same command continues"
    return f"{KILLED_NOTE}{command} from the finished stages."


def _close_without_manifest(tracker: Tracker) -> None:
    """End MLflow's running runs whose tags name this clone and a process that is gone."""
    for run_id, tags in tracker.running().items():
        process = OwnProcess.from_text(tags.get(PROCESS_TAG, ""))
        is_gone = process is not None and is_dead(process)
        if not is_gone or not _is_of_this_clone(tracker, tags.get(CLONE_TAG, "")):
            continue
        try:
            tracker.kill(run_id, _note(""))
        except ServiceUnreachable:
            raise
        except TrackingError as error:
            _LOG.warning("MLflow's run %s could not be closed: %s", run_id, error)


def _is_of_this_clone(tracker: Tracker, clone: str) -> bool:
    """True if the tagged path is this clone's, now or before it was moved.

    A store inside the clone has only runs of the clone. A path that does not exist belongs to no other clone.
    """
    return clone == str(tracker.root) or str(tracker.root) in tracker.uri or not Path(clone).is_dir()


def _finish_in_mlflow(directory: Path, manifest: Manifest, tracker: Tracker) -> None:
    """Store the run's JSON files in MLflow and end the run there."""
    for path in directory.glob("*.json"):
        tracker.log_artifact(manifest.mlflow_run_id, path)
    tracker.finish(manifest.mlflow_run_id)


def _manifest_of_running_run(directory: Path, running: Collection[str]) -> Manifest | None:
    """The manifest of a run that is marked as running there or in MLflow, else None."""
    with suppress(DataError):  # a killed run may have no manifest, or an incomplete one
        manifest = Manifest.load(directory)
        is_unfinished_in_mlflow = manifest.status == "finished" and manifest.mlflow_run_id in running
        return manifest if manifest.status == "running" or is_unfinished_in_mlflow else None
    return None
