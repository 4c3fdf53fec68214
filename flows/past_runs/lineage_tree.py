"""Where a policy comes from, as a tree of text and as a picture."""

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
from components.tracking.stage_store.stage_store import RECORD
from flows.printing.output import Output

ENDS = ("sim_to_real", "real_rl", "synthetic_rl", "clone")
"""Stages that make a policy, the last one first."""
KEY_LENGTH = 12
"""Characters of a stage's key that name its directory."""
PARTS_OF_DATA = ("trajectories", "backbone")
"""Ancestors that are named by a DVC hash, which is shown whole."""


def ancestors_of(config: Config, root: Path, policy: str) -> Ancestor:
    """The ancestors of a policy: `champion`, a version, a run's last policy, or the directory of a stage's
    policy.

    Raises:
        DataError, TrackingError: there is no such policy, or no run here made it.
    """
    stage, key = _stage_of(config, root, policy)
    return lineage(root / "runs", stage, key)


def _stage_of(config: Config, root: Path, policy: str) -> tuple[str, str]:
    if policy == "champion" or policy.isdigit():
        return "sim_to_real", _registered(config, root, policy)
    record = next(
        (place / RECORD for place in (Path(policy), Path(policy).parent) if (place / RECORD).is_file()), None
    )
    if record is not None:
        found = json.loads(read_text(record))
        return found["name"], found["key"]
    manifest = Manifest.load(find_run(root / "runs", policy))
    made = {entry.name: entry.key for entry in manifest.stages}
    last = next((stage for stage in ENDS if stage in made), "")
    if not last:
        raise DataError(
            f"Run {manifest.run_id} made no policy.",
            f"It has the stages {', '.join(made) or '(none)'}.",
            "Name another run.",
        )
    return last, made[last]


def _registered(config: Config, root: Path, policy: str) -> str:
    """The stage key of a version in the registry."""
    from components.tracking.mlflow_adapter.tracker import Tracker

    tracker = Tracker(config.tracking, root)
    version = tracker.require_champion() if policy == "champion" else policy
    return str(tracker.version("policy", version)["tags"].get("dreamgym.stage_key", ""))


def print_ancestors(page: Output, found: Ancestor) -> None:
    """The tree, the policy at its root. The JSON is the same tree: each ancestor has its `parents`."""
    page.replace(asdict(found))
    if not page.prints_json:
        _print_branch(page, found, "", "")


def _print_branch(page: Output, ancestor: Ancestor, guide: str, indent: str) -> None:
    """An ancestor behind `guide`, then its facts and parents behind `indent`."""
    key = ancestor.key if ancestor.name in PARTS_OF_DATA else ancestor.key[:KEY_LENGTH]
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


def draw_ancestors(found: Ancestor, path: Path) -> None:
    """A box a stage (name, key, run, commit, version of the replay buffer), the policy at the right, arrows
    from what it was made of.

    What two stages share is drawn once.
    """
    levels = _levels(found)
    figure = blank_figure(2.6 * len(levels), 0.9 + 1.3 * max(len(level) for level in levels))
    axes = figure.add_subplot()
    places: dict[str, tuple[float, float]] = {}
    for column, level in enumerate(reversed(levels)):
        for row, ancestor in enumerate(level.values()):
            places[ancestor.key] = (2.6 * column, (len(level) - 1) / 2 - row)
    for level in levels:
        for ancestor in level.values():
            _draw_box(axes, ancestor, places)
    axes.set_xlim(-1.25, 2.6 * (len(levels) - 1) + 1.25)
    tallest = max(abs(y) for _, y in places.values())
    axes.set_ylim(-tallest - 0.6, tallest + 0.6)
    axes.axis("off")
    save_figure(figure, path)


def _draw_box(axes: Any, ancestor: Ancestor, places: dict[str, tuple[float, float]]) -> None:
    x, y = places[ancestor.key]
    colour = (
        COLOURS["refined"]
        if "policy" in ancestor.name
        else COLOURS["dreamed"]
        if "model" in ancestor.name
        else COLOURS["cloned"]
    )
    box = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
    words = [ancestor.name, ancestor.key[:12], ancestor.run_id, *_facts_in_short(ancestor)]
    text = "\n".join(filter(None, words))
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color=INK, bbox=box, zorder=3)
    for parent in ancestor.parents:
        arrow = {"arrowstyle": "->", "color": MUTED, "linewidth": 1.2, "shrinkA": 52, "shrinkB": 52}
        axes.annotate("", xy=(x, y), xytext=places[parent.key], arrowprops=arrow, zorder=2, color=GRID)


def _facts_in_short(ancestor: Ancestor) -> list[str]:
    """The commit (a star: with changes) and the version of the replay buffer, as far as a box is wide."""
    lines = [path] if (path := ancestor.facts.get("path")) else []
    if commit := ancestor.facts.get("commit"):
        lines.append(f"commit {commit[:12]}{'*' if 'with changes' in commit else ''}")
    if buffer := ancestor.facts.get("replay buffer"):
        lines.append(f"replay {buffer.split()[-1][:12]}")
    return lines


def _levels(found: Ancestor) -> list[dict[str, Ancestor]]:
    """By distance from the policy, the longest way counting: key -> ancestor."""
    depth: dict[str, int] = {}
    every: dict[str, Ancestor] = {}

    def walk(ancestor: Ancestor, level: int) -> None:
        every[ancestor.key] = ancestor
        if level >= depth.get(ancestor.key, 0):
            depth[ancestor.key] = level
        for parent in ancestor.parents:
            walk(parent, level + 1)

    walk(found, 0)
    return [
        {key: every[key] for key, at in depth.items() if at == level}
        for level in range(max(depth.values()) + 1)
    ]
