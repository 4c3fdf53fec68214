"""Figure of the curriculum: proposed task variations by outcome, and tasks by difficulty, per iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluation.report.charts import GRID, INK, MUTED, blank_figure, style_axes, svg_text
from components.experience.tasks.curriculum import DIFFICULTIES

CurriculumHistory = Sequence[Mapping[str, Any]]
"""One entry per iteration, see `Curriculum.life`."""
ACCEPTED = "accepted"
_ACCEPTED_COLOUR = "#12878a"
_REFUSED_COLOURS = (
    *("#d9822b", "#c14953", "#7b61c9", "#9aa5b4", "#5c7cba", "#b8b04a", "#8a6d5c", "#e3a7b4"),
    "#3f3f46",
)
_DIFFICULTY_COLOURS = ("#7a2e3a", "#d9822b", "#f0d58c", "#7fc1a5", "#12878a")
"""One colour per difficulty, from never solved to always solved."""


def curriculum_svg(history: CurriculumHistory) -> str:
    """Return the figure as SVG text."""
    return svg_text(draw_curriculum(history))


def draw_curriculum(history: CurriculumHistory, width_inches: float = 8.2) -> Any:
    """Return a figure with three panels against the iteration.

    They show the proposed candidates by outcome, and the groups of training and of generated tasks by
    difficulty.
    """
    figure = blank_figure(width_inches, 6.6)
    panels = figure.subplots(3, 1, sharex=True)
    reasons = [reason for reason, _ in count_outcomes(history).most_common() if reason != ACCEPTED]
    columns = {ACCEPTED: [float(entry["accepted"]) for entry in history]}
    columns |= {reason: [float(entry["refused"].get(reason, 0)) for entry in history] for reason in reasons}
    refused_colours = [_REFUSED_COLOURS[place % len(_REFUSED_COLOURS)] for place in range(len(reasons))]
    _draw_stacked_bars(panels[0], columns, [_ACCEPTED_COLOUR, *refused_colours], "proposed candidates")
    for axes, kind in zip(panels[1:], ("training", "generated"), strict=True):
        difficulty_columns = {
            difficulty: [float(entry["difficulty"][kind][place]) for entry in history]
            for place, difficulty in enumerate(DIFFICULTIES)
        }
        title = f"{kind} tasks played, by share of successful rollouts"
        _draw_stacked_bars(axes, difficulty_columns, _DIFFICULTY_COLOURS, title)
    panels[-1].set_xlabel("iteration", fontsize=9, color=MUTED)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure


def count_outcomes(history: CurriculumHistory) -> Counter[str]:
    """Return how many candidates had each outcome: accepted, or the reason for the refusal."""
    outcomes = Counter({ACCEPTED: sum(entry["accepted"] for entry in history)})
    for entry in history:
        outcomes.update(entry["refused"])
    return outcomes


def curriculum_summary(history: CurriculumHistory) -> str:
    """Return the totals over all iterations in sentences."""
    outcomes = count_outcomes(history)
    proposed, played, solved = (
        sum(entry[name] for entry in history) for name in ("proposed", "played", "solved")
    )
    refusals = "; ".join(
        f"{reason} {count:,}" for reason, count in outcomes.most_common() if reason != ACCEPTED
    )
    return (
        f"Of {proposed:,} proposed task variations {outcomes[ACCEPTED]:,} were accepted."
        f"{f' Reasons for refusal: {refusals}.' if refusals else ''} "
        f"Generated tasks were played {played:,} times and solved by at least one rollout {solved:,} times."
    )


def _draw_stacked_bars(
    axes: Any, columns: Mapping[str, Sequence[float]], colours: Sequence[str], title: str
) -> None:
    length = len(next(iter(columns.values())))
    bottoms = [0.0] * length
    for (label, values), colour in zip(columns.items(), colours, strict=True):
        axes.bar(range(1, length + 1), values, bottom=bottoms, color=colour, width=0.8, label=label, zorder=2)
        bottoms = [bottom + value for bottom, value in zip(bottoms, values, strict=True)]
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.grid(axis="y", color=GRID, zorder=0)
    axes.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    style_axes(axes)
