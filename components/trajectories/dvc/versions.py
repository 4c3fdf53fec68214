"""Versions of `data/` that are made, fetched and pushed beside it, so that `data/` and `data.dvc` stay as
they are.

A small DVC repository below `.dreamgym/versions/` names the version; it has the cache and the remotes of the
clone, whatever level of DVC's config they were set at. It is removed afterwards: the version's objects stay
in the cache.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.errors import DataError
from components.trajectories.dvc.data_state import hash_data, parts_lying, version_hash
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
from components.trajectories.dvc.dvc_command import failed, run_dvc
from components.trajectories.dvc.pointer import DATA, POINTER, Out, hashes_of, write_pointer
from components.trajectories.dvc.snapshots import Snapshot, choose_remote, fetch, pull

COPIED_SECTIONS = ("remote", "cache", "state", "index", "db")
"""Sections of DVC's config that such a repository shares with the clone."""


@contextmanager
def version_repository(root: Path, outs: Sequence[Out]) -> Iterator[Path]:
    """A DVC repository without git whose `data.dvc` names `outs`, with the cache and the remotes of the clone
    `root`.
    """
    place = root.absolute() / ".dreamgym" / "versions" / secrets.token_hex(6)
    settings = place / ".dvc"
    settings.mkdir(
        parents=True, mode=0o700
    )  # it holds what the clone's own config holds, passwords of remotes included
    try:
        sections = {
            section: dict(values)
            for section, values in dvc_config(root).items()
            if section in COPIED_SECTIONS
        }
        sections["cache"] = sections.get("cache", {}) | {"dir": cache_directory(root).parents[1]}
        sections["core"] = {"no_scm": True, "analytics": False, "site_cache_dir": settings / "site"}
        write_dvc_config(settings / "config", sections)
        write_pointer(place / POINTER, outs)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def outs_of(root: Path, parts: Mapping[str, str]) -> tuple[Out, ...]:
    """The parts of a version by their hashes, with their sizes. Raises DataError or ServiceUnreachable if its
    objects are nowhere.
    """
    bare, cache = [Out(path, md5) for path, md5 in parts.items()], cache_directory(root)
    if missing_objects(cache, bare):
        with version_repository(root, bare) as place:
            fetch(root, place, bare)
    return tuple(Out(out.path, out.md5, *size_in_cache(cache, out)) for out in bare)


def extend_version(
    root: Path, parts: Mapping[str, str], folder: str, fill: Callable[[Path], object]
) -> Snapshot:
    """The version `parts` with what `fill` adds to `folder` (`data/alfworld/replay`), in the cache; `data/`
    is not touched.

    Args: fill: is called with a directory that holds the folder's files of the version, and writes more of
    them.

    Raises:
        DataError: an object of the version is nowhere, the disk is full, or DVC stays locked.
    """
    outs, cache = outs_of(root, parts), cache_directory(root)
    renewed = [out for out in outs if out.path in (folder, DATA)]
    kept = [out for out in outs if out not in renewed]
    with version_repository(root, renewed) as place:
        for relative, md5 in files_of(cache, renewed).items():
            _link(object_path(cache, md5), place / DATA / relative)
        (place / folder).mkdir(parents=True, exist_ok=True)
        fill(place / folder)
        made = parts_lying(place, hash_data(place), {})
        write_pointer(place / POINTER, made)
        _run(place, "commit", "--force", "--no-relink", POINTER)
    outs = tuple(sorted((*kept, *made), key=lambda out: out.path))
    return Snapshot(
        version_hash(root, outs), sum(out.files for out in outs), sum(out.size for out in outs), outs
    )


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # the cache lies on another file system, or is a link itself
        shutil.copyfile(source, target)


def push_version(root: Path, version: Snapshot, remote: str = "") -> str:
    """Copy a version to `remote`, by default the one that `push` takes; its name. Raises DataError or
    ServiceUnreachable as `push`.
    """
    return push_outs(root, version.parts, remote)


def push_outs(root: Path, outs: Sequence[Out], remote: str = "") -> str:
    """As `push_version`, for the parts of a version. Raises DataError also if DVC knows no such remote
    here.
    """
    names = remote_names(root)
    if remote and remote not in names:
        found = f"DVC knows no remote {remote!r} in this clone."
        raise DataError(
            found, f"Expected one of: {', '.join(names)}.", f"Type `dvc remote add {remote} PATH_OR_URL`."
        )
    remote = choose_remote(root, outs, remote)
    with version_repository(root, outs) as place:
        _run(place, "push", "--remote", remote, POINTER)
    return remote


def restore(root: Path, parts: Mapping[str, str], origin: Path) -> Snapshot:
    """Bring `data/` of `root`, a checkout beside the clone `origin`, to a version, from the caches and
    remotes that `origin` knows.

    `root` then shares the cache of `origin` and pushes nothing beyond its own directory.

    Raises:
        DataError: an object is nowhere, or damaged; what is damaged is named and not used.
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


def same_version(first: Sequence[Out], second: Sequence[Out]) -> bool:
    """True if both versions have the same parts with the same hashes."""
    return hashes_of(first) == hashes_of(second)


def _run(place: Path, *arguments: str) -> None:
    done = run_dvc(place, *arguments)
    if done.returncode:
        raise failed(place, " ".join(arguments), done.stderr)
