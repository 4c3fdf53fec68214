"""The lineage of a policy, printed as a tree or drawn as a figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from components.config import Config
from components.errors import DataError
from components.evaluation.report.charts import COLOURS, GRID, INK, MUTED, blank_figure
from components.evaluation.study.ablation_figure import save_figure
from components.files import read_text
from components.tracking.lineage import Ancestor, lineage
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run
from components.tracking.stage_store.stage_result import RECORD
from flows.printing.output import Output

POLICY_STAGES = ("sim_to_real", "real_rl", "logged_rl", "synthetic_rl", "clone")
"""Stages that train a policy, the last one first."""
KEY_LENGTH = 12
"""Characters of a stage's key that name its directory."""
DATA_PARTS = ("trajectories", "backbone")
"""Ancestors that are named by a DVC hash, which is shown in full."""


def ancestors_of(config: Config, root: Path, policy: str) -> Ancestor:
    """Return the ancestors of a policy.

    Args:
        policy: `champion`, a version, a run's id (its last policy), or the directory of a stage's policy.

    Raises:
        DataError, TrackingError: there is no such policy, or it is of no run here.
    """
    stage, key = _stage_of(config, root, policy)
    return lineage(root / "runs", stage, key)


def _stage_of(config: Config, root: Path, policy: str) -> tuple[str, str]:
    """Return the name and the key of the stage that trained the policy."""
    if policy == "champion" or policy.isdigit():
        return "sim_to_real", _registered_stage_key(config, root, policy)
    for directory in (Path(policy), Path(policy).parent):
        if (directory / RECORD).is_file():
            record = json.loads(read_text(directory / RECORD))
            return record["name"], record["key"]
    manifest = Manifest.load(find_run(root / "runs", policy))
    keys = {entry.name: entry.key for entry in manifest.stages}
    last = next((stage for stage in POLICY_STAGES if stage in keys), "")
    if not last:
        raise DataError(
            f"Run {manifest.run_id} trained no policy.",
            f"It has the stages {', '.join(keys) or '(none)'}.",
            "Name another run.",
        )
    return last, keys[last]


def _registered_stage_key(config: Config, root: Path, policy: str) -> str:
    """Return the stage key of a registered version."""
    from components.tracking.mlflow_adapter.tracker import Tracker

    tracker = Tracker(config.tracking, root)
    version = tracker.require_champion() if policy == "champion" else policy
    return str(tracker.version("policy", version)["tags"].get("dreamgym.stage_key", ""))


def print_ancestors(page: Output, policy: Ancestor) -> None:
    """Print the tree with the policy at its root. In the JSON each ancestor has its `parents`."""
    page.replace(asdict(policy))
    if not page.prints_json:
        _print_branch(page, policy, "", "")


def _print_branch(page: Output, ancestor: Ancestor, guide: str, indent: str) -> None:
    """Print an ancestor after `guide`, then its facts and parents after `indent`."""
    key = ancestor.key if ancestor.name in DATA_PARTS else ancestor.key[:KEY_LENGTH]
    page.text(
        f"{guide}{ancestor.name} {key}" + (f"  run {ancestor.run_id}" if ancestor.run_id else ""),
        style="bold",
    )
    for name, value in ancestor.facts.items():
        page.text(f"{indent}{'│   ' if ancestor.parents else '    '}{name} {value}", style="dim")
    for parent in ancestor.parents:
        is_last = parent is ancestor.parents[-1]
        _print_branch(
            page, parent, indent + ("└── " if is_last else "├── "), indent + ("    " if is_last else "│   ")
        )


def draw_ancestors(policy: Ancestor, path: Path) -> None:
    """Draw a box for each ancestor, the policy at the right, with arrows from its parents.

    A box has name, key, run, commit and version of the replay buffer. A shared ancestor is drawn once.
    """
    levels = _levels(policy)
    figure = blank_figure(2.6 * len(levels), 0.9 + 1.3 * max(len(level) for level in levels))
    axes = figure.add_subplot()
    positions: dict[str, tuple[float, float]] = {}
    for column, level in enumerate(reversed(levels)):
        for row, ancestor in enumerate(level.values()):
            positions[ancestor.key] = (2.6 * column, (len(level) - 1) / 2 - row)
    for level in levels:
        for ancestor in level.values():
            _draw_box(axes, ancestor, positions)
    axes.set_xlim(-1.25, 2.6 * (len(levels) - 1) + 1.25)
    tallest = max(abs(y) for _, y in positions.values())
    axes.set_ylim(-tallest - 0.6, tallest + 0.6)
    axes.axis("off")
    save_figure(figure, path)


def _draw_box(axes: Any, ancestor: Ancestor, positions: dict[str, tuple[float, float]]) -> None:
    x, y = positions[ancestor.key]
    colour = COLOURS["cloned"]
    if "policy" in ancestor.name:
        colour = COLOURS["refined"]
    elif "model" in ancestor.name:
        colour = COLOURS["dreamed"]
    box = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
    lines = [ancestor.name, ancestor.key[:KEY_LENGTH], ancestor.run_id, *_short_facts(ancestor)]
    text = "\n".join(filter(None, lines))
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color=INK, bbox=box, zorder=3)
    for parent in ancestor.parents:
        arrow = {"arrowstyle": "->", "color": MUTED, "linewidth": 1.2, "shrinkA": 52, "shrinkB": 52}
        axes.annotate("", xy=(x, y), xytext=positions[parent.key], arrowprops=arrow, zorder=2, color=GRID)


def _short_facts(ancestor: Ancestor) -> list[str]:
    """Return the path, the commit (a star: with changes) and the version of the replay buffer, shortened."""
    lines = [path] if (path := ancestor.facts.get("path")) else []
    if commit := ancestor.facts.get("commit"):
        lines.append(f"commit {commit[:12]}{'*' if 'with changes' in commit else ''}")
    if buffer := ancestor.facts.get("replay buffer"):
        lines.append(f"replay {buffer.split()[-1][:12]}")
    return lines


def _levels(policy: Ancestor) -> list[dict[str, Ancestor]]:
    """Return key -> ancestor for each distance from the policy; the longest path counts."""
    depth: dict[str, int] = {}
    by_key: dict[str, Ancestor] = {}

    def walk(ancestor: Ancestor, level: int) -> None:
        by_key[ancestor.key] = ancestor
        if level >= depth.get(ancestor.key, 0):
            depth[ancestor.key] = level
        for parent in ancestor.parents:
            walk(parent, level + 1)

    walk(policy, 0)
    return [
        {key: by_key[key] for key, at in depth.items() if at == level}
        for level in range(max(depth.values()) + 1)
    ]
