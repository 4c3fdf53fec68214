"""Make, fetch and push versions of `data/` outside the workspace: `data/` and `data.dvc` stay unchanged.

A small DVC repository below `.dreamgym/versions/` names the version. It shares the clone's cache and remotes,
from whatever level of DVC's config. It is removed afterwards; the version's objects stay in the cache.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.errors import DataError
from components.trajectories.dvc.data_state import current_parts, hash_data
from components.trajectories.dvc.dvc_cache import (
    LOCAL,
    cache_directory,
    dvc_config,
    files_of,
    missing_objects,
    object_path,
    remote_names,
    size_in_cache,
    write_dvc_config,
)
from components.trajectories.dvc.dvc_command import command_error, run_dvc
from components.trajectories.dvc.pointer import DATA, POINTER, Out, write_pointer
from components.trajectories.dvc.push_and_pull import choose_remote, fetch
from components.trajectories.dvc.snapshots import Snapshot, pull

SHARED_SECTIONS = ("remote", "cache", "state", "index", "db")
"""Sections of DVC's config that such a repository shares with the clone."""


@contextmanager
def version_repository(root: Path, outs: Sequence[Out]) -> Iterator[Path]:
    """A temporary DVC repository without git whose `data.dvc` names `outs`.

    It has the cache and the remotes of the clone `root`.
    """
    repository = root.absolute() / ".dreamgym" / "versions" / secrets.token_hex(6)
    settings = repository / ".dvc"
    # Private, because it gets the clone's config with the passwords of remotes.
    settings.mkdir(parents=True, mode=0o700)
    try:
        sections = {
            section: dict(values)
            for section, values in dvc_config(root).items()
            if section in SHARED_SECTIONS
        }
        sections["cache"] = sections.get("cache", {}) | {"dir": cache_directory(root).parents[1]}
        sections["core"] = {"no_scm": True, "analytics": False, "site_cache_dir": settings / "site"}
        write_dvc_config(settings / "config", sections)
        write_pointer(repository / POINTER, outs)
        yield repository
    finally:
        shutil.rmtree(repository, ignore_errors=True)


def outs_of(root: Path, parts: Mapping[str, str]) -> tuple[Out, ...]:
    """The parts of a version with their sizes, after missing objects were fetched.

    Args:
        parts: path -> hash.

    Raises:
        DataError, ServiceUnreachable: an object is in no remote.
    """
    outs = [Out(path, md5) for path, md5 in parts.items()]
    cache = cache_directory(root)
    if missing_objects(cache, outs):
        with version_repository(root, outs) as repository:
            fetch(root, repository, outs)
    return tuple(Out(out.path, out.md5, *size_in_cache(cache, out)) for out in outs)


def extend_version(
    root: Path, parts: Mapping[str, str], folder: str, fill: Callable[[Path], object]
) -> Snapshot:
    """Add files to one folder of a version, in the cache. `data/` is not changed.

    Args:
        parts: path -> hash of the version to extend.
        folder: the folder, such as `data/alfworld/replay`.
        fill: writes the new files into a directory that already holds the folder's files.

    Raises:
        DataError: an object of the version is in no remote, the disk is full, or DVC stays locked.
    """
    outs = outs_of(root, parts)
    cache = cache_directory(root)
    replaced = [out for out in outs if out.path in (folder, DATA)]
    unchanged = [out for out in outs if out not in replaced]
    with version_repository(root, replaced) as repository:
        for relative, md5 in files_of(cache, replaced).items():
            _link(object_path(cache, md5), repository / DATA / relative)
        (repository / folder).mkdir(parents=True, exist_ok=True)
        fill(repository / folder)
        extended = current_parts(repository, hash_data(repository), {})
        write_pointer(repository / POINTER, extended)
        _run(repository, "commit", "--force", "--no-relink", POINTER)
    return Snapshot.of(root, tuple(sorted((*unchanged, *extended), key=lambda out: out.path)))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # the cache is on another file system, or is a link itself
        shutil.copyfile(source, target)


def push_version(root: Path, version: Snapshot, remote: str = "") -> str:
    """Copy a version to a remote, by default the remote of `push`, and return its name.

    Raises:
        DataError, ServiceUnreachable: as `push`.
    """
    return push_outs(root, version.parts, remote)


def push_outs(root: Path, outs: Sequence[Out], remote: str = "") -> str:
    """Copy the parts of a version to a remote, by default the remote of `push`, and return its name.

    Raises:
        DataError, ServiceUnreachable: as `push`, or there is no such remote.
    """
    names = remote_names(root)
    if remote and remote not in names:
        raise DataError(
            f"DVC knows no remote {remote!r} in this clone.",
            f"Expected one of: {', '.join(names)}.",
            f"Type `dvc remote add {remote} PATH_OR_URL`.",
        )
    remote = choose_remote(root, outs, remote)
    with version_repository(root, outs) as repository:
        _run(repository, "push", "--remote", remote, POINTER)
    return remote


def restore(root: Path, parts: Mapping[str, str], origin: Path) -> Snapshot:
    """Bring `data/` of the checkout `root` to a version, from the caches and remotes of the clone `origin`.

    `root` then shares the cache of `origin`, and pushes only to its own directory.

    Raises:
        DataError: an object is in no remote or is damaged; damaged objects are named and not used.
    """
    outs = outs_of(origin, parts)
    local = {"url": root.absolute() / ".dreamgym" / "dvc-remote"}
    cache = {"dir": cache_directory(origin.absolute()).parents[1]}
    write_dvc_config(
        root.absolute() / ".dvc" / "config.local",
        {"cache": cache, "remote": {LOCAL: local}, "core": {"remote": LOCAL}},
    )
    write_pointer(root / POINTER, outs)
    return pull(root)


def _run(repository: Path, *arguments: str) -> None:
    done = run_dvc(repository, *arguments)
    if done.returncode:
        raise command_error(repository, " ".join(arguments), done.stderr)
