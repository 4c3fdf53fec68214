"""The curriculum's life as a picture: what it proposed, what became of that, and how hard the tasks of each
iteration were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluation.report.charts import GRID, INK, MUTED, blank_figure, quiet_axes, svg_text
from components.experience.curriculum import DIFFICULTIES

Life = Sequence[Mapping[str, Any]]
ACCEPTED = "accepted"
GREEN, REASONS = (
    "#12878a",
    ("#d9822b", "#c14953", "#7b61c9", "#9aa5b4", "#5c7cba", "#b8b04a", "#8a6d5c", "#e3a7b4", "#3f3f46"),
)
LEVELS = ("#7a2e3a", "#d9822b", "#f0d58c", "#7fc1a5", "#12878a")
"""One colour a difficulty, from never won to always won."""


def curriculum_svg(life: Life) -> str:
    """The picture as SVG text. Args: life: see `Curriculum.life`."""
    return svg_text(draw_curriculum(life))


def draw_curriculum(life: Life, width_inches: float = 8.2) -> Any:
    """Three panels against the iteration: candidates by what became of them; groups by difficulty, training
    and generated tasks.
    """
    figure = blank_figure(width_inches, 6.6)
    panels = figure.subplots(3, 1, sharex=True)
    reasons = [reason for reason, _ in fates(life).most_common() if reason != ACCEPTED]
    columns = {ACCEPTED: [float(entry["accepted"]) for entry in life]}
    columns |= {reason: [float(entry["refused"].get(reason, 0)) for entry in life] for reason in reasons}
    colours = [GREEN, *(REASONS[place % len(REASONS)] for place in range(len(reasons)))]
    _stacked(panels[0], columns, colours, "candidates proposed")
    for axes, kind in zip(panels[1:], ("training", "generated"), strict=True):
        levels = {
            level: [float(entry["difficulty"][kind][place]) for entry in life]
            for place, level in enumerate(DIFFICULTIES)
        }
        _stacked(axes, levels, LEVELS, f"{kind} tasks played, by how many of their rollouts won")
    panels[-1].set_xlabel("iteration", fontsize=9, color=MUTED)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure


def fates(life: Life) -> Counter[str]:
    """What became of all candidates: accepted, or why not -> how many."""
    found = Counter({ACCEPTED: sum(entry["accepted"] for entry in life)})
    for entry in life:
        found.update(entry["refused"])
    return found


def told(life: Life) -> str:
    """The whole life in two sentences."""
    found, proposed = fates(life), sum(entry["proposed"] for entry in life)
    refused = "; ".join(
        f"{reason} {number:,}" for reason, number in found.most_common() if reason != ACCEPTED
    )
    played, solved = (sum(entry[name] for entry in life) for name in ("played", "solved"))
    return (
        f"Of {proposed:,} proposed variations {found[ACCEPTED]:,} were "
        f"accepted{f' (not: {refused})' if refused else ''}. "
        f"Generated tasks were played {played:,} times, and {solved:,} times won at least once."
    )


def _stacked(axes: Any, columns: Mapping[str, Sequence[float]], colours: Sequence[str], title: str) -> None:
    length = len(next(iter(columns.values())))
    below = [0.0] * length
    for (label, values), colour in zip(columns.items(), colours, strict=True):
        axes.bar(range(1, length + 1), values, bottom=below, color=colour, width=0.8, label=label, zorder=2)
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.grid(axis="y", color=GRID, zorder=0)
    axes.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    quiet_axes(axes)
