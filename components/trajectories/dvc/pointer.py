"""Read and write `data.dvc`, which names the parts of a version of `data/` and their hashes.

One file names all parts, so that one commit changes them together. A part (`Out`) is a path two levels below
`data/`: `data/alfworld/trajectories`, `data/alfworld/backbone`, `data/backbones/qwen`. Its hash shows whether
that part changed. A file with the single part `data` can also be read. Earlier versions of this project and
`dvc add data` write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from components.config.reading.yaml_tree import YamlRefused, parse_yaml
from components.errors import DataError
from components.files import read_text, write_text

POINTER = "data.dvc"
DATA = "data"
PART_DEPTH = 2
"""Levels below `data/` at which a part begins."""
_HASH = re.compile(r"[0-9a-f]{32}(\.dir)?")
_STANDARD_KEYS = ("md5", "size", "nfiles", "hash", "path")


@dataclass(frozen=True)
class Out:
    """One part of a version.

    `path` is relative to the repository. `md5` is DVC's hash, `size` in bytes, `files` the number of files,
    and `options` has further keys of data.dvc.
    """

    path: str
    md5: str
    size: int = 0
    files: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        """True if the hash is the hash of a directory's listing."""
        return self.md5.endswith(".dir")

    @property
    def path_in_data(self) -> str:
        """The part's path below `data/`; empty for `data` itself."""
        return self.path[len(DATA) + 1 :]

    def file_path(self, name: str = "") -> str:
        """The path below `data/` of the file `name` of this part."""
        return "/".join(part for part in (self.path_in_data, name) if part)


def read_pointer(path: Path) -> tuple[Out, ...]:
    """The parts that a `data.dvc` names.

    Raises:
        DataError: the file is missing, unreadable, in a merge conflict, or names a path outside `data/`.
    """
    if not path.is_file():
        next_step = f"Type `git checkout {path.name}`, or `dreamgym collect`."
        raise DataError(f"There is no {path}.", "It names the version of data/.", next_step)
    try:
        text = read_text(path)
    except UnicodeDecodeError as error:
        raise _unreadable(str(path), error) from None
    return parse_pointer(text, str(path))


def parse_pointer(text: str, source: str) -> tuple[Out, ...]:
    """The parts that the text of a `data.dvc` names.

    Args:
        source: where the text comes from, for messages.

    Raises:
        DataError: as `read_pointer`.
    """
    if re.search(r"^<{7} ", text, re.MULTILINE):
        choice = f"Type `git checkout --ours {POINTER}` or `git checkout --theirs {POINTER}`"
        raise DataError(
            f"{source} is in a merge conflict.",
            "Expected one version of data/.",
            f"{choice}, then `git add {POINTER}` and `dvc checkout`.",
        )
    try:
        parse_yaml(text)  # refuses a repeated key, of which PyYAML keeps the last
        content = yaml.safe_load(text)
        if content.get("wdir", ".") != "." or content.get("deps") or "cmd" in content:
            raise ValueError("it is not a plain list of outs")
        outs = tuple(_parse_out(entry) for entry in content["outs"])
        if not outs or len({out.path for out in outs}) != len(outs):
            raise ValueError("it names no path, or one path twice")
        return tuple(sorted(outs, key=lambda out: out.path))
    except (
        yaml.YAMLError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise _unreadable(source, error) from None


def _parse_out(entry: Mapping[str, Any]) -> Out:
    digest = entry["md5"]
    path = entry["path"]
    size = entry["size"]
    files = entry["nfiles"] if str(digest).endswith(".dir") else 1
    parts = path.split("/")
    if not _HASH.fullmatch(digest) or parts[0] != DATA or {"", ".", ".."} & set(parts):
        raise ValueError(entry)
    if not all(type(number) is int and number >= 0 for number in (size, files)):
        raise ValueError(entry)
    return Out(
        path, digest, size, files, {key: value for key, value in entry.items() if key not in _STANDARD_KEYS}
    )


def _unreadable(source: str, error: Exception) -> DataError:
    reason = str(error) if isinstance(error, YamlRefused) else type(error).__name__
    problem = f"{source} does not name a version of data/ ({reason})."
    return DataError(
        problem,
        "Expected the paths below data/ and their hashes, as DVC writes them.",
        f"Type `git checkout {POINTER}`.",
    )


def pointer_text(outs: Iterable[Out]) -> str:
    """The text of a `data.dvc` with these parts, in DVC's format. The same parts give the same text."""
    entries = []
    for out in sorted(outs, key=lambda out: out.path):
        file_count = {"nfiles": out.files} if out.is_directory else {}
        entries.append(
            {"md5": out.md5, "size": out.size, **file_count, "hash": "md5", "path": out.path, **out.options}
        )
    return yaml.safe_dump({"outs": entries}, sort_keys=False)


def write_pointer(path: Path, outs: Iterable[Out]) -> None:
    """Replace a `data.dvc` atomically.

    Raises:
        DataError: the disk refuses.
    """
    write_text(path, pointer_text(outs))


def part_of(relative: str) -> str:
    """The part that a file belongs to.

    Args:
        relative: the file's path below `data/`.
    """
    return "/".join((DATA, *relative.split("/")[:PART_DEPTH]))


def hashes_of(outs: Iterable[Out]) -> dict[str, str]:
    """Path -> hash of each part."""
    return {out.path: out.md5 for out in outs}


@dataclass(frozen=True)
class PartChange:
    """One part that differs between two versions; None if a version lacks it."""

    path: str
    before: Out | None
    after: Out | None


def changed_parts(before: Sequence[Out], after: Sequence[Out]) -> list[PartChange]:
    """The parts that differ between two versions, sorted by path."""
    old_parts = {out.path: out for out in before}
    new_parts = {out.path: out for out in after}
    changes = []
    for path in sorted({*old_parts, *new_parts}):
        old = old_parts.get(path)
        new = new_parts.get(path)
        if old is None or new is None or old.md5 != new.md5:
            changes.append(PartChange(path, old, new))
    return changes
