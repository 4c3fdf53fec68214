"""What a method spends until it reaches the final success rate of the base method with the same seed."""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, mean
from components.evaluation.study.cells import Cell

Point = tuple[float, float]
"""Costs of training so far: (real interactions, seconds)."""


def first_reach_costs(cell: Cell, success: float) -> Point | None:
    """Return the costs at which a policy of the cell first won that share of the held-out games.

    The policies are those evaluated during training and the last one. None if none of them did.
    """
    last = [[*cell.curve[-1][:3], cell.success]] if cell.curve else []
    return next(((point[0], point[2]) for point in [*cell.held_out, *last] if point[3] >= success), None)


def reach_costs_by_seed(cells: Sequence[Cell], base: Sequence[Cell]) -> list[tuple[Point | None, Point]]:
    """Return one pair per seed: the method's and the base's costs to reach the base's final success rate.

    The method's costs are None if it never reaches it. Seeds without held-out evaluations are left out.
    """
    base_ends = {
        cell.seed: (cell.success, costs)
        for cell in base
        if cell.held_out and (costs := first_reach_costs(cell, cell.success))
    }
    return [
        (first_reach_costs(cell, base_ends[cell.seed][0]), base_ends[cell.seed][1])
        for cell in cells
        if cell.held_out and cell.seed in base_ends
    ]


def reach_metrics(cells: Sequence[Cell], base: Sequence[Cell]) -> dict[str, Estimate]:
    """Return the `reached/*` metrics; n counts the seeds that reach the base's final success rate.

    - `reached/seeds`: number of these seeds.
    - `reached/real_interactions`, `reached/seconds`: costs until then.
    - `reached/seconds_ratio`: seconds divided by the base's seconds to the same success rate. Both are the
      costs of the first of several policies that reached it, each evaluated once, so luck plays a part.
    - `reached/step_seconds/even`, `.../third`: additional seconds per real step, over all environments
      together, at which the method needs as long as the base, or a third as long. Only seeds with less than a
      third of the base's real steps count.
    """
    costs_by_seed = reach_costs_by_seed(cells, base)
    reached = [(costs, base_costs) for costs, base_costs in costs_by_seed if costs is not None]
    if not costs_by_seed:
        return {}
    count = float(len(reached))
    metrics = {"reached/seeds": Estimate(count, len(costs_by_seed), count, count)}
    if reached:
        metrics["reached/real_interactions"] = mean([costs[0] for costs, _ in reached])
        metrics["reached/seconds"] = mean([costs[1] for costs, _ in reached])
        metrics["reached/seconds_ratio"] = mean([costs[1] / base_costs[1] for costs, base_costs in reached])
    frugal = [(costs, base_costs) for costs, base_costs in reached if 3 * costs[0] < base_costs[0]]
    for name, factor in (("even", 1), ("third", 3)) if frugal else ():
        metrics[f"reached/step_seconds/{name}"] = mean(
            [
                (factor * costs[1] - base_costs[1]) / (base_costs[0] - factor * costs[0])
                for costs, base_costs in frugal
            ]
        )
    return metrics
