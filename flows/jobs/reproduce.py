"""A past run again: its commit in a worktree, its data verified, its config; and whether its numbers come
back.

    dreamgym reproduce 20260131-142530-9f3a

Everything is made anew there, nothing is reused; the clone itself, its data, its registry and its champion
stay as they are.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from components.errors import PROMOTION_REFUSED, DataError, TrackingError
from components.evaluation.metrics.reproduction import Verdict, left_out, verdicts
from components.tracking.manifest import Manifest
from components.tracking.run_differences import Difference, differences
from components.tracking.run_environment import describe_hardware, installed_packages
from components.tracking.runs import find_run, list_runs, read_metrics
from components.trajectories.dvc.experiment_commit import experiments
from components.trajectories.dvc.versions import restore
from flows.stages.snapshot_buffer import experiment_name

SECTIONS = ("packages", "machine")
"""What of two runs may differ although code, data and config are the same."""
FETCH = "Fetch the experiments' commits: git fetch origin 'refs/exps/*:refs/exps/*'"


@dataclass(frozen=True)
class Reproduction:
    """The run and its repetition: of every metric whether it came back."""

    run_id: str
    place: Path
    verdicts: list[Verdict]
    left_out: dict[str, str] = field(default_factory=dict)
    """Metric -> why it is not compared."""

    @property
    def succeeded(self) -> bool:
        """True if no metric is different or missing."""
        return all(entry.verdict in ("equal", "within tolerance") for entry in self.verdicts)


def find_run_record(root: Path, what: str) -> tuple[Path, Manifest]:
    """A run by its id, `latest`, the name or the (beginning of the) commit of its experiment: its record's
    directory, its manifest.

    A commit has the record in it, so a run that was made in another clone is found by it; it is then written
    to .dreamgym/recorded.

    Raises:
        DataError: there is none.
    """
    what = _commit_of_name(root, what)
    directory = next(
        (
            found
            for name in reversed(list_runs(root / "runs"))
            if (found := _of_commit(root / "runs" / name, what))
        ),
        None,
    )
    made_elsewhere = "" if directory or (root / "runs" / what).is_dir() else _commit(root, what)
    directory = directory or (
        _recorded(root, made_elsewhere) if made_elsewhere else find_run(root / "runs", what)
    )
    manifest = Manifest.load(directory)
    manifest.data.experiment_commit = made_elsewhere or manifest.data.experiment_commit
    return directory, manifest


def find_original(root: Path, what: str) -> tuple[Path, Manifest]:
    """A finished run that can be made again, named as for `find_run_record`.

    Raises:
        DataError: there is none, it has not come to its end, is of another job, or has no experiment commit.
    """
    directory, manifest = find_run_record(root, what)
    if manifest.status != "finished" or manifest.flow != "retrain":
        state = f"Run {manifest.run_id} is {manifest.status}, of the job {manifest.flow}."
        raise DataError(state, "Expected a finished run of `dreamgym retrain`.", "Name another one.")
    if not manifest.data.experiment_commit:
        lack = f"Run {manifest.run_id} left no DVC experiment commit (tracking.dvc_experiment=false)."
        raise DataError(lack, "Its code, with what was not committed, is in none.", "Name another run.")
    return directory, manifest


def _commit_of_name(root: Path, what: str) -> str:
    """The commit of the experiment that `dvc exp list` calls `what`, or that a run `what` made elsewhere;
    else `what` itself.
    """
    if (root / "runs" / what).is_dir():
        return what
    named = experiments(root)
    return named.get(what) or named.get(experiment_name(what)) or what


def _commit(root: Path, name: str) -> str:
    """The whole hash of a commit by (the beginning of) it; empty if `name` does not look like one. Raises
    DataError if git has none.
    """
    if not re.fullmatch(r"[0-9a-f]{7,40}", name):
        return ""
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False).strip()
    if not found:
        raise DataError(f"There is neither a run nor a commit {name} here.", next_step=FETCH)
    return found


def _recorded(root: Path, commit: str) -> Path:
    """The record of the run that `commit` was saved by, as a directory named after the run.

    Raises:
        DataError: it has none, or several.
    """
    listed = _git(root, "ls-tree", "-r", "--name-only", commit, "--", "runs/").splitlines()
    listed = [path for path in listed if re.fullmatch(r"runs/[\w-]+/(manifest|metrics|config)\.json", path)]
    found = {Path(path).parts[1] for path in listed}
    if len(found) != 1:
        lack = (
            f"Commit {commit[:12]} has the record of {len(found) or 'no'} run{'s' * (len(found) > 1)} in it."
        )
        raise DataError(
            lack, "Expected the commit of a run's DVC experiment: `dvc exp list --all`.", "Name that one."
        )
    directory = root / ".dreamgym" / "recorded" / found.pop()
    directory.mkdir(parents=True, exist_ok=True)
    for path in listed:
        (directory / Path(path).name).write_text(_git(root, "show", f"{commit}:{path}"), encoding="utf-8")
    return directory


def _of_commit(directory: Path, commit: str) -> Path | None:
    try:
        found = Manifest.load(directory).data.experiment_commit
    except DataError:
        return None
    return directory if len(commit) >= 7 and found.startswith(commit) else None


def surroundings_since(manifest: Manifest, root: Path) -> dict[str, list[Difference]]:
    """Section -> what of this machine and its packages is not as it was when the run was made."""
    then = manifest.environment
    hardware = describe_hardware(then.hardware.threads, then.hardware.device and _device_of(manifest))
    here = {
        "packages": installed_packages(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware,
    }
    now = manifest.model_copy(update={"environment": then.model_copy(update=here)})
    return {
        section: entries
        for section, entries in differences(manifest, now, root).items()
        if section in SECTIONS
    }


def _device_of(manifest: Manifest) -> str:
    """Where the repetition will train and decode."""
    import torch

    asked = str(manifest.config.get("device", "auto"))
    return asked if asked != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def reproduce(
    root: Path, what: str, say: Callable[[str], None], show: Callable[[dict[str, list[Difference]]], None]
) -> Reproduction:
    """Make the run again in a worktree under .dreamgym/reproduced, and compare; before anything is made
    `show` gets `surroundings_since`.

    Raises:
        DataError: there is no such run, its commit or its data is gone or damaged.
        TrackingError: the repetition did not come to its end.
    """
    directory, manifest = find_original(root, what)
    show(surroundings_since(manifest, root))
    place = root / ".dreamgym" / "reproduced" / directory.name
    say(f"Checking out {manifest.data.experiment_commit[:12]} in {place} ...")
    _worktree(root, place, manifest.data.experiment_commit)
    say(f"Restoring data {manifest.data.dvc_in} ...")
    restore(place, manifest.data.version_in(), root)
    say("Running (everything anew: it takes as long as the first time) ...")
    again = _run(place, directory / "config.json")
    then, now = read_metrics(directory), read_metrics(again)
    return Reproduction(manifest.run_id, place, verdicts(then, now), left_out(then, now))


def _worktree(root: Path, place: Path, commit: str) -> None:
    """A clean checkout of `commit` at `place`; one that an earlier try left is removed."""
    if place.exists():
        _git(root, "worktree", "remove", "--force", str(place), check=False)
        shutil.rmtree(place, ignore_errors=True)
    _git(root, "worktree", "prune", check=False)
    _git(root, "worktree", "add", "--detach", str(place), commit)


def _git(root: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        raise DataError(f"git {arguments[0]} failed: {reason}", next_step=FETCH)
    return done.stdout


def _run(place: Path, config: Path) -> Path:
    """`dreamgym retrain` of the code at `place`; the directory of its run."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_TRACKING", "PREFECT_"))
    }
    own |= {"PYTHONPATH": str(place), "PREFECT_HOME": str(place / ".dreamgym" / "prefect")}
    program = "from flows.cli import main; main()"
    overrides = ['tracking.uri=""', "tracking.dvc_experiment=false"]
    command = [
        sys.executable,
        "-c",
        program,
        "retrain",
        "--config",
        str(config),
        "--root",
        str(place),
        *overrides,
    ]
    done = subprocess.run(command, cwd=place, env=own, check=False)
    if done.returncode not in (0, PROMOTION_REFUSED):
        next_step = f"Look at it there: cd {place}"
        raise TrackingError(
            f"The repetition ended with the exit code {done.returncode}.",
            "Expected it to end like the run.",
            next_step,
        )
    return find_run(place / "runs")


def discard(root: Path, found: Reproduction) -> None:
    """Remove the worktree of a repetition."""
    _git(root, "worktree", "remove", "--force", str(found.place), check=False)
    shutil.rmtree(found.place, ignore_errors=True)
