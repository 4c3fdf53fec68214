"""Hashes of the parts of `data/` that a run started from, and of a part's files, for `compare` and `lineage`.

A part is what data.dvc names: `data/alfworld/trajectories` has the training and the fidelity trajectories
as two files, `data/alfworld/backbone` the model that fine-tuning starts from. An older manifest has one hash
for all of `data/`; its parts come from the listing in DVC's cache, where that still is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.config import Config
from components.errors import DataError
from components.tracking.manifest import DataLineage, Manifest
from components.trajectories.dvc.dvc_cache import cache_directory, listing_hash, read_listing
from components.trajectories.dvc.pointer import DATA, part_of
from components.trajectories.dvc.snapshots import part_hash
from components.trajectories.store import DataLayout

MOST_FILES = 3
"""A part with more changed files is one row: its own hash, without those of its files."""


def part_hashes(data: DataLineage, root: Path) -> dict[str, str]:
    """Path -> hash of each part that the run started from; empty where only the hash of `data/` is known."""
    if DATA not in data.version_in():
        return dict(data.parts_in)
    parts: dict[str, dict[str, str]] = {}
    for relative, md5 in files_of_part(root, data.version_in()[DATA]).items():
        part = part_of(relative)
        parts.setdefault(part, {})[relative.removeprefix(f"{part[len(DATA) + 1 :]}/")] = md5
    return {part: _part_hash(part, files) for part, files in sorted(parts.items())}


def _part_hash(part: str, files: Mapping[str, str]) -> str:
    """Of a part that is a file, its name below `data/` is the only one in `files`."""
    return files.get(part[len(DATA) + 1 :]) or listing_hash(dict(files))


def files_of_part(root: Path, digest: str) -> dict[str, str]:
    """Path below the part -> MD5 of each file; empty for a part that is a file, or has no cached listing."""
    try:
        return read_listing(cache_directory(root), digest) if digest.endswith(".dir") else {}
    except DataError:
        return {}


def named_hashes(first: Manifest, second: Manifest, root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Of either run: the hash of the whole version, and of each part and file that differs.

    The parts of the worlds that the runs are of come first.
    """
    sides = [{"dvc_in": run.data.dvc_in} for run in (first, second)]
    one, other = (part_hashes(run.data, root) for run in (first, second))
    if one and other:
        worlds = tuple(f"{DATA}/{world_of(run)}/" for run in (first, second))
        for path in sorted({*one, *other}, key=lambda path: (not path.startswith(worlds), path)):
            if one.get(path) != other.get(path):
                _add_part(sides, path, [one.get(path, ""), other.get(path, "")], root)
    return sides[0], sides[1]


def _add_part(sides: list[dict[str, str]], path: str, hashes: list[str], root: Path) -> None:
    """Put the part's hashes into both sides, and those of its files that differ if they are few."""
    listings = [files_of_part(root, digest) for digest in hashes]
    changed = sorted({name for name, _ in listings[0].items() ^ listings[1].items()})
    names = changed if all(listings) and len(changed) <= MOST_FILES else []
    for side, digest, files in zip(sides, hashes, listings, strict=True):
        own = {path: digest} | {f"{path}/{name}": files.get(name, "") for name in names}
        side.update({name: md5 for name, md5 in own.items() if md5})


def world_of(run: Manifest) -> str:
    """The name of the environment that the run is of, which is also its folder of `data/`."""
    return str(_section(run, "environment").get("name", ""))


def backbone_path(run: Manifest, *, experience: bool) -> str:
    """The model that fine-tuning started from: a path below the repository, or as the config has it."""
    own = str(_section(run, "experience_model").get("path") or "") if experience else ""
    return own or str(_section(run, "backbone").get("path") or "") or f"{DATA}/{world_of(run)}/backbone"


def _section(run: Manifest, name: str) -> Mapping[str, Any]:
    section = run.config.get(name)
    return section if isinstance(section, Mapping) else {}


def trajectories_hash(config: Config, root: Path) -> str:
    """The DVC hash of the offline trajectories of the config's environment, without the replay log of RL."""
    layout = DataLayout.of(root, config.environment.name)
    return part_hash(root, layout.trajectories("train").parent.relative_to(layout.root.parent).as_posix())
