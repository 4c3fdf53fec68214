"""The table of a study as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.study.cells import Cell
from components.evaluation.study.study_results import bases_present

REAL_STEPS_EVER = "all real steps: pretraining, logs, online, checks{evaluation}"
"""Column of `real_steps_ever`; it says where it counts the games that evaluate policies, too."""
REACHED = "to reach {base}'s final success: seeds, real steps, time ratio"
AT_LEAST = "≥: those that the backbone read in its pretraining come on top; its card does not say how many."
COLUMNS = (
    "method",
    "success on held-out games",
    "per seed",
    "difference from {base} (paired)",
    "p (Holm)",
    "real steps",
    REAL_STEPS_EVER,
    "dreamed steps",
    "minutes",
    REACHED,
)
LEFT_OUT_IF_EMPTY = (REAL_STEPS_EVER, REACHED)
"""Columns that a table has only if a method has an entry in them."""


def study_table(
    metrics: Mapping[str, Mapping[str, Estimate]],
    cells: Mapping[str, Sequence[Cell]],
    base: str,
    bases: Mapping[str, str] | None = None,
) -> str:
    """Return a table with one row per method; the 95 % intervals cover further games and seeds.

    Lines below the table list crashed and missing cells, and the commits of the finished cells.

    Args:
        metrics: method -> metrics, from `summarise`.
        cells: method -> its cells; a method of `metrics` without cells gets a row that says so.
        base: base method of all methods that are not in `bases`.
        bases: method -> its base method.
    """
    rows = []
    cells = {name: cells.get(name, ()) for name in metrics}
    finished = {name: [cell for cell in own if not cell.crash] for name, own in cells.items()}
    present = bases_present(finished, base, bases or {})
    for name, method_metrics in metrics.items():
        method_base = present[name]
        finished_cells = finished[name]
        base_prefix = "" if method_base == base else f"{method_base}: "
        rows.append(_row(name, method_metrics, finished_cells, base_prefix))
    kept = [
        place
        for place, column in enumerate(COLUMNS)
        if column not in LEFT_OUT_IF_EMPTY or any(row[place] for row in rows)
    ]
    evaluation = " and evaluation" if any(map(_counts_evaluation, metrics.values())) else ""
    heads = [[column.format(base=base, evaluation=evaluation) for column in COLUMNS], ["---"] * len(COLUMNS)]
    lines = [f"| {' | '.join(row[place] for place in kept)} |" for row in (*heads, *rows)]
    ever = COLUMNS.index(REAL_STEPS_EVER)
    if any(row[ever].startswith("≥") for row in rows):
        lines += ["", AT_LEAST]
    problems = _problem_lines(cells)
    commits = Counter(cell.commit[:7] for own in cells.values() for cell in own if cell.commit)
    if problems:
        lines += ["", *problems]
    if commits:
        lines += [
            "",
            f"Commit: {', '.join(f'{commit} ({count} cells)' for commit, count in commits.items())}.",
        ]
    return "\n".join(lines)


def _problem_lines(cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Return one line per crashed cell, then one on the seeds that methods have no cell for.

    The row of a method without any cell says so itself.
    """
    every_cell = [cell for method_cells in cells.values() for cell in method_cells]
    lines = [
        f"- `{cell.method}`, seed {cell.seed}, crashed: {' '.join(cell.crash.split())}"
        for cell in every_cell
        if cell.crash
    ]
    seeds = {cell.seed for cell in every_cell}
    lacking: dict[tuple[int, ...], list[str]] = {}
    for name, method_cells in cells.items():
        if method_cells and (missing := tuple(sorted(seeds - {cell.seed for cell in method_cells}))):
            lacking.setdefault(missing, []).append(f"`{name}`")
    if lacking:
        parts = [
            f"{', '.join(names)} for seed {', '.join(map(str, missing))}"
            for missing, names in lacking.items()
        ]
        lines.append(f"- no cell: {'; '.join(parts)}")
    return lines


def _row(name: str, metrics: Mapping[str, Estimate], cells: Sequence[Cell], base_prefix: str) -> list[str]:
    if not cells:
        return [name, "no finished cell", *[""] * (len(COLUMNS) - 2)]
    rate = metrics["evaluate/success_rate"]
    unseen_families = metrics.get("evaluate/success_rate/held_back")
    difference, ratio = metrics.get("difference/success_rate"), metrics.get("ratio/success_rate")
    success_cell = f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f})"
    if unseen_families:
        success_cell += f", unseen families {unseen_families.value:.3f}"
    difference_cell = ""
    if difference:
        interval = f"{difference.low:+.3f} to {difference.high:+.3f}"
        difference_cell = f"{base_prefix}{difference.value:+.3f} ({interval})"
    if ratio:
        difference_cell += f", ratio {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        not_inferior = metrics.get("ratio/non_inferior")
        if not_inferior and not_inferior.value:
            difference_cell += ", not inferior"
    return [
        name,
        success_cell,
        "; ".join(f"{cell.success:.3f}" for cell in cells),
        difference_cell,
        _format_p_value(metrics.get("difference/p_value")),
        f"{metrics['cost/real_interactions'].value:,.0f}",
        real_steps_ever(metrics),
        f"{metrics['cost/dreamed_interactions'].value:,.0f}",
        f"{metrics['cost/seconds'].value / 60:.1f}",
        _reach_cell(metrics),
    ]


def real_steps_ever(metrics: Mapping[str, Estimate]) -> str:
    """Return the real transitions of all origins; empty if those of the logs are not known.

    Those of games that evaluate policies are counted only where older cells do not tell them from checks.
    """
    if "cost/offline_transitions" not in metrics:
        return ""
    origins = ("pretraining_transitions", "offline_transitions", "real_interactions", "check_interactions")
    known = [metrics[f"cost/{name}"].value for name in origins if f"cost/{name}" in metrics]
    return f"{'' if len(known) == len(origins) else '≥ '}{sum(known):,.0f}"


def _counts_evaluation(metrics: Mapping[str, Estimate]) -> bool:
    return "cost/check_interactions" in metrics and "cost/evaluation_interactions" not in metrics


def _format_p_value(p_value: Estimate | None) -> str:
    if p_value is None:
        return ""
    return "<0.001" if p_value.value < 0.001 else f"{p_value.value:.3f}"


def _reach_cell(metrics: Mapping[str, Estimate]) -> str:
    seeds = metrics.get("reached/seeds")
    if seeds is None:
        return ""
    count = f"{seeds.value:.0f} of {seeds.n}"
    if not seeds.value:
        return count
    real_steps, time_ratio = metrics["reached/real_interactions"], metrics["reached/seconds_ratio"]
    return f"{count}, {real_steps.value:,.0f}, {time_ratio.value:.2f}"
