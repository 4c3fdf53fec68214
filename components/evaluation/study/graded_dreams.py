"""Which measure of a dream predicts the real success of the policy that was trained in it?

The cells of dreams of graded quality: less data, or a share of outcomes or next states learnt wrong. Each
measure of such a dream is ranked against the success of its policy on held-out games (Spearman's rank
correlation).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.charts import COLOURS, INK, blank_figure, style_axes
from components.evaluation.study.cells import Cell

PREFIX = "graded-"
"""Methods of dreams of graded quality begin so."""
MEASURES = {
    "fidelity/next_state_exact/determined": "states exact, held-out",
    "fidelity/reward_precision": "rewards precise, held-out",
    "fidelity/reward_recall": "rewards recalled, held-out",
    "fidelity/as_used/reward_precision": "rewards precise, as RL uses it",
    "fidelity/policy_reward_precision/dreamed": "rewards precise, policy's steps",
    "fidelity/rollout_agreement/dreamed": "dreamed successes confirmed",
    "fidelity/kindness/dreamed": "success dreamed minus real",
}
"""Measure -> its name in the figure; kindness is expected to go down with success, all others up."""
KINDS = {"steps": "less data", "flipped": "outcomes wrong", "swapped": "states wrong", "full": "full dream"}
"""Ending of a method's name -> what is graded."""
MIN_CELLS = 4
"""Fewer cells with a measure are not ranked."""
DRAWS = 2000

Cells = Mapping[str, Sequence[Cell]]
"""Method -> its cells."""


def measures_against_success(cells: Cells) -> dict[str, Estimate]:
    """Return `spearman/<measure>`: rank correlation with success, with a bootstrap interval over the dreams.

    A dream is drawn with all its seeds, which share its data.
    """
    grades = _finished(cells)
    correlations = {
        f"spearman/{measure}": correlation_with_success([_points(own, measure) for own in grades.values()])
        for measure in MEASURES
    }
    return {name: found for name, found in correlations.items() if found is not None}


def correlation_with_success(dreams: Sequence[Sequence[tuple[float, float]]]) -> Estimate | None:
    """Return Spearman's rank correlation, with a 95 % bootstrap interval over the dreams.

    Args:
        dreams: (measure, success) of each dream's cells, which are drawn together.

    Returns:
        None if there are fewer than `MIN_CELLS` cells, or one side has a single value.
    """
    points = [own for own in dreams if own]
    count = sum(map(len, points))
    if count < MIN_CELLS:
        return None
    rng = random.Random(0)
    drawn = [_rank_correlation(rng.choices(points, k=len(points))) for _ in range(DRAWS)]
    kept = sorted(value for value in drawn if not math.isnan(value))
    value = _rank_correlation(points)
    if not kept or math.isnan(value):
        return None
    low, high = (kept[round(share * (len(kept) - 1))] for share in (0.025, 0.975))
    return Estimate(value, count, low, high)


def draw_graded_dreams(cells: Cells) -> Any:
    """Return one panel a measure: real success against the measure, one point a cell, coloured by kind."""
    grades = _finished(cells)
    correlations = measures_against_success(cells)
    columns = 4
    rows = -(-len(MEASURES) // columns)
    figure = blank_figure(3.0 * columns, 2.7 * rows)
    palette = dict(zip(KINDS, ("dreamed", "refined", "cloned", "real"), strict=True))
    for place, (measure, title) in enumerate(MEASURES.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for kind, label in KINDS.items():
            points = [
                point
                for method, own in grades.items()
                if method.endswith(f"-{kind}")
                for point in _points(own, measure)
            ]
            if points:
                colour = COLOURS.get(palette[kind], INK)
                axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=4.5, label=label)
        found = correlations.get(f"spearman/{measure}")
        rank = f"\nrank correlation {found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else ""
        axes.set_title(f"{title}{rank}", loc="left", fontsize=8, color=INK)
        axes.set_ylim(bottom=0)
        if (place - 1) % columns == 0:
            axes.set_ylabel("success on real games", fontsize=8.5)
        style_axes(axes)
    figure.axes[0].legend(fontsize=7, frameon=False)
    return figure


def has_graded_dreams(cells: Cells) -> bool:
    """Whether any cell of a graded dream is finished."""
    return bool(_finished(cells))


def _finished(cells: Cells) -> dict[str, list[Cell]]:
    finished = {
        method: [cell for cell in own if not cell.crash]
        for method, own in cells.items()
        if method.startswith(PREFIX)
    }
    return {method: own for method, own in finished.items() if own}


def _points(cells: Sequence[Cell], measure: str) -> list[tuple[float, float]]:
    """Return (measure, success) of the cells that have the measure."""
    return [(cell.figures[measure], cell.success) for cell in cells if measure in cell.figures]


def _rank_correlation(points: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return Spearman's correlation of all points; NaN where one side has a single value."""
    from scipy.stats import rankdata  # the import takes a second, and few callers need it

    pairs = [pair for own in points for pair in own]
    one, other = (rankdata([pair[side] for pair in pairs]) for side in (0, 1))
    one, other = one - one.mean(), other - other.mean()
    size = math.sqrt(float((one @ one) * (other @ other)))
    return float(one @ other) / size if size else math.nan
