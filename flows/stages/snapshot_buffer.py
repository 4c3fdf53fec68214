"""Step 8: a version of data/ with the dreamed transitions; at the end of the run, its commit.

Both are made beside the workspace: data/, data.dvc and git's index stay as they are. The version is that of
the run's start with the run's dreamed transitions in the replay log. The commit is a DVC experiment.
`dreamgym data use RUN` makes the version that of the workspace.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.tracking.experiment_files import experiment_files
from components.tracking.manifest import Manifest
from components.tracking.stage_store.stage_store import StageResult
from components.trajectories.dvc.experiment_commit import FOLDER, commit_experiment
from components.trajectories.dvc.pointer import POINTER, hashes_of, pointer_text
from components.trajectories.dvc.versions import extend_version, outs_of, push_version
from components.trajectories.store import append_transitions, read_log
from flows.run.pipeline_run import Run, series_of
from flows.run.stage import RUN_NAME


def experiment_name(run_id: str) -> str:
    """What `dvc exp list` calls the run."""
    return f"run-{run_id}"


@flow(name="snapshot-buffer", flow_run_name=RUN_NAME, validate_parameters=False)
def snapshot_buffer(run: Run) -> str:
    """Make the run's version of data/ and return its hash. data/ itself stays as it is."""
    with run.limited("snapshot_buffer"):
        return save_run_version(run)


def save_run_version(run: Run) -> str:
    """Put the version into DVC's cache and the remote that takes new versions; its hash.

    Raises DataError or ServiceUnreachable as `extend_version` and `push_version`.
    """
    result, data = run.results["synthetic_rl"], run.manifest.data
    folder = run.data.replay.relative_to(run.root).as_posix()
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
    """Once for each result: a version that has them already stays the same."""
    name = f"synthetic-{result.key[:12]}"
    if not any(shard.stem.endswith(name) for shard in log.glob("*.parquet")):
        append_transitions(log, read_log(result.outputs["replay"]), name)


def save_run_commit(run: Run) -> str:
    """Commit the workspace with the run's version, record and results as a DVC experiment; the commit's hash.
    Raises DataError.
    """
    manifest = run.manifest
    pointer = pointer_text(outs_of(run.root, manifest.data.parts_out))
    files = {POINTER: pointer.encode()} | {
        path.relative_to(run.root).as_posix(): path.read_bytes() for path in run.record
    }
    series: dict[str, list[float]] = {}
    for result in run.results.values():
        series |= series_of(result)
    shown = experiment_files(run.metrics, manifest.config, series)
    files |= {f"{FOLDER}/{path}": text.encode() for path, text in shown.items()}
    return commit_experiment(run.root, experiment_name(manifest.run_id), files)


def version_commands(manifest: Manifest) -> list[str]:
    """What to type to look at the run's commit, to adopt its version of data/, and to make it again."""
    if not manifest.data.dvc_out:
        return []
    adopt = (
        f"dreamgym data use {manifest.run_id}  # data/ and data.dvc take the run's version "
        f"{manifest.data.dvc_out}"
    )
    if not manifest.data.experiment_commit:
        return [adopt]
    name = experiment_name(manifest.run_id)
    commit = manifest.data.experiment_commit[:12]
    return [
        f"git show {commit}  # the commit of the DVC experiment {name}; all runs: dvc exp list --all",
        adopt,
    ]
