"""The report's curves as SVG texts without any reference to the outside, and what other figures share with
them.

Drawn on matplotlib's figure objects, not on pyplot, which keeps global state and is not safe in threads.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

INK, MUTED, GRID = "#1f2933", "#66758a", "#e3e8ef"
COLOURS = {"cloned": "#9aa5b4", "dreamed": "#7b61c9", "refined": "#12878a"}
LEAST_FOR_A_LINE = 3
"""Values of a series through which a line is drawn: two points show no course."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def curve_svg(name: str, values: Sequence[float], rate: bool = False) -> str:
    """One series, value against iteration from 1; a `rate` goes from 0 to 1. Fewer than `LEAST_FOR_A_LINE`
    values are points alone.
    """
    figure = blank_figure(3.5, 1.7)
    axes = figure.add_subplot()
    steps = range(1, len(values) + 1)
    colour = COLOURS["refined"] if name.startswith("sim_to_real") else COLOURS["dreamed"]
    line = "-" if sum(map(math.isfinite, values)) >= LEAST_FOR_A_LINE else "none"
    axes.plot(
        steps,
        list(values),
        color=colour,
        linewidth=1.8,
        linestyle=line,
        marker="o",
        markersize=4 if len(values) <= 40 else 0,
    )
    axes.grid(axis="y", color=GRID)
    axes.set_xlim(0.5, len(values) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if rate:
        axes.set_ylim(-0.05, 1.05)
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    quiet_axes(axes)
    return svg_text(figure)


def spark(values: Sequence[float], width: int = 40) -> str:
    """The series as a line of blocks, for reports in plain text; a value that is not finite is a space."""
    shown = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(
        _BLOCKS[round((value - low) / span * 7)] if math.isfinite(value) else " " for value in shown
    )


def blank_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def quiet_axes(axes: Any) -> None:
    """Axes without frame and ticks."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(length=0, labelsize=8.5, colors=MUTED)
    for label in axes.get_yticklabels():
        label.set_color(INK)
    axes.set_axisbelow(True)


def svg_text(figure: Any) -> str:
    """The figure as SVG text, the same for the same figure."""
    import matplotlib

    sink = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report"}):
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return sink.getvalue()
