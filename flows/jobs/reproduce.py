"""Repeats a past run in a git worktree of its commit, with its data and config, and compares the metrics.

    dreamgym reproduce 20260131-142530-9f3a

No stage is reused. A run that went on from another one (`dreamgym next-round`) is repeated after that one.
The clone itself, its data, its registry and its champion are not changed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import PROMOTION_REFUSED, DataError, TrackingError
from components.evaluation.metrics.reproduction import MetricVerdict, left_out, verdicts
from components.installed_packages import installed_packages
from components.tracking.manifest import Manifest
from components.tracking.run_differences import Difference, differences
from components.tracking.run_environment import describe_hardware
from components.tracking.runs import find_run, list_runs, read_metrics
from components.trajectories.dvc.experiment_commit import experiments
from components.trajectories.dvc.versions import restore
from flows.stages.snapshot_buffer import experiment_name

JOBS = ("retrain", "next-round")
"""Jobs whose runs can be repeated."""
MODEL_PATHS = (("backbone", "path"), ("experience_model", "path"), ("retrieval", "encoder_path"))
"""Sections and keys of the config that may name a model by its path."""
SECTIONS = ("packages", "machine")
"""Sections in which two runs can differ although code, data and config are the same."""
FETCH = "Fetch the experiments' commits: git fetch origin 'refs/exps/*:refs/exps/*'"


@dataclass(frozen=True)
class Reproduction:
    """The result of repeating a run.

    Args:
        worktree: directory in which the run was repeated.
        verdicts: one for each compared metric.
        left_out: metric -> why it is not compared.
    """

    run_id: str
    worktree: Path
    verdicts: list[MetricVerdict]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """True if every metric is equal or within the tolerance."""
        return all(entry.verdict in ("equal", "within tolerance") for entry in self.verdicts)


def find_run_record(root: Path, what: str) -> tuple[Path, Manifest]:
    """Find a run; return the directory of its record and its manifest.

    A commit contains the run's record, so a run of another clone can be found by it. The record is then
    written to .dreamgym/recorded.

    Args:
        what: id of the run, `latest`, or name or (beginning of the) commit of its experiment.

    Raises:
        DataError: there is no such run.
    """
    what = _commit_of_name(root, what)
    directories = (root / "runs" / name for name in reversed(list_runs(root / "runs")))
    directory = next((run for run in directories if _has_commit(run, what)), None)
    is_local = directory is not None or (root / "runs" / what).is_dir()
    commit = "" if is_local else _find_commit(root, what)
    if directory is None:
        directory = _write_record(root, commit) if commit else find_run(root / "runs", what)
    manifest = Manifest.load(directory)
    manifest.data.experiment_commit = commit or manifest.data.experiment_commit
    return directory, manifest


def find_original(root: Path, what: str) -> tuple[Path, Manifest]:
    """Find a finished run that can be repeated; `what` as in `find_run_record`.

    Raises:
        DataError: there is no such run, it is not finished, is of another job, or has no experiment commit.
    """
    directory, manifest = find_run_record(root, what)
    if manifest.status != "finished" or manifest.flow not in JOBS:
        problem = f"Run {manifest.run_id} is {manifest.status}, of the job {manifest.flow}."
        expected = f"Expected a finished run of `dreamgym {'` or `'.join(JOBS)}`."
        raise DataError(problem, expected, "Name another one.")
    if not manifest.data.experiment_commit:
        problem = f"Run {manifest.run_id} has no DVC experiment commit (tracking.dvc_experiment=false)."
        raise DataError(problem, "Without one its code is unknown.", "Name another run.")
    return directory, manifest


def _commit_of_name(root: Path, what: str) -> str:
    """Return the commit of the experiment, or of the run of another clone, named `what`; else `what`."""
    if (root / "runs" / what).is_dir():
        return what
    commits = experiments(root)
    return commits.get(what) or commits.get(experiment_name(what)) or what


def _find_commit(root: Path, name: str) -> str:
    """Return the whole hash of a commit, given (the beginning of) it; empty if `name` is no hash.

    Raises:
        DataError: git has no such commit.
    """
    if not re.fullmatch(r"[0-9a-f]{7,40}", name):
        return ""
    commit = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False).strip()
    if not commit:
        raise DataError(f"There is neither a run nor a commit {name} here.", next_step=FETCH)
    return commit


def _write_record(root: Path, commit: str) -> Path:
    """Write the record of the run in `commit` to a directory named after the run, and return it.

    Raises:
        DataError: the commit contains no record, or several.
    """
    listed = _git(root, "ls-tree", "-r", "--name-only", commit, "--", "runs/").splitlines()
    listed = [path for path in listed if re.fullmatch(r"runs/[\w-]+/(manifest|metrics|config)\.json", path)]
    runs = {Path(path).parts[1] for path in listed}
    if len(runs) != 1:
        count = f"{len(runs) or 'no'} run{'s' * (len(runs) > 1)}"
        raise DataError(
            f"Commit {commit[:12]} has the record of {count} in it.",
            "Expected the commit of a run's DVC experiment: `dvc exp list --all`.",
            "Name that one.",
        )
    directory = root / ".dreamgym" / "recorded" / runs.pop()
    directory.mkdir(parents=True, exist_ok=True)
    for path in listed:
        (directory / Path(path).name).write_text(_git(root, "show", f"{commit}:{path}"), encoding="utf-8")
    return directory


def _has_commit(directory: Path, commit: str) -> bool:
    """Return True if the experiment commit of the run in `directory` begins with `commit`."""
    if len(commit) < 7:
        return False
    try:
        return Manifest.load(directory).data.experiment_commit.startswith(commit)
    except DataError:
        return False


def machine_changes(manifest: Manifest, root: Path) -> dict[str, list[Difference]]:
    """Return section -> how packages and machine differ from those of the run."""
    original = manifest.environment
    hardware = describe_hardware(original.hardware.threads, original.hardware.device and _device_of(manifest))
    if original.hardware.training_processes is None:  # a run of before it was recorded
        hardware = hardware.model_copy(update={"training_processes": None})
    present = {
        "packages": installed_packages(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware,
    }
    now = manifest.model_copy(update={"environment": original.model_copy(update=present)})
    return {
        section: entries
        for section, entries in differences(manifest, now, root).items()
        if section in SECTIONS
    }


def _device_of(manifest: Manifest) -> str:
    """Return the device that the repeated run will use."""
    import torch

    device = str(manifest.config.get("device", "auto"))
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def reproduce(
    root: Path,
    what: str,
    report: Callable[[str], None],
    show_changes: Callable[[dict[str, list[Difference]]], None],
) -> Reproduction:
    """Repeat a run in a worktree below .dreamgym/reproduced, and compare its metrics.

    Args:
        what: as in `find_run_record`.
        report: called with progress messages.
        show_changes: called with `machine_changes` before the run starts.

    Raises:
        DataError: there is no such run, or its commit or data is missing or damaged.
        TrackingError: the repeated run failed.
    """
    directory, manifest = find_original(root, what)
    show_changes(machine_changes(manifest, root))
    repeated = _repeat(root, directory, manifest, report)
    original_metrics = read_metrics(directory)
    new_metrics = read_metrics(repeated)
    compared = verdicts(original_metrics, new_metrics)
    worktree = _worktree_of(root, directory)
    return Reproduction(manifest.run_id, worktree, compared, left_out(original_metrics, new_metrics))


def _repeat(root: Path, directory: Path, manifest: Manifest, report: Callable[[str], None]) -> Path:
    """Repeat a run, after the one that it went on from; return the directory of the new run."""
    earlier = None
    if manifest.continues:
        report(f"Run {manifest.run_id} went on from {manifest.continues}, which is repeated first.")
        earlier = _repeat(root, *find_original(root, manifest.continues), report)
    worktree = _worktree_of(root, directory)
    report(f"Checking out {manifest.data.experiment_commit[:12]} in {worktree} ...")
    _create_worktree(root, worktree, manifest.data.experiment_commit)
    report(f"Restoring data {manifest.data.dvc_in} ...")
    restore(worktree, manifest.data.version_in(), root)
    for path in _link_models(root, worktree, manifest.config):
        report(f"Using {path} of this clone.")
    if earlier is not None:
        _take_over(root, earlier, worktree)
    report("Running (no stage is reused: it takes as long as the first time) ...")
    job = [manifest.flow, *([earlier.name] if earlier else [])]
    return _run_job(worktree, job, directory / "config.json")


def _worktree_of(root: Path, directory: Path) -> Path:
    """Return the worktree in which a run is repeated. Args: directory: of the run's record."""
    return root / ".dreamgym" / "reproduced" / directory.name


def _link_models(root: Path, worktree: Path, config: Mapping[str, Any]) -> list[str]:
    """Link models that the config names by a path in the repository, and return their paths.

    They are no part of a commit or of the data: the worktree has none.
    """
    named = [config.get(section, {}).get(key, "") for section, key in MODEL_PATHS]
    missing = [
        path
        for path in dict.fromkeys(named)
        if path and not Path(path).is_absolute() and (root / path).exists() and not (worktree / path).exists()
    ]
    for path in missing:
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        (worktree / path).symlink_to((root / path).resolve(), target_is_directory=(root / path).is_dir())
    return missing


def _take_over(root: Path, run: Path, worktree: Path) -> None:
    """Move a repeated run with its stages to another worktree, and remove the one where it was made."""
    source = run.parents[1]
    (worktree / ".dreamgym").mkdir(exist_ok=True)
    for path in (run.relative_to(source), Path(".dreamgym", "stages")):
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source / path, worktree / path)
    _remove_worktree(root, source)


def _create_worktree(root: Path, worktree: Path, commit: str) -> None:
    """Check out `commit` in a new worktree; one that an earlier attempt left is removed."""
    _remove_worktree(root, worktree)
    _git(root, "worktree", "prune", check=False)
    _git(root, "worktree", "add", "--detach", str(worktree), commit)


def _remove_worktree(root: Path, worktree: Path) -> None:
    _git(root, "worktree", "remove", "--force", str(worktree), check=False)
    shutil.rmtree(worktree, ignore_errors=True)


def _git(root: Path, *arguments: str, check: bool = True) -> str:
    process = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    if check and process.returncode:
        reason = process.stderr.strip().splitlines()[-1] if process.stderr.strip() else "no message"
        raise DataError(f"git {arguments[0]} failed: {reason}", next_step=FETCH)
    return process.stdout


def _run_job(worktree: Path, job: Sequence[str], config: Path) -> Path:
    """Run a job with the code of the worktree; return the directory of its run.

    Args:
        job: verb of the command and its arguments.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_TRACKING", "PREFECT_"))
    }
    environment |= {
        "PYTHONPATH": str(worktree),
        "PREFECT_HOME": str(worktree / ".dreamgym" / "prefect"),
    }
    program = "from flows.cli import main; main()"
    overrides = ['tracking.uri=""', "tracking.dvc_experiment=false"]
    command = [
        sys.executable,
        "-c",
        program,
        *job,
        "--config",
        str(config),
        "--root",
        str(worktree),
        *overrides,
    ]
    process = subprocess.run(command, cwd=worktree, env=environment, check=False)
    if process.returncode not in (0, PROMOTION_REFUSED):
        raise TrackingError(
            f"The repeated run ended with the exit code {process.returncode}.",
            "Expected it to finish, as the original run did.",
            f"Look at it there: cd {worktree}",
        )
    return find_run(worktree / "runs")


def discard(root: Path, reproduction: Reproduction) -> None:
    """Remove the worktree of a repeated run."""
    _remove_worktree(root, reproduction.worktree)
