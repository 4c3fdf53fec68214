"""Curves of the report as self-contained SVG texts, and the style that all figures share.

They use matplotlib's figure objects, not pyplot: pyplot has global state and is not thread-safe.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

INK, MUTED, GRID = "#1f2933", "#66758a", "#e3e8ef"
COLOURS = {"cloned": "#9aa5b4", "dreamed": "#7b61c9", "refined": "#12878a"}
MIN_POINTS_FOR_LINE = 3
"""Fewest values that are connected by a line; two points show no trend."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def curve_svg(name: str, values: Sequence[float], rate: bool = False) -> str:
    """Return one series as SVG: value against iteration, from 1.

    Args:
        name: identifier of the series, which selects the colour.
        values: one value per iteration. Fewer than `MIN_POINTS_FOR_LINE` values are drawn as points only.
        rate: whether the axis runs from 0 % to 100 %.
    """
    figure = blank_figure(3.5, 1.7)
    axes = figure.add_subplot()
    colour = COLOURS["refined"] if name.startswith("sim_to_real") else COLOURS["dreamed"]
    line_style = "-" if sum(map(math.isfinite, values)) >= MIN_POINTS_FOR_LINE else "none"
    axes.plot(
        range(1, len(values) + 1),
        list(values),
        color=colour,
        linewidth=1.8,
        linestyle=line_style,
        marker="o",
        markersize=4 if len(values) <= 40 else 0,
    )
    axes.grid(axis="y", color=GRID)
    axes.set_xlim(0.5, len(values) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if rate:
        axes.set_ylim(-0.05, 1.05)
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    style_axes(axes)
    return svg_text(figure)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return the series as a line of block characters; a value that is not finite is a space."""
    sampled = (
        [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    )
    finite = [value for value in sampled if math.isfinite(value)]
    if not finite:
        return ""
    low = min(finite)
    span = (max(finite) - low) or 1.0
    return "".join(
        _BLOCKS[round((value - low) / span * 7)] if math.isfinite(value) else " " for value in sampled
    )


def blank_figure(width: float, height: float) -> Any:
    """Return an empty figure; width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def style_axes(axes: Any) -> None:
    """Remove the frame and the tick marks, and set the colours of the labels."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(length=0, labelsize=8.5, colors=MUTED)
    for label in axes.get_yticklabels():
        label.set_color(INK)
    axes.set_axisbelow(True)


def svg_text(figure: Any) -> str:
    """Return the figure as SVG text; the same figure always gives the same text."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
