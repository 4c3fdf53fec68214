"""Checks before a flow starts: a git repository with an identity, free disk space, and the versioned data."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from components.config import Config
from components.errors import DataError
from components.trajectories.store import DataLayout

MIN_FREE_BYTES = 20_000_000
"""Disk space below which even Prefect's server does not start. `dreamgym doctor` checks what a run needs."""
MAX_LISTED_FILES = 5


def require_repository(root: Path) -> None:
    """Raise DataError unless `root` is a git repository with a commit; set a git identity if there is none.

    Raises:
        DataError: `root` is not the top of a git repository, or the repository has no commit.
    """
    reason = "Every run records the commit that made it."
    if not (root / ".git").exists():
        next_step = (
            "Type `cd` to the clone, or in this folder: git init && git add . && git commit -m 'First commit'"
        )
        raise DataError(f"{root.absolute()} is not the top of a git repository.", reason, next_step)
    if _git(root, "rev-parse", "--verify", "HEAD") is None:
        problem = f"The git repository {root.absolute()} has no commit that git would show."
        raise DataError(problem, reason, "Type `git add . && git commit -m 'First commit'`.")
    if not has_identity(root):
        for role in ("AUTHOR", "COMMITTER"):
            os.environ.setdefault(f"GIT_{role}_NAME", "dreamgym")
            os.environ.setdefault(f"GIT_{role}_EMAIL", "dreamgym@localhost")


def require_disk_space(root: Path) -> None:
    """Raise DataError if the disk of `root` or of Prefect's database is full.

    Prefect itself would only report that it cannot be reached.
    """
    for place in (root, Path(os.environ.get("PREFECT_HOME", root))):
        if place.is_dir() and (free := shutil.disk_usage(place).free) < MIN_FREE_BYTES:
            next_step = (
                "Free some space (`dvc gc --workspace --all-experiments` drops versions that no run "
                "made) and type the same again."
            )
            raise DataError(
                f"The disk is full: {free:,} bytes are free in {place}.",
                f"Expected at least {MIN_FREE_BYTES:,} for Prefect's database and the run's records.",
                next_step,
            )


def has_identity(root: Path) -> bool:
    """Return True if git has a name and an address for commits in `root`."""
    return _git(root, "var", "GIT_COMMITTER_IDENT") is not None


def ensure_data(
    root: Path,
    config: Config,
    report: Callable[[str], None],
    *,
    backbone: bool = True,
    versioned: bool = True,
) -> None:
    """Pull the versioned data if some of it is missing, or if data.dvc names another version.

    The first happens in a fresh clone, the second after `git pull`.

    Args:
        report: called with progress messages.
        backbone: whether the run needs the backbone of `data/<environment>/`.
        versioned: whether the run records the version in data.dvc; if not, existing files are left as they
            are.

    Raises:
        DataError: the data is in no remote or not part of the snapshot; data/ holds changes that are in no
            version; or there is no data.dvc to record.
        ServiceUnreachable: a remote does not answer, and the data is in none of the others.
    """
    missing = missing_data(root, config, backbone)
    if missing:
        _pull(root, missing, report)
    if versioned and (unsaved := _follow_pointer(root, report)):
        raise _unsaved_changes(unsaved)
    if missing := missing_data(root, config, backbone):
        raise not_in_snapshot(missing)


def version_title(root: Path) -> str:
    """Return the version of data/ that data.dvc names, for a title."""
    from components.trajectories.dvc.snapshots import data_hash

    try:
        return f"data {data_hash(root)[:12]}"
    except DataError:
        return "data in no version"


def complete_data(root: Path, report: Callable[[str], None]) -> None:
    """Pull what `data.dvc` names and `data/` lacks or has in another version; do nothing without a data.dvc.

    The next snapshot then keeps all of it. Changes that are in no version stay.

    Raises:
        DataError: as `ensure_data`.
    """
    from components.trajectories.dvc.snapshots import missing_files

    if not (root / "data.dvc").is_file():
        return
    if missing := missing_files(root):
        _pull(root, missing, report)
    _follow_pointer(root, report)


def _follow_pointer(root: Path, report: Callable[[str], None]) -> list[str]:
    """Check out the version that data.dvc names; if data/ holds unsaved files, only return these."""
    from components.trajectories.dvc.snapshots import drift, pull

    differences = drift(root)
    if differences.unsaved or not (differences.changed or differences.added):
        return differences.unsaved
    report(
        "data.dvc names another version than the one in data/, which stays in DVC's cache. Checking it out "
        "..."
    )
    version = pull(root)
    report(f"data/ is the version {version.hash} now: {version.files} files, {version.size / 1e6:.1f} MB.")
    return []


def _unsaved_changes(unsaved: Sequence[str]) -> DataError:
    problem = (
        f"data/ differs from the version that data.dvc names, and its changes are saved in no version: "
        f"{_file_list(unsaved)}."
    )
    keep = "To keep it, type `dreamgym data save` (or `dreamgym collect` to record new data)"
    take = "to take the version that data.dvc names, `dreamgym data pull --force`."
    return DataError(problem, "A run records the version that it reads.", f"{keep}; {take}")


def _file_list(files: Sequence[str]) -> str:
    more = len(files) - MAX_LISTED_FILES
    return ", ".join(files[:MAX_LISTED_FILES]) + (f" and {more} more" if more > 0 else "")


def not_in_snapshot(missing: Sequence[str]) -> DataError:
    """Return the failure for files that the version in `data.dvc` does not contain."""
    is_backbone = [part.endswith("/backbone") for part in missing]
    commands = ["`dreamgym collect`"] if not all(is_backbone) else []
    commands += ["`dreamgym pretrain`"] if any(is_backbone) else []
    next_step = (
        f"Type {' and '.join(commands)} with the same --config to make it, or check out a data.dvc that has "
        "it (`git log data.dvc` lists them)."
    )
    problem = f"The version of data/ that data.dvc names has no {', '.join(missing)}."
    return DataError(problem, "A run reads it.", next_step)


def _pull(root: Path, missing: Sequence[str], report: Callable[[str], None]) -> None:
    from components.trajectories.dvc.snapshots import pull

    report(f"Not there yet: {_file_list(missing)}. Pulling the snapshot that data.dvc names ...")
    version = pull(root)
    report(f"Pulled {version.files} files, {version.size / 1e6:.1f} MB, DVC hash {version.hash}.")


def missing_data(root: Path, config: Config, backbone: bool = True) -> list[str]:
    """Return the missing files that a run of `config` reads, relative to `root`."""
    layout = DataLayout.of(root, config.environment.name)
    parts = [layout.tasks(name) for name in ("train", "fidelity", "test")]
    parts += [layout.trajectories(name) for name in ("train", "fidelity")]
    parts += [layout.backbone] if backbone else []
    return [str(part.relative_to(root)) for part in parts if not part.exists()]


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, None if it fails."""
    try:
        process = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise DataError(
            "There is no git on this machine.", "Every run records the commit that made it.", "Install git."
        ) from None
    return process.stdout.strip() if process.returncode == 0 else None
