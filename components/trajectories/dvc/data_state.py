"""`data/` as it lies, held against the version that `data.dvc` names: hashes of a version and of its folders,
and what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import DataError
from components.trajectories.dvc.dvc_cache import (
    cache_directory,
    file_digest,
    files_of,
    listing_hash,
    missing_objects,
    object_path,
)
from components.trajectories.dvc.dvc_command import alone
from components.trajectories.dvc.pointer import DATA, POINTER, Out, hashes_of, part_of, read_pointer


def hash_data(root: Path) -> dict[str, str]:
    """Relative path -> MD5 of every file in `data/` that DVC would version, in the order of its listings."""
    data = root.absolute() / DATA
    return {relative: file_digest(data / relative) for relative in sorted(_data_files(root))}


def _data_files(root: Path) -> Iterator[str]:
    from dvc.fs import LocalFileSystem
    from dvc.ignore import DvcIgnoreFilter

    data, ignored = root.absolute() / DATA, DvcIgnoreFilter(LocalFileSystem(), str(root.absolute()))
    for folder, _, names in ignored.walk(ignored.fs, str(data)):
        yield from ((Path(folder) / name).relative_to(data).as_posix() for name in names)


def parts_lying(
    root: Path, lying: Mapping[str, str], options: Mapping[str, Mapping[str, object]]
) -> tuple[Out, ...]:
    """The parts of `data/` as it lies. Args: options: what the user has set for a part in data.dvc, which is
    kept.
    """
    outs = []
    for path, files in sorted(_by_part(lying).items()):
        size = sum((root / DATA / relative).stat().st_size for relative in files)
        if (root / path).is_dir():
            digest = listing_hash(_below(files, path[len(DATA) + 1 :]))
        else:
            (digest,) = files.values()
        outs.append(Out(path, digest, size, len(files), options.get(path, {})))
    return tuple(outs)


def _by_part(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Path of each part -> its files, named below `data/`."""
    parts: dict[str, dict[str, str]] = {}
    for relative, md5 in files.items():
        parts.setdefault(part_of(relative), {})[relative] = md5
    return parts


def _below(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """The files of `folder`, named below it; all of them where it is empty."""
    start = f"{folder}/" if folder else ""
    return {relative[len(start) :]: md5 for relative, md5 in files.items() if relative.startswith(start)}


def data_hash(root: Path) -> str:
    """DVC's hash of all files of the version that `data.dvc` names, as if `data/` were one part.

    Raises DataError if data.dvc is missing or unreadable, or if neither the cache nor `data/` has the
    version's files.
    """
    return version_hash(root, read_pointer(root / POINTER))


def data_parts(root: Path) -> dict[str, str]:
    """Path -> hash of each part of that version. Raises DataError if data.dvc is missing or unreadable."""
    return hashes_of(read_pointer(root / POINTER))


def version_hash(root: Path, outs: Sequence[Out]) -> str:
    """The same of any version whose listings are in the cache."""
    whole = [out.md5 for out in outs if out.path == DATA]
    return whole[0] if whole else listing_hash(_files_named(root, outs))


def _files_named(root: Path, outs: Sequence[Out]) -> dict[str, str]:
    """The version's files by the cached listings; where one is missing, by `data/`, if it holds that very
    part.
    """
    cache = cache_directory(root)
    files: dict[str, str] = {}
    unlisted = [out for out in outs if out.is_directory and not object_path(cache, out.md5).is_file()]
    lying = hash_data(root) if unlisted else {}
    for out in outs:
        if out not in unlisted:
            files |= files_of(cache, [out])
        elif _lies(out, lying):
            files |= {out.relative(name): md5 for name, md5 in _below(lying, out.inside).items()}
        else:
            found = (
                f"The files of {out.path} ({out.md5}) are not in this clone: neither its listing in the "
                "cache nor the part itself."
            )
            raise DataError(found, next_step="Type `dreamgym data pull`.")
    return files


def _lies(out: Out, lying: Mapping[str, str]) -> bool:
    """True if `data/` holds the part just as the version has it."""
    return (listing_hash(_below(lying, out.inside)) if out.is_directory else lying.get(out.inside)) == out.md5


def part_hash(root: Path, folder: str, without: str = "") -> str:
    """The hash that DVC would give to `folder` of the version if it were versioned by itself, and had no
    folder `without`.

    What other folders hold does not matter. Where neither the cache nor `data/` has the files, it is a hash
    of the parts' hashes. Raises DataError if data.dvc is missing or unreadable.
    """
    outs = read_pointer(root / POINTER)
    for out in outs:
        if out.inside == folder and not without:
            return out.md5
    within = [out for out in outs if _overlap(out.inside, folder)]
    try:
        below = _below(_files_named(root, within), folder)
    except DataError:
        below = {out.inside.removeprefix(f"{folder}/"): out.md5 for out in within}
    left_out = {relative for relative in below if without and f"{relative}/".startswith(f"{without}/")}
    return listing_hash({relative: md5 for relative, md5 in below.items() if relative not in left_out})


def _overlap(first: str, second: str) -> bool:
    """True if one of the two folders lies in the other; the empty one is `data/` itself."""
    return not first or f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")


@dataclass(frozen=True)
class Drift:
    """How `data/` differs from the version that data.dvc names, relative to `data/`.

    `changed`: the version has them, and data/ has others or none; `added`: data/ alone has them, within a
    part of the version or as a part of another one; `unsaved`: those of data/ whose bytes are not in the
    cache, so that a checkout would lose them. A file in no part, and that no version ever had, is nobody's
    matter here: no checkout touches it.
    """

    changed: list[str]
    added: list[str]
    unsaved: list[str]


def drift(root: Path) -> Drift:
    """Hold `data/` against data.dvc, byte by byte; what another DVC command changes at that moment is waited
    for.

    Raises DataError as `read_pointer`, or if that command takes too long.
    """
    outs = read_pointer(root / POINTER)
    try:
        lying = hash_data(root)
        if all(_lies(out, lying) for out in outs) and not _outside(outs, lying):
            return Drift([], [], [])
    except FileNotFoundError:
        pass  # a command that goes on at this moment replaces files
    with alone(root):
        outs, lying, cache = read_pointer(root / POINTER), hash_data(root), cache_directory(root)
        other = [out for out in outs if not _lies(out, lying)]
        named = files_of(
            cache, [out for out in other if not out.is_directory or object_path(cache, out.md5).is_file()]
        )
        changed = [relative for relative, md5 in named.items() if lying.get(relative) != md5]
        within = [relative for out in other for relative in _relatives(out, lying) if relative not in named]
        at_stake = [*(relative for relative in changed if relative in lying), *within]
        unsaved = [relative for relative in at_stake if not object_path(cache, lying[relative]).is_file()]
        return Drift(changed, [*within, *left_over_files(root, outs, lying)], unsaved)


def _relatives(out: Out, lying: Mapping[str, str]) -> list[str]:
    """The files of `data/` that lie in this part."""
    return [
        relative
        for relative in lying
        if not out.inside or relative == out.inside or relative.startswith(f"{out.inside}/")
    ]


def _outside(outs: Sequence[Out], lying: Mapping[str, str]) -> dict[str, str]:
    inside = {relative for out in outs for relative in _relatives(out, lying)}
    return {relative: md5 for relative, md5 in lying.items() if relative not in inside}


def left_over_files(root: Path, outs: Sequence[Out], lying: Mapping[str, str]) -> list[str]:
    """Files that are a whole part of another version, which the cache keeps: what a checkout of that one left
    in `data/`.
    """
    cache = cache_directory(root)
    parts = parts_lying(root, _outside(outs, lying), {})
    kept = [
        out for out in parts if object_path(cache, out.md5).is_file() and not missing_objects(cache, [out])
    ]
    return [relative for out in kept for relative in _relatives(out, lying)]


def missing_files(root: Path) -> list[str]:
    """What `data.dvc` names and `data/` lacks, relative to `root`; of a part whose listing is not here, its
    own path.
    """
    outs, cache = read_pointer(root / POINTER), cache_directory(root)
    listed = [out for out in outs if not out.is_directory or object_path(cache, out.md5).is_file()]
    unlisted = [out for out in outs if out not in listed]
    lying = hash_data(root) if unlisted else {}
    missing = [out.path for out in unlisted if not _lies(out, lying)]
    return missing + [
        f"{DATA}/{relative}" for relative in files_of(cache, listed) if not (root / DATA / relative).is_file()
    ]
