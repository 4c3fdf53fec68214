"""What differs between two runs: code, prompts, data, config, packages, machine; only that, in this order.

Two runs that agree in all of it should agree in every number; where they do not, this says where to look
first.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.tracking.data_parts import named_hashes
from components.tracking.manifest import Manifest
from components.tracking.run_environment import Git

PROMPTS = (
    "components/experience/prompts.py",
    "components/experience/teacher.py",
    "components/policy/agent_prompt.py",
    "components/evaluation/judge.py",
)
"""Files that make the texts which models read."""
UNTOLD = ("tracking",)
"""Sections of the config that change no result."""
MOST_FILES = 8


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same: what it is and what either run has."""

    name: str
    first: str
    second: str


def differences(first: Manifest, second: Manifest, root: Path) -> dict[str, list[Difference]]:
    """Section -> what differs in it; sections without a difference are left out. `root` is the repository,
    asked for the code's history.
    """
    found = {
        "code": _code(first, second, root),
        "prompts": _prompts(first, second, root),
        "data": changed_fields(*named_hashes(first, second, root)),
        "config": changed_fields(_told(first.config), _told(second.config)),
        "seeds": changed_fields(first.seeds, second.seeds),
        "packages": changed_fields(first.environment.packages, second.environment.packages),
        "machine": _machine(first, second),
    }
    return {section: entries for section, entries in found.items() if entries}


def _told(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in UNTOLD and name != "seed"}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def changed_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """What differs between two mappings, nested ones compared key by key; `-` where one side has no such
    key.
    """
    first, second = _flat(first), _flat(second)
    names = [*first, *(name for name in second if name not in first)]
    pairs = [(name, first.get(name, "-"), second.get(name, "-")) for name in names]
    return [Difference(name, _plain(one), _plain(other)) for name, one, other in pairs if one != other]


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _machine(first: Manifest, second: Manifest) -> list[Difference]:
    sides = [
        {
            "python": run.environment.python,
            "platform": run.environment.platform,
            **run.environment.hardware.model_dump(),
        }
        for run in (first, second)
    ]
    for side in sides:
        side["memory"] = f"{round(side.pop('memory_bytes') / 2**30)} GiB"
    return changed_fields(*sides)


def _code(first: Manifest, second: Manifest, root: Path) -> list[Difference]:
    one, other = first.environment.git, second.environment.git
    found = changed_fields({"commit": one.commit}, {"commit": other.commit})
    found += changed_fields({"beside the commit": _beside(one)}, {"beside the commit": _beside(other)})
    changed = changed_files(one.commit, other.commit, root)
    if changed:
        more = f" and {len(changed) - MOST_FILES} more" if len(changed) > MOST_FILES else ""
        found.append(
            Difference("files changed between the commits", "", ", ".join(changed[:MOST_FILES]) + more)
        )
    return found


def _beside(git: Git) -> str:
    """What the workspace had beside the commit, but for data.dvc: that is the data's version."""
    if git.code_diff_hash is None:
        return git.diff_hash[:12] or ("uncommitted" if git.dirty else "clean")
    return git.code_diff_hash[:12] or ("uncommitted" if git.left_out else "clean")


def _prompts(first: Manifest, second: Manifest, root: Path) -> list[Difference]:
    changed = changed_files(first.environment.git.commit, second.environment.git.commit, root)
    return [
        Difference(path, first.environment.git.commit[:12], second.environment.git.commit[:12])
        for path in PROMPTS
        if path in changed
    ]


def changed_files(first: str, second: str, root: Path) -> list[str]:
    """Code that differs between two commits: files under components/ and flows/; none where a commit is not
    in this clone.
    """
    if first == second:
        return []
    command = ["git", "-C", str(root), "diff", "--name-only", first, second, "--", "components", "flows"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []
