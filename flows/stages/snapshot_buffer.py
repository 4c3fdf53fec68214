"""Step 8: save a version of data/ with the dreamed transitions; in step 12, save the run's commit.

The version is that of the run's start, plus the run's dreamed transitions in the replay log. The commit is a
DVC experiment. Neither changes the workspace: data/, data.dvc and git's index stay as they are. `dreamgym
data use RUN` switches the workspace to the version.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.tracking.experiment_files import experiment_files
from components.tracking.manifest import Manifest
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.dvc.experiment_commit import FOLDER, commit_experiment
from components.trajectories.dvc.pointer import POINTER, hashes_of, pointer_text
from components.trajectories.dvc.versions import extend_version, outs_of, push_version
from components.trajectories.replay_log import append_once, read_log
from flows.run.pipeline_run import Run
from flows.run.stage import RUN_NAME
from flows.run.stage_curves import series_of


def experiment_name(run_id: str) -> str:
    """Return the run's name in `dvc exp list`."""
    return f"run-{run_id}"


@flow(name="snapshot-buffer", flow_run_name=RUN_NAME, validate_parameters=False)
def snapshot_buffer(run: Run) -> str:
    """Save the run's version of data/ and return its hash; data/ itself is not changed."""
    with run.limited("snapshot_buffer"):
        return save_run_version(run)


def save_run_version(run: Run) -> str:
    """Save the version in DVC's cache, push it to the remote, and return its hash.

    Raises:
        DataError, ServiceUnreachable: as `extend_version` and `push_version`.
    """
    result = run.results["synthetic_rl"]
    data = run.manifest.data
    folder = run.logs.replay.relative_to(run.root).as_posix()
    version = extend_version(run.root, data.version_in(), folder, lambda log: _append_dreams(log, result))
    remote = push_version(run.root, version)
    data.dvc_out, data.parts_out = version.hash, hashes_of(version.parts)
    tags = {
        "dvc.hash.out": version.hash,
        "dvc.remote.out": remote,
        "dvc.replay.out": data.parts_out.get(folder, ""),
    }
    run.tracker.set_tags(run.parent, tags)
    return version.hash


def _append_dreams(log: Path, result: StageResult) -> None:
    """Append the dreamed transitions of a result, unless the log already has them."""
    append_once(log, read_log(result.outputs["replay"]), f"synthetic-{result.key[:12]}")


def save_run_commit(run: Run) -> str:
    """Commit the workspace with the run's data version, record and results as a DVC experiment.

    Returns:
        the commit's hash.

    Raises:
        DataError: git or DVC refuses.
    """
    manifest = run.manifest
    pointer = pointer_text(outs_of(run.root, manifest.data.parts_out))
    files = {POINTER: pointer.encode()} | {
        path.relative_to(run.root).as_posix(): path.read_bytes() for path in run.record
    }
    series: dict[str, list[float]] = {}
    for result in run.results.values():
        series |= series_of(result)
    result_files = experiment_files(run.metrics, manifest.config, series)
    files |= {f"{FOLDER}/{path}": text.encode() for path, text in result_files.items()}
    return commit_experiment(run.root, experiment_name(manifest.run_id), files)


def version_commands(manifest: Manifest) -> list[str]:
    """Return the commands that show the run's commit, and that switch data/ to its version."""
    if not manifest.data.dvc_out:
        return []
    use_data = (
        f"dreamgym data use {manifest.run_id}  # data/ and data.dvc take the run's version "
        f"{manifest.data.dvc_out}"
    )
    if not manifest.data.experiment_commit:
        return [use_data]
    name = experiment_name(manifest.run_id)
    commit = manifest.data.experiment_commit[:12]
    return [
        f"git show {commit}  # the commit of the DVC experiment {name}; all runs: dvc exp list --all",
        use_data,
    ]
