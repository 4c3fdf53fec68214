"""Hashes of the parts of `data/` that a run started from, and of a part's files, for `compare` and `lineage`.

A part is a path that data.dvc names. `data/alfworld/trajectories` has the training and the fidelity
trajectories as two files; `data/alfworld/backbone` is the model that fine-tuning starts from. An older
manifest has one hash for all of `data/`. Its parts come from the listing in DVC's cache, if it still exists.
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

MAX_LISTED_FILES = 3
"""A part with more changed files than this is one row with its own hash."""


def part_hashes(data: DataLineage, root: Path) -> dict[str, str]:
    """Path -> hash of each part that the run started from; empty if only the hash of `data/` is known."""
    if DATA not in data.version_in():
        return dict(data.parts_in)
    parts: dict[str, dict[str, str]] = {}
    for relative, md5 in files_of_part(root, data.version_in()[DATA]).items():
        part = part_of(relative)
        parts.setdefault(part, {})[relative.removeprefix(f"{part[len(DATA) + 1 :]}/")] = md5
    return {part: _part_hash(part, files) for part, files in sorted(parts.items())}


def _part_hash(part: str, files: Mapping[str, str]) -> str:
    """Hash of a part. If the part is a file, `files` has only its own path below `data/`."""
    return files.get(part[len(DATA) + 1 :]) or listing_hash(dict(files))


def files_of_part(root: Path, digest: str) -> dict[str, str]:
    """Path below the part -> MD5 of each file; empty if the part is a file or has no cached listing."""
    try:
        return read_listing(cache_directory(root), digest) if digest.endswith(".dir") else {}
    except DataError:
        return {}


def named_hashes(first: Manifest, second: Manifest, root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Hashes of both runs: of the whole version, and of each part and file that differs.

    Parts of the runs' environments come first.
    """
    sides = [{"dvc_in": run.data.dvc_in} for run in (first, second)]
    first_parts = part_hashes(first.data, root)
    second_parts = part_hashes(second.data, root)
    if first_parts and second_parts:
        folders = tuple(f"{DATA}/{environment_name(run)}/" for run in (first, second))
        for path in sorted(
            {*first_parts, *second_parts}, key=lambda path: (not path.startswith(folders), path)
        ):
            if first_parts.get(path) != second_parts.get(path):
                _add_part(sides, path, [first_parts.get(path, ""), second_parts.get(path, "")], root)
    return sides[0], sides[1]


def _add_part(sides: list[dict[str, str]], path: str, hashes: list[str], root: Path) -> None:
    """Add the part's hashes to both sides, and the hashes of its differing files if they are few."""
    listings = [files_of_part(root, digest) for digest in hashes]
    changed = sorted({name for name, _ in listings[0].items() ^ listings[1].items()})
    names = changed if all(listings) and len(changed) <= MAX_LISTED_FILES else []
    for side, digest, files in zip(sides, hashes, listings, strict=True):
        hashes_of_side = {path: digest} | {f"{path}/{name}": files.get(name, "") for name in names}
        side.update({name: md5 for name, md5 in hashes_of_side.items() if md5})


def environment_name(run: Manifest) -> str:
    """Name of the run's environment, which is also the name of its folder in `data/`."""
    return str(_section(run, "environment").get("name", ""))


def backbone_path(run: Manifest, *, experience: bool) -> str:
    """Path of the model that fine-tuning started from, below the repository or as the config has it.

    Args:
        experience: True for the experience model, False for the policy.
    """
    experience_path = str(_section(run, "experience_model").get("path") or "") if experience else ""
    shared_path = str(_section(run, "backbone").get("path") or "")
    return experience_path or shared_path or f"{DATA}/{environment_name(run)}/backbone"


def _section(run: Manifest, name: str) -> Mapping[str, Any]:
    section = run.config.get(name)
    return section if isinstance(section, Mapping) else {}


def trajectories_hash(config: Config, root: Path) -> str:
    """DVC hash of the offline trajectories of the config's environment, without RL's replay log."""
    layout = DataLayout.of(root, config.environment.name)
    return part_hash(root, layout.trajectories("train").parent.relative_to(layout.root.parent).as_posix())
