"""Differences between two runs: code, prompts, data, config, seeds, packages and machine, in this order.

Two runs without a difference should have the same numbers.
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
    "components/experience/formats/chat_world.py",
    "components/experience/formats/compact_world.py",
    "components/experience/prompted_model.py",
    "components/experience/teachers/llm_teacher.py",
    "components/experience/teachers/self_teacher.py",
    "components/policy/formats/chat_agent.py",
    "components/policy/formats/compact_agent.py",
    "components/evaluation/judge.py",
)
"""Files that define the texts which models read."""
SECTIONS_WITHOUT_EFFECT = ("tracking",)
"""Sections of the config that change no result."""
MAX_LISTED_FILES = 8


@dataclass(frozen=True)
class Difference:
    """One difference: its name and the values of both runs."""

    name: str
    first: str
    second: str


def differences(first: Manifest, second: Manifest, root: Path) -> dict[str, list[Difference]]:
    """Section -> its differences; sections without a difference are left out.

    Args:
        root: the repository, for the history of the code.
    """
    sections = {
        "code": _code(first, second, root),
        "prompts": _prompts(first, second, root),
        "data": changed_fields(*named_hashes(first, second, root)),
        "config": changed_fields(_relevant_config(first), _relevant_config(second)),
        "seeds": changed_fields(first.seeds, second.seeds),
        "packages": changed_fields(first.environment.packages, second.environment.packages),
        "machine": _machine(first, second),
    }
    return {section: entries for section, entries in sections.items() if entries}


def _relevant_config(run: Manifest) -> dict[str, Any]:
    left_out = (*SECTIONS_WITHOUT_EFFECT, "seed")  # seeds are a section of their own
    return {name: value for name, value in run.config.items() if name not in left_out}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_nested = isinstance(value, Mapping)
        flat |= _flatten(value, f"{prefix}{name}.") if is_nested else {f"{prefix}{name}": value}
    return flat


def changed_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Differences of two mappings. Nested ones are compared key by key; `-` stands for a missing key."""
    first_flat = _flatten(first)
    second_flat = _flatten(second)
    names = [*first_flat, *(name for name in second_flat if name not in first_flat)]
    pairs = [(name, first_flat.get(name, "-"), second_flat.get(name, "-")) for name in names]
    return [Difference(name, _as_text(one), _as_text(other)) for name, one, other in pairs if one != other]


def _as_text(value: Any) -> str:
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
    first_git = first.environment.git
    second_git = second.environment.git
    entries = changed_fields(
        {"commit": first_git.commit, "uncommitted changes": _uncommitted_changes(first_git)},
        {"commit": second_git.commit, "uncommitted changes": _uncommitted_changes(second_git)},
    )
    changed = changed_files(first_git.commit, second_git.commit, root)
    if changed:
        more = f" and {len(changed) - MAX_LISTED_FILES} more" if len(changed) > MAX_LISTED_FILES else ""
        entries.append(
            Difference("files changed between the commits", "", ", ".join(changed[:MAX_LISTED_FILES]) + more)
        )
    return entries


def _uncommitted_changes(git: Git) -> str:
    """Hash of the workspace's uncommitted changes, without data.dvc, which is the version of the data."""
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
    """Files under components/ and flows/ that differ between two commits.

    Empty if a commit is not in this clone.
    """
    if first == second:
        return []
    command = ["git", "-C", str(root), "diff", "--name-only", first, second, "--", "components", "flows"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []
