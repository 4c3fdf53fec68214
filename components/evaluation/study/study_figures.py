"""The pictures of a study: success against real interactions, learning curves, what a success cost,
ablations, transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.charts import COLOURS, INK, MUTED, blank_figure, quiet_axes
from components.evaluation.report.curriculum_figure import draw_curriculum
from components.evaluation.study.ablation_figure import save_figure
from components.evaluation.study.study_results import Cell, reached_by

Metrics = Mapping[str, Mapping[str, Estimate]]
RATE = "evaluate/success_rate"
ABLATED = ("dream-grpo", "no-retrieval", "no-reasoning", "no-history", "no-curriculum")
LINE = 1.8
LABELS = {"ppo": -10, "rft": 16, "dpo": -22}
"""Where a label stands beside its point, by algorithm: methods that come to the same place stay readable."""
DASHES = {"ppo": "--", "rft": ":", "dpo": "-."}


def draw_study(
    metrics: Metrics, cells: Mapping[str, Sequence[Cell]], base: str, directory: Path, suffix: str = ".png"
) -> list[Path]:
    """All pictures that the methods at hand allow; their paths."""
    done = {name: [cell for cell in found if not cell.crash] for name, found in cells.items()}
    done = {name: found for name, found in done.items() if found}
    plain = [name for name in done if not name.startswith("transfer-") and name not in ABLATED[1:]]
    drawn = {"interactions": _interactions(metrics, plain), "curves": _curves(done, plain)}
    lives = [
        cell.curriculum
        for name in ("dream-grpo", "dream-ppo")
        for cell in done.get(name, [])
        if cell.curriculum
    ]
    if lives:
        drawn["curriculum"] = draw_curriculum(lives[0])
    if base in done:
        drawn["cost"] = _cost(done, plain, base)
    if len([name for name in ABLATED if name in done]) > 1:
        drawn["ablations"] = _bars(metrics, [name for name in ABLATED if name in done], RATE)
    transferred = [name for name in done if name.startswith("transfer-")]
    if transferred:
        whole = [name for name in done if f"transfer-{name}" in transferred]
        drawn["transfer"] = _transfer(metrics, [*transferred, *whole], done)
    paths = []
    for name, figure in drawn.items():
        paths.append(directory / f"study-{name}{suffix}")
        save_figure(figure, paths[-1])
    return paths


def _colour(name: str) -> str:
    name = name.removeprefix("transfer-")
    return (
        COLOURS["dreamed"]
        if name.startswith("dream")
        else COLOURS["refined"]
        if name.startswith("s2r")
        else COLOURS["cloned"]
    )


def _dashes(name: str) -> str:
    """The line of the algorithm that it names."""
    return next((dashes for algorithm, dashes in DASHES.items() if algorithm in name), "-")


def _interactions(metrics: Metrics, names: Sequence[str]) -> Any:
    figure = blank_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for name in names:
        rate, spent = metrics[name][RATE], metrics[name]["cost/real_interactions"].value
        axes.errorbar(
            [spent],
            [rate.value],
            yerr=[[rate.value - rate.low], [rate.high - rate.value]],
            marker="o",
            color=_colour(name),
            capsize=3,
        )
        height = next((height for algorithm, height in LABELS.items() if algorithm in name), 4)
        axes.annotate(
            name, (spent, rate.value), textcoords="offset points", xytext=(7, height), fontsize=8.5, color=INK
        )
    axes.set_xscale("symlog", linthresh=1000)
    axes.set_xlim(left=-150)
    axes.set_ylim(0, 1)
    axes.set_xlabel("real interactions spent on training", fontsize=9)
    axes.set_ylabel("success on held-out real games", fontsize=9)
    quiet_axes(axes)
    return figure


def _curves(cells: Mapping[str, Sequence[Cell]], names: Sequence[str]) -> Any:
    """Learning curves, a line a seed: of policies on the way on the held-out games, or where none were
    played, of the rollouts.
    """
    if any(cell.held_out for name in names for cell in cells[name]):
        return _held_out_curves(cells, names)
    return _rollout_curves(cells, names)


def _held_out_curves(cells: Mapping[str, Sequence[Cell]], names: Sequence[str]) -> Any:
    """Each line begins with the clone: in reality at once, in the dream when its model is trained."""
    figure = blank_figure(9.6, 3.8)
    clones = {cell.seed: cell.success for cell in cells.get("clone", [])}
    for place, (title, column, unit) in enumerate(
        (("real interactions", 0, 1.0), ("minutes of training", 2, 60.0)), start=1
    ):
        axes = figure.add_subplot(1, 2, place)
        for name in names:
            for number, cell in enumerate(cell for cell in cells[name] if cell.held_out):
                points = _points(cell, clones)
                if name.startswith("s2r") and name.replace("s2r", "dream") in names:
                    points = points[
                        max(1, sum(point[0] == 0 for point in points)) - 1 :
                    ]  # the line of the dream is there already
                axes.plot(
                    [point[column] / unit for point in points],
                    [point[3] for point in points],
                    linewidth=LINE,
                    alpha=0.8,
                    color=_colour(name),
                    linestyle=_dashes(name),
                    label=name if number == 0 else None,
                )
        axes.set_xlabel(title, fontsize=9)
        axes.set_ylim(0, 1)
        quiet_axes(axes)
    figure.axes[0].set_title("success on held-out real games", loc="left", fontsize=9.5, color=INK)
    figure.axes[0].legend(fontsize=8, frameon=False, loc="upper right", ncols=3)
    return figure


def _points(cell: Cell, clones: Mapping[int, float]) -> list[list[float]]:
    """Where a cell's line goes through: the clone of its seed, policies on the way, the last one."""
    began = cell.seconds.get("experience_model", 0.0)
    first = [[0.0, 0.0, began, clones[cell.seed]]] if cell.seed in clones else []
    return [*first, *cell.held_out, [*cell.curve[-1][:3], cell.success]]


def _rollout_curves(cells: Mapping[str, Sequence[Cell]], names: Sequence[str]) -> Any:
    """Success of the rollouts against interactions, dreamed and real apart: a dreamed success is not a real
    one.
    """
    figure = blank_figure(9.6, 3.6)
    for place, (kind, column) in enumerate((("real", 0), ("dreamed", 1)), start=1):
        axes = figure.add_subplot(1, 2, place)
        for name in names:
            for number, cell in enumerate(cells[name]):
                earlier = [[0.0] * 4, *cell.curve]
                points = [
                    point
                    for before, point in zip(earlier, cell.curve, strict=False)
                    if point[column] > before[column]
                ]
                if points:
                    steps, rates = [point[column] for point in points], [point[3] for point in points]
                    style = {
                        "color": _colour(name),
                        "linestyle": _dashes(name),
                        "label": name if number == 0 else None,
                    }
                    axes.plot(steps, rates, linewidth=LINE, alpha=0.8, **style)
        axes.set_title(f"{kind} rollouts", loc="left", fontsize=9.5, color=INK)
        axes.set_xlabel(f"{kind} interactions", fontsize=9)
        axes.set_ylim(0, 1)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False)
        quiet_axes(axes)
    return figure


def _cost(cells: Mapping[str, Sequence[Cell]], names: Sequence[str], base: str) -> Any:
    """Real interactions and wall time of each method's whole training, and of what came to where `base` of
    the same seed ends.
    """
    rows = {
        name: [(float(c.real_interactions), sum(c.seconds.values()) / 60) for c in cells[name]]
        for name in names
    }
    for name in names:
        found = [own for own, _ in reached_by(cells[name], cells[base])]
        came = [(spent, seconds / 60) for spent, seconds in filter(None, found)]
        if came:
            rows[f"{name}, to {base}'s end ({len(came)} of {len(found)} seeds)"] = came
    figure = blank_figure(11.0, 0.9 + 0.34 * len(rows))
    for place, title in enumerate(("real interactions", "minutes of training"), start=1):
        axes = figure.add_subplot(1, 2, place)
        for row, (name, costs) in enumerate(rows.items()):
            values = [cost[place - 1] for cost in costs]
            axes.barh(row, sum(values) / len(values), height=0.6, color=_colour(name), zorder=2)
            axes.plot(values, [row] * len(values), "|", color=INK, markersize=7, zorder=3)
        axes.set_yticks(range(len(rows)), list(rows) if place == 1 else [""] * len(rows), fontsize=8.5)
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
        axes.invert_yaxis()
        quiet_axes(axes)
    return figure


def _bars(metrics: Metrics, names: Sequence[str], metric: str) -> Any:
    figure = blank_figure(7.2, 0.7 + 0.42 * len(names))
    _draw_bars(figure.add_subplot(), metrics, names, metric)
    return figure


def _draw_bars(axes: Any, metrics: Metrics, names: Sequence[str], metric: str) -> None:
    for row, name in enumerate(names):
        found = metrics[name].get(metric)
        if found is None or not found.n:
            axes.text(0.02, row, "not measured", va="center", fontsize=8, color=MUTED)
            continue
        axes.barh(row, found.value, height=0.6, color=_colour(name), zorder=2)
        axes.plot([found.low, found.high], [row, row], color=INK, linewidth=1.3, zorder=3)
        axes.text(1.02, row, f"{found.value:.3f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    quiet_axes(axes)


def _transfer(metrics: Metrics, names: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> Any:
    """Success by family, those that transfer methods learnt from and those that they did not, beside the same
    methods with all.
    """
    families = sorted({family for cell in cells[names[0]] for family in cell.families.values()})
    columns = (len(families) + 1) // 2
    figure = blank_figure(9.6, 2 * (0.7 + 0.3 * len(names)))
    for place, family in enumerate(families, start=1):
        axes = figure.add_subplot(2, columns, place)
        _draw_bars(axes, metrics, names, f"{RATE}/{family}")
        if place % columns != 1:
            axes.set_yticks(range(len(names)), [""] * len(names))
        learnt = (
            "learnt from"
            if any(family in cell.learnt for name in names for cell in cells[name])
            else "held back"
        )
        axes.set_title(f"{family} ({learnt})", loc="left", fontsize=8.5, color=INK)
    return figure
