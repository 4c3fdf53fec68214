"""The table of a study as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.study.study_results import Cell

COLUMNS = (
    "method",
    "success on held-out games",
    "seed by seed",
    "beside {base} (paired)",
    "p (Holm)",
    "real steps",
    "dreamed steps",
) + ("minutes", "to {base}'s end: seeds, real steps, its time")


def study_table(
    metrics: Mapping[str, Mapping[str, Estimate]],
    cells: Mapping[str, Sequence[Cell]],
    base: str,
    bases: Mapping[str, str] | None = None,
) -> str:
    """One row a method; intervals of 95 % for further games and seeds.

    Below it: cells that crashed or were not made, and the commits that made the others.

    Args: bases: what some methods are compared with, in place of `base`.
    """
    rows = [[column.format(base=base) for column in COLUMNS], ["---"] * len(COLUMNS)]
    for name, own in metrics.items():
        other = (bases or {}).get(name, base)
        rows.append(
            _row(
                name,
                own,
                [cell for cell in cells[name] if not cell.crash],
                "" if other == base else f"{other}: ",
            )
        )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    every = [cell for name in metrics for cell in cells[name]]
    crashed = [
        f"- `{cell.method}`, seed {cell.seed}, crashed: {' '.join(cell.crash.split())}"
        for cell in every
        if cell.crash
    ]
    seeds = {cell.seed for cell in every}
    lacking = {name: sorted(seeds - {cell.seed for cell in cells[name]}) for name in metrics}
    crashed += [
        f"- `{name}`: no cell of seed {', '.join(map(str, missing))}"
        for name, missing in lacking.items()
        if missing
    ]
    commits = Counter(cell.commit[:7] for cell in every if cell.commit)
    made = (
        [f"Made at commit {', '.join(f'{name} ({count} cells)' for name, count in commits.items())}."]
        if commits
        else []
    )
    return "\n".join([*lines, *(["", *crashed] if crashed else []), *(["", *made] if made else [])])


def _row(name: str, own: Mapping[str, Estimate], cells: Sequence[Cell], other: str) -> list[str]:
    if not cells:
        return [name, "no cell was finished", *[""] * (len(COLUMNS) - 2)]
    rate, change, ratio = (
        own["evaluate/success_rate"],
        own.get("difference/success_rate"),
        own.get("ratio/success_rate"),
    )
    beside = f"{other}{change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f})" if change else ""
    beside += f", {ratio.value:.2f} of it ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""
    held_back = own.get("evaluate/success_rate/held_back")
    return [
        name,
        f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f})"
        + (f", families held back {held_back.value:.3f}" if held_back else ""),
        "; ".join(f"{cell.success:.3f}" for cell in cells),
        beside,
        _p_value(own["difference/p_value"].value) if change else "",
        f"{own['cost/real_interactions'].value:,.0f}",
        f"{own['cost/dreamed_interactions'].value:,.0f}",
        f"{own['cost/seconds'].value / 60:.1f}",
        _reached(own),
    ]


def _p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _reached(own: Mapping[str, Estimate]) -> str:
    seeds = own.get("reached/seeds")
    if seeds is None:
        return ""
    came = f"{seeds.value:.0f} of {seeds.n}"
    if not seeds.value:
        return came
    return f"{came}, {own['reached/real_interactions'].value:,.0f}, {own['reached/seconds_ratio'].value:.2f}"
