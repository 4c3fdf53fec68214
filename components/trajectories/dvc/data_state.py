"""Compare `data/` in the workspace with the version that `data.dvc` names; hashes of versions and folders."""

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
from components.trajectories.dvc.dvc_command import exclusive_dvc_access
from components.trajectories.dvc.pointer import DATA, POINTER, Out, hashes_of, part_of, read_pointer


def hash_data(root: Path) -> dict[str, str]:
    """Path below `data/` -> MD5 of every file that DVC would version, in the order of DVC's listings."""
    data = root.absolute() / DATA
    return {relative: file_digest(data / relative) for relative in sorted(_data_files(root))}


def _data_files(root: Path) -> Iterator[str]:
    from dvc.fs import LocalFileSystem
    from dvc.ignore import DvcIgnoreFilter

    data = root.absolute() / DATA
    ignore_filter = DvcIgnoreFilter(LocalFileSystem(), str(root.absolute()))
    for folder, _, names in ignore_filter.walk(ignore_filter.fs, str(data)):
        yield from ((Path(folder) / name).relative_to(data).as_posix() for name in names)


def current_parts(
    root: Path, current: Mapping[str, str], options: Mapping[str, Mapping[str, object]]
) -> tuple[Out, ...]:
    """The parts of `data/` as it is now.

    Args:
        current: the files of `data/` from `hash_data`.
        options: part -> further keys that the user set for it in data.dvc, which are kept.
    """
    outs = []
    for path, files in sorted(_by_part(current).items()):
        size = sum((root / DATA / relative).stat().st_size for relative in files)
        if (root / path).is_dir():
            digest = listing_hash(_below(files, path[len(DATA) + 1 :]))
        else:
            (digest,) = files.values()
        outs.append(Out(path, digest, size, len(files), options.get(path, {})))
    return tuple(outs)


def _by_part(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Path of each part -> its files, with paths below `data/`."""
    parts: dict[str, dict[str, str]] = {}
    for relative, md5 in files.items():
        parts.setdefault(part_of(relative), {})[relative] = md5
    return parts


def _below(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """The files of `folder` with paths below it; all files if `folder` is empty."""
    prefix = f"{folder}/" if folder else ""
    return {relative[len(prefix) :]: md5 for relative, md5 in files.items() if relative.startswith(prefix)}


def data_hash(root: Path) -> str:
    """DVC's hash of all files of the version that `data.dvc` names, as if `data/` were one part.

    Raises:
        DataError: data.dvc is missing or unreadable, or neither the cache nor `data/` has the version's
            files.
    """
    return version_hash(root, read_pointer(root / POINTER))


def data_parts(root: Path) -> dict[str, str]:
    """Path -> hash of each part of the version that `data.dvc` names.

    Raises:
        DataError: data.dvc is missing or unreadable.
    """
    return hashes_of(read_pointer(root / POINTER))


def version_hash(root: Path, outs: Sequence[Out]) -> str:
    """The same hash as `data_hash` for any version whose listings are in the cache."""
    whole = [out.md5 for out in outs if out.path == DATA]
    return whole[0] if whole else listing_hash(_version_files(root, outs))


def _version_files(root: Path, outs: Sequence[Out]) -> dict[str, str]:
    """Path below `data/` -> MD5 of the version's files.

    They come from the cached listings. If a listing is missing they come from `data/`, if it has that part.
    """
    cache = cache_directory(root)
    files: dict[str, str] = {}
    unlisted = [out for out in outs if out.is_directory and not object_path(cache, out.md5).is_file()]
    current = hash_data(root) if unlisted else {}
    for out in outs:
        if out not in unlisted:
            files |= files_of(cache, [out])
        elif _is_unchanged(out, current):
            files |= {out.file_path(name): md5 for name, md5 in _below(current, out.path_in_data).items()}
        else:
            problem = (
                f"The files of {out.path} ({out.md5}) are not in this clone: neither its listing in the "
                "cache nor the part itself."
            )
            raise DataError(problem, next_step="Type `dreamgym data pull`.")
    return files


def _is_unchanged(out: Out, current: Mapping[str, str]) -> bool:
    """True if `data/` holds exactly this version of the part."""
    if out.is_directory:
        return listing_hash(_below(current, out.path_in_data)) == out.md5
    return current.get(out.path_in_data) == out.md5


def part_hash(root: Path, folder: str, without: Sequence[str] = ()) -> str:
    """The hash that DVC would give to `folder` of the version if it were versioned by itself.

    Other folders do not matter. If neither the cache nor `data/` has the files, it is a hash of the parts'
    hashes.

    Args:
        without: files, and folders whose files are left out, below `folder`.

    Raises:
        DataError: data.dvc is missing or unreadable.
    """
    outs = read_pointer(root / POINTER)
    for out in outs:
        if out.path_in_data == folder and not without:
            return out.md5
    overlapping = [out for out in outs if _overlap(out.path_in_data, folder)]
    try:
        files = _below(_version_files(root, overlapping), folder)
    except DataError:
        files = {out.path_in_data.removeprefix(f"{folder}/"): out.md5 for out in overlapping}
    left_out = {
        relative for relative in files if any(f"{relative}/".startswith(f"{other}/") for other in without)
    }
    return listing_hash({relative: md5 for relative, md5 in files.items() if relative not in left_out})


def _overlap(first: str, second: str) -> bool:
    """True if one of two folders contains the other. The empty path is `data/` itself."""
    return not first or f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")


@dataclass(frozen=True)
class Drift:
    """Differences between `data/` and the version that data.dvc names, as paths below `data/`.

    `changed`: files of the version that `data/` lacks or has with other content.
    `added`: files that only `data/` has, inside a part of the version or as a part of another version.
    `unsaved`: files of `data/` whose content is not in the cache, so that a checkout would lose it.

    A file outside all parts that no version ever had is not listed, because no checkout changes it.
    """

    changed: list[str]
    added: list[str]
    unsaved: list[str]


def drift(root: Path) -> Drift:
    """Compare `data/` with data.dvc by content. It waits for another DVC command that changes them.

    Raises:
        DataError: as `read_pointer`, or the other command takes too long.
    """
    outs = read_pointer(root / POINTER)
    try:
        current = hash_data(root)
        if all(_is_unchanged(out, current) for out in outs) and not _outside_parts(outs, current):
            return Drift([], [], [])
    except FileNotFoundError:
        pass  # another command is replacing files
    with exclusive_dvc_access(root):
        outs = read_pointer(root / POINTER)
        current = hash_data(root)
        cache = cache_directory(root)
        changed_parts = [out for out in outs if not _is_unchanged(out, current)]
        listed_parts = [
            out for out in changed_parts if not out.is_directory or object_path(cache, out.md5).is_file()
        ]
        listed = files_of(cache, listed_parts)
        changed = [relative for relative, md5 in listed.items() if current.get(relative) != md5]
        added = [
            relative
            for out in changed_parts
            for relative in _files_in_part(out, current)
            if relative not in listed
        ]
        replaced = [*(relative for relative in changed if relative in current), *added]
        unsaved = [relative for relative in replaced if not object_path(cache, current[relative]).is_file()]
        return Drift(changed, [*added, *left_over_files(root, outs, current)], unsaved)


def _files_in_part(out: Out, current: Mapping[str, str]) -> list[str]:
    """The files of `data/` that belong to a part."""
    folder = out.path_in_data
    return [
        relative
        for relative in current
        if not folder or relative == folder or relative.startswith(f"{folder}/")
    ]


def _outside_parts(outs: Sequence[Out], current: Mapping[str, str]) -> dict[str, str]:
    in_parts = {relative for out in outs for relative in _files_in_part(out, current)}
    return {relative: md5 for relative, md5 in current.items() if relative not in in_parts}


def left_over_files(root: Path, outs: Sequence[Out], current: Mapping[str, str]) -> list[str]:
    """Files of `data/` that a checkout of another version left: a whole part that the cache has."""
    cache = cache_directory(root)
    parts = current_parts(root, _outside_parts(outs, current), {})
    cached = [
        out for out in parts if object_path(cache, out.md5).is_file() and not missing_objects(cache, [out])
    ]
    return [relative for out in cached for relative in _files_in_part(out, current)]


def missing_files(root: Path) -> list[str]:
    """Files that `data.dvc` names and `data/` lacks, relative to `root`.

    A part whose listing is not in the cache is listed by its own path.
    """
    outs = read_pointer(root / POINTER)
    cache = cache_directory(root)
    listed = [out for out in outs if not out.is_directory or object_path(cache, out.md5).is_file()]
    unlisted = [out for out in outs if out not in listed]
    current = hash_data(root) if unlisted else {}
    missing = [out.path for out in unlisted if not _is_unchanged(out, current)]
    return missing + [
        f"{DATA}/{relative}" for relative in files_of(cache, listed) if not (root / DATA / relative).is_file()
    ]
