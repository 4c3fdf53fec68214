"""Learning curves of a study, one line per seed.

They show the success of policies during training on the held-out games. If no such policy was evaluated, they
show the success of the training rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluation.report.charts import INK, blank_figure, style_axes
from components.evaluation.study.cells import Cell
from components.evaluation.study.method_style import LINE_WIDTH, method_colour, method_line_style

_REAL_COLUMN, _DREAMED_COLUMN, _SECONDS_COLUMN, _SUCCESS_COLUMN = range(4)
"""Columns of `Cell.curve` and `Cell.held_out`."""


def draw_learning_curves(cells: Mapping[str, Sequence[Cell]], methods: Sequence[str]) -> Any:
    """Return the figure of the learning curves of `methods`."""
    if any(cell.held_out for method in methods for cell in cells[method]):
        return _draw_held_out_curves(cells, methods)
    return _draw_rollout_curves(cells, methods)


def _draw_held_out_curves(cells: Mapping[str, Sequence[Cell]], methods: Sequence[str]) -> Any:
    """Return two panels: success on the held-out games against real interactions and against minutes.

    Each line begins with the cloned policy. A method that trains in the dream begins when the experience
    model is trained.
    """
    figure = blank_figure(9.6, 3.8)
    clone_success = {cell.seed: cell.success for cell in cells.get("clone", [])}
    panels = (("real interactions", _REAL_COLUMN, 1.0), ("minutes of training", _SECONDS_COLUMN, 60.0))
    for place, (title, column, unit) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, 2, place)
        for method in methods:
            held_out_cells = [cell for cell in cells[method] if cell.held_out]
            for number, cell in enumerate(held_out_cells):
                points = _held_out_points(cell, clone_success)
                if method.startswith("s2r") and method.replace("s2r", "dream") in methods:
                    points = _without_dream_part(points)
                if column == _REAL_COLUMN and not points[-1][_REAL_COLUMN]:
                    continue  # it never left 0
                x_values = [point[column] / unit for point in points]
                _draw_line(axes, method, x_values, points, has_label=number == 0)
        axes.set_xlabel(title, fontsize=9)
        axes.set_ylim(0, 1)
        style_axes(axes)
    figure.axes[0].set_title("success on held-out real games", loc="left", fontsize=9.5, color=INK)
    figure.axes[-1].legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    return figure


def _held_out_points(cell: Cell, clone_success: Mapping[int, float]) -> list[list[float]]:
    """Return the points of a cell's line: the cloned policy of its seed, policies during training, the last
    one.

    The points have the columns of `Cell.held_out`.
    """
    start_seconds = cell.seconds.get("experience_model", 0.0)
    first = [[0.0, 0.0, start_seconds, clone_success[cell.seed]]] if cell.seed in clone_success else []
    return [*first, *cell.held_out, [*cell.curve[-1][:3], cell.success]]


def _without_dream_part(points: list[list[float]]) -> list[list[float]]:
    """Return the points from the last one in the dream on; the dream's own method draws the earlier ones."""
    dreamed_count = sum(point[_REAL_COLUMN] == 0 for point in points)
    return points[max(1, dreamed_count) - 1 :]


def _draw_rollout_curves(cells: Mapping[str, Sequence[Cell]], methods: Sequence[str]) -> Any:
    """Return two panels, for real and for dreamed rollouts: a dreamed success is not a real one."""
    figure = blank_figure(9.6, 3.6)
    for place, (kind, column) in enumerate((("real", _REAL_COLUMN), ("dreamed", _DREAMED_COLUMN)), start=1):
        axes = figure.add_subplot(1, 2, place)
        for method in methods:
            for number, cell in enumerate(cells[method]):
                points = _points_with_interactions(cell, column)
                if points:
                    x_values = [point[column] for point in points]
                    _draw_line(axes, method, x_values, points, has_label=number == 0)
        axes.set_title(f"{kind} rollouts", loc="left", fontsize=9.5, color=INK)
        axes.set_xlabel(f"{kind} interactions", fontsize=9)
        axes.set_ylim(0, 1)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False)
        style_axes(axes)
    return figure


def _points_with_interactions(cell: Cell, column: int) -> list[list[float]]:
    """Return the iterations in which the interactions of this column increased."""
    earlier_points = [[0.0] * 4, *cell.curve]
    return [
        point
        for earlier, point in zip(earlier_points, cell.curve, strict=False)
        if point[column] > earlier[column]
    ]


def _draw_line(
    axes: Any, method: str, x_values: Sequence[float], points: Sequence[Sequence[float]], *, has_label: bool
) -> None:
    axes.plot(
        x_values,
        [point[_SUCCESS_COLUMN] for point in points],
        linewidth=LINE_WIDTH,
        alpha=0.8,
        color=method_colour(method),
        linestyle=method_line_style(method),
        label=method if has_label else None,
    )
