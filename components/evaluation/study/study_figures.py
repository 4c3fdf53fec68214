"""Figures of a study: success against real interactions, learning curves, costs, ablations, transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.charts import INK, blank_figure, style_axes
from components.evaluation.report.curriculum_figure import draw_curriculum
from components.evaluation.study.ablation_figure import draw_estimate_bars, save_figure
from components.evaluation.study.cells import Cell
from components.evaluation.study.graded_dreams import PREFIX, draw_graded_dreams, has_graded_dreams
from components.evaluation.study.learning_curves import draw_learning_curves
from components.evaluation.study.method_style import method_colour, method_label_offset
from components.evaluation.study.reach_costs import reach_costs_by_seed

Metrics = Mapping[str, Mapping[str, Estimate]]
"""Method -> its metrics."""
SUCCESS_RATE = "evaluate/success_rate"
ABLATED = ("dream-gigpo", "no-retrieval", "no-reasoning", "no-history", "no-curriculum")
"""The full method and its ablations."""


def draw_study(
    metrics: Metrics, cells: Mapping[str, Sequence[Cell]], base: str, directory: Path, suffix: str = ".png"
) -> list[Path]:
    """Draw all figures for which the study has methods, and return their paths.

    Args:
        metrics: method -> metrics, from `summarise`.
        cells: method -> its cells.
        base: method that the costs are compared with.
        directory: where the files `study-<name><suffix>` are written.
        suffix: file format.
    """
    finished = {
        name: [cell for cell in method_cells if not cell.crash] for name, method_cells in cells.items()
    }
    finished = {name: method_cells for name, method_cells in finished.items() if method_cells}
    methods = [
        name for name in finished if not name.startswith(("transfer-", PREFIX)) and name not in ABLATED[1:]
    ]
    figures = {
        "success": _draw_success(metrics, finished, methods),
        "curves": draw_learning_curves(finished, methods),
    }
    if any(cell.real_interactions for name in methods for cell in finished[name]):
        figures["interactions"] = _draw_interactions(metrics, methods)
    histories = [
        cell.curriculum
        for name in ("dream-gigpo", "dream-ppo")
        for cell in finished.get(name, [])
        if cell.curriculum
    ]
    if histories:
        figures["curriculum"] = draw_curriculum(histories[0])
    if base in finished:
        figures["cost"] = _draw_costs(finished, methods, base)
    ablated = [name for name in ABLATED if name in finished]
    if len(ablated) > 1:
        figures["ablations"] = _draw_ablations(metrics, ablated)
    transfer_methods = [name for name in finished if name.startswith("transfer-")]
    if transfer_methods:
        all_family_methods = [name for name in finished if f"transfer-{name}" in transfer_methods]
        figures["transfer"] = _draw_transfer(metrics, [*transfer_methods, *all_family_methods], finished)
    if has_graded_dreams(finished):
        figures["graded-dreams"] = draw_graded_dreams(finished)
    paths = []
    for name, figure in figures.items():
        path = directory / f"study-{name}{suffix}"
        save_figure(figure, path)
        paths.append(path)
    return paths


def _draw_success(metrics: Metrics, cells: Mapping[str, Sequence[Cell]], methods: Sequence[str]) -> Any:
    """Return one panel: each method's success with its interval, and a mark for each seed."""
    figure = blank_figure(7.2, 0.7 + 0.36 * len(methods))
    axes = figure.add_subplot()
    _draw_method_bars(axes, metrics, methods, SUCCESS_RATE)
    for row, method in enumerate(methods):
        values = [cell.success for cell in cells[method]]
        axes.plot(values, [row] * len(values), "|", color="white", markersize=8, zorder=4)
    axes.set_xlabel("success on held-out real games", fontsize=9)
    return figure


def _draw_interactions(metrics: Metrics, methods: Sequence[str]) -> Any:
    figure = blank_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for method in methods:
        rate = metrics[method][SUCCESS_RATE]
        interactions = metrics[method]["cost/real_interactions"].value
        axes.errorbar(
            [interactions],
            [rate.value],
            yerr=[[rate.value - rate.low], [rate.high - rate.value]],
            marker="o",
            color=method_colour(method),
            capsize=3,
        )
        axes.annotate(
            method,
            (interactions, rate.value),
            textcoords="offset points",
            xytext=(7, method_label_offset(method)),
            fontsize=8.5,
            color=INK,
        )
    axes.set_xscale("symlog", linthresh=1000)
    axes.set_xlim(left=-150)
    axes.set_ylim(0, 1)
    axes.set_xlabel("real interactions spent on training", fontsize=9)
    axes.set_ylabel("success on held-out real games", fontsize=9)
    style_axes(axes)
    return figure


def _draw_costs(cells: Mapping[str, Sequence[Cell]], methods: Sequence[str], base: str) -> Any:
    """Return two panels of bars: real interactions and minutes of each method.

    Further bars show the costs until a method reached the final success of `base` with the same seed.
    """
    rows = {
        method: [(float(c.real_interactions), sum(c.seconds.values()) / 60) for c in cells[method]]
        for method in methods
    }
    for method in methods:
        costs = [method_costs for method_costs, _ in reach_costs_by_seed(cells[method], cells[base])]
        reached = [(interactions, seconds / 60) for interactions, seconds in filter(None, costs)]
        if reached:
            label = f"{method}, to {base}'s final success ({len(reached)} of {len(costs)} seeds)"
            rows[label] = reached
    figure = blank_figure(11.0, 0.9 + 0.34 * len(rows))
    for place, title in enumerate(("real interactions", "minutes of training"), start=1):
        axes = figure.add_subplot(1, 2, place)
        for row, (label, row_costs) in enumerate(rows.items()):
            values = [cost[place - 1] for cost in row_costs]
            axes.barh(row, sum(values) / len(values), height=0.6, color=method_colour(label), zorder=2)
            axes.plot(values, [row] * len(values), "|", color=INK, markersize=7, zorder=3)
        axes.set_yticks(range(len(rows)), list(rows) if place == 1 else [""] * len(rows), fontsize=8.5)
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
        axes.invert_yaxis()
        style_axes(axes)
    return figure


def _draw_ablations(metrics: Metrics, methods: Sequence[str]) -> Any:
    figure = blank_figure(7.2, 0.7 + 0.42 * len(methods))
    _draw_method_bars(figure.add_subplot(), metrics, methods, SUCCESS_RATE)
    return figure


def _draw_method_bars(axes: Any, metrics: Metrics, methods: Sequence[str], metric: str) -> None:
    estimates = {method: metrics[method].get(metric) for method in methods}
    draw_estimate_bars(axes, estimates, {method: method_colour(method) for method in methods})
    style_axes(axes)


def _draw_transfer(metrics: Metrics, methods: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> Any:
    """Return one panel per family: methods trained on some families, and the same methods trained on all."""
    families = sorted({family for cell in cells[methods[0]] for family in cell.families.values()})
    columns = (len(families) + 1) // 2
    figure = blank_figure(9.6, 2 * (0.7 + 0.3 * len(methods)))
    for place, family in enumerate(families, start=1):
        axes = figure.add_subplot(2, columns, place)
        _draw_method_bars(axes, metrics, methods, f"{SUCCESS_RATE}/{family}")
        if (place - 1) % columns:
            axes.set_yticks(range(len(methods)), [""] * len(methods))
        is_trained = any(family in cell.training_families for method in methods for cell in cells[method])
        title = f"{family} ({'trained on' if is_trained else 'unseen'})"
        axes.set_title(title, loc="left", fontsize=8.5, color=INK)
    return figure
