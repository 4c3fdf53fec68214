"""Versions of `data/` under DVC: `data.dvc` names the parts, their content is in the cache and in remotes.

The remote `seed` (`seed/`, at most 20 MB) is part of the git repository and holds the first version. It is
DVC's default, so that a plain `dvc pull` in a fresh clone needs no login. The remote `local`
(`.dreamgym/dvc-remote`, ignored by git) takes every new version, unless `core.remote` names another remote
such as an object store. A default that the user sets is never changed or shadowed.

DVC fails silently in four cases, which this package handles:
1. The fetch of a missing object succeeds (transfer.py).
2. So does a fetch from an HTTP remote that does not answer (transfer.py).
3. A checkout writes damaged files from the cache (verification.py compares them with `data.dvc`).
4. A command ends after three seconds if another command holds the lock (dvc_command.py waits).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import DataError
from components.files import read_text, write_text
from components.trajectories.dvc.data_state import (
    Drift,
    current_parts,
    data_hash,
    data_parts,
    drift,
    hash_data,
    left_over_files,
    missing_files,
    part_hash,
    version_hash,
)
from components.trajectories.dvc.dvc_cache import LOCAL, SEED, cache_directory, missing_objects, remote_names
from components.trajectories.dvc.dvc_command import run_checked
from components.trajectories.dvc.pointer import DATA, POINTER, Out, read_pointer, write_pointer
from components.trajectories.dvc.push_and_pull import fetch, push
from components.trajectories.dvc.verification import tree_hash, verify

__all__ = [
    "LOCAL",
    "SEED",
    "Drift",
    "Snapshot",
    "data_hash",
    "data_parts",
    "drift",
    "missing_files",
    "part_hash",
    "push",
    "tree_hash",
    "verify",
]

_DVCIGNORE = "# What DVC never needs to look at.\n.venv\n/runs\n/mlflow\n/seed\n*.tmp\n"


@dataclass(frozen=True)
class Snapshot:
    """A version of `data/`: DVC's hash of all its files, number of files, size in bytes, and its parts."""

    hash: str
    files: int
    size: int
    parts: tuple[Out, ...] = ()

    @classmethod
    def of(cls, root: Path, parts: tuple[Out, ...]) -> Snapshot:
        """The version with these parts, whose listings are in the cache of `root`."""
        return cls(
            hash=version_hash(root, parts),
            files=sum(out.files for out in parts),
            size=sum(out.size for out in parts),
            parts=parts,
        )


def init_if_needed(root: Path) -> None:
    """Put `root` under DVC, and configure both remotes if there is none to push to.

    Raises:
        DataError: `root` is not a git repository.
    """
    if not (root / ".git").exists():
        raise DataError(
            f"{root.absolute()} is not a git repository.",
            "DVC keeps data.dvc in git.",
            "Type `git init` there, then the same again.",
        )
    if not (root / ".dvc" / "config").exists():
        run_checked(root, "init")
        (root / ".dvcignore").write_text(_DVCIGNORE, encoding="utf-8")
    if not set(remote_names(root)) - {SEED}:
        configure_remotes(root)


def configure_remotes(root: Path) -> None:
    """Write the two remotes into `.dvc/config`, with relative paths. Another default remote stays."""
    from dvc.config import Config
    from dvc.config_schema import RelPath

    with Config(dvc_dir=str(root.absolute() / ".dvc")).edit("repo") as config:
        core = config.setdefault("core", {})
        core.update(analytics="false", autostage="false", remote=core.get("remote", SEED))
        for name, folder in ((SEED, "seed"), (LOCAL, ".dreamgym/dvc-remote")):
            config.setdefault("remote", {})[name] = {
                "url": RelPath(str(root.absolute() / folder)),
                "verify": "true",
            }


def snapshot(root: Path) -> Snapshot:
    """Version `data/` as it is now, in `data.dvc` and the cache. The same data gives the same hash.

    Raises:
        DataError: there is no data or no git repository, the disk is full, or DVC stays locked; `data.dvc` is
            then unchanged.
    """
    init_if_needed(root)
    current = hash_data(root)
    if not current:
        raise DataError(
            f"{root / DATA} holds no files.",
            "Expected data to take a snapshot of.",
            "Type `dreamgym collect` first.",
        )
    path = root / POINTER
    previous = read_pointer(path) if path.is_file() else ()
    outs = current_parts(root, current, {out.path: out.options for out in previous})
    if outs != previous or missing_objects(cache_directory(root), outs):
        _commit_pointer(root, outs)
    return _named_snapshot(root)


def _commit_pointer(root: Path, outs: Sequence[Out]) -> None:
    """Write `data.dvc` and let DVC put its parts into the cache. A failure restores the old `data.dvc`."""
    path = root / POINTER
    previous = read_text(path) if path.is_file() else None
    _ignore_data(root)
    write_pointer(path, outs)
    try:
        run_checked(root, "commit", "--force", POINTER)
    except BaseException:
        if previous is None:
            path.unlink(missing_ok=True)
        else:
            write_text(path, previous)
        raise


def _ignore_data(root: Path) -> None:
    """Make git ignore `data/` as a whole. Otherwise DVC writes a `.gitignore` into each part's folder."""
    if not git_output(root, "check-ignore", f"{DATA}/"):
        path = root / ".gitignore"
        text = read_text(path) if path.is_file() else ""
        write_text(path, text + "\n" * bool(text and not text.endswith("\n")) + f"/{DATA}/\n")


def pull(root: Path, *, force: bool = False) -> Snapshot:
    """Bring `data/` to the version that `data.dvc` names, from all configured remotes, and verify it.

    Args:
        force: True to replace also files that are in no version.

    Raises:
        DataError: an object is in no remote, a file arrived damaged, or `data/` has changes that were never
            versioned.
        ServiceUnreachable: an object is in none of the remotes that answer, and one does not answer.
    """
    fetch(root, root, read_pointer(root / POINTER))
    _remove_left_over_files(root)
    run_checked(root, "checkout", *["--force"] * force, POINTER)
    verify(root)
    return _named_snapshot(root)


def _remove_left_over_files(root: Path) -> None:
    current = hash_data(root)
    for relative in left_over_files(root, read_pointer(root / POINTER), current):
        path = root / DATA / relative
        path.unlink(missing_ok=True)
        for folder in path.relative_to(root / DATA).parents:
            if folder.name and not any((root / DATA / folder).iterdir()):
                (root / DATA / folder).rmdir()


def _named_snapshot(root: Path) -> Snapshot:
    """The version that `data.dvc` names."""
    return Snapshot.of(root, read_pointer(root / POINTER))


def git_output(root: Path, *arguments: str) -> str:
    """The output of git; empty if it fails."""
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True).stdout.strip()
