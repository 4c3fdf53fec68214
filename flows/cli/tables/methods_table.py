"""Tables of success rates over several runs: `dreamgym pool` and `dreamgym study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flows.printing.formats import interval, rate_cells, rate_columns, share
from flows.printing.output import Output
from flows.printing.table import Column, Table

if TYPE_CHECKING:
    from components.evaluation.metrics.intervals import Estimate
    from components.evaluation.study.cells import Cell


def print_pooled(
    page: Output, rates: Mapping[str, Mapping[str, float]], pooled: Mapping[str, Mapping[str, Any]]
) -> None:
    """Print the success of each run and of all runs together, then the differences between policies.

    Args:
        rates: run -> policy -> success rate.
        pooled: metric name -> pooled estimate.
    """
    columns = [
        Column("policy"),
        *(Column(run, right=True) for run in rates),
        *rate_columns("all runs", 0.95, "games"),
    ]
    rows = []
    for name, entry in pooled.items():
        policy = name.split("/")[1]
        own_rates = [f"{run[policy]:.1%}" if policy in run else "" for run in rates.values()]
        if "_minus_" in policy:
            later, earlier = policy.split("_minus_")
            own_rates = [f"{run[later] - run[earlier]:+.1%}" for run in rates.values()]
            policy = f"{later} minus {earlier}"
        rows.append([policy, *own_rates, *rate_cells(entry)])
    page.table("", Table("The same held-out real games, all runs", columns, rows))
    page.replace({"runs": rates, "pooled": pooled})


def print_study(
    page: Output, cells: Mapping[str, Sequence[Cell]], metrics: Mapping[str, Mapping[str, Estimate]]
) -> None:
    """Print a row for each method, then the cells that crashed; the JSON has all metrics by method.

    A row holds success, its difference from the base method with Holm's p-value, real steps, and minutes of
    training.
    """
    heads = ("success", "95 %", "seeds", "minus base", "p", "steps", "min")
    columns = [Column("method"), *(Column(name, right=True) for name in heads)]
    rows = [_study_row(method, cells.get(method, ()), own) for method, own in metrics.items()]
    page.table("", Table("Held-out real games, by method", columns, rows))
    for cell in (cell for method_cells in cells.values() for cell in method_cells if cell.crash):
        page.text(f"{cell.method}, seed {cell.seed} crashed: {cell.crash}", style="red")
    page.replace(
        {
            method: {metric: estimate.to_json() for metric, estimate in own.items()}
            for method, own in metrics.items()
            if own
        }
    )


def _study_row(method: str, cells: Sequence[Cell], metrics: Mapping[str, Estimate]) -> list[str]:
    values = {metric: estimate.to_json() for metric, estimate in metrics.items()}
    if "evaluate/success_rate" not in values:
        return [method, "-", *[""] * 6]
    rate = values["evaluate/success_rate"]
    seeds = " ".join(f"{cell.success:.2f}" for cell in cells if not cell.crash)
    difference = values.get("difference/success_rate")
    change = ""
    if difference:
        change = f"{difference['value']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"
    tested = values.get("difference/p_value")
    p_value = f"{tested['value']:.3f}" if tested else ""
    steps = f"{values['cost/real_interactions']['value']:,.0f}"
    minutes = f"{values['cost/seconds']['value'] / 60:.0f}"
    return [method, share(rate), interval(rate), seeds, change, p_value, steps, minutes]
