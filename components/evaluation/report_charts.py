"""The report's pictures: bars with intervals and learning curves, as SVG texts without any reference to the outside.

Drawn on matplotlib's figure objects, not on pyplot, which keeps global state and is not safe in threads.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INK, MUTED, GRID = "#1f2933", "#66758a", "#e3e8ef"
COLOURS = {"cloned": "#9aa5b4", "dreamed": "#7b61c9", "refined": "#12878a"}
_DEFAULT = "#7b61c9"
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Bar:
    """One bar: a share between 0 and 1 with its interval, all None if it was not measured."""

    label: str
    value: float
    low: float
    high: float
    n: int


def bars_svg(bars: Sequence[Bar], width_inches: float = 8.2) -> str:
    """Horizontal bars of shares with their intervals; the value and its n stand at the right."""
    figure = blank_figure(width_inches, 0.55 + 0.42 * len(bars))
    axes = figure.add_subplot()
    for row, bar in enumerate(bars):
        colour = COLOURS.get(bar.label, _DEFAULT)
        axes.barh(row, bar.value, height=0.56, color=colour, alpha=0.85, zorder=2)
        axes.plot([bar.low, bar.high], [row, row], color=INK, linewidth=1.4, solid_capstyle="butt", zorder=3)
        axes.plot([bar.low, bar.high], [row, row], "|", color=INK, markersize=6, zorder=3)
        axes.text(1.03, row, f"{bar.value:.1%}  (n = {bar.n:,})", va="center", fontsize=9, color=INK)
    axes.set_xlim(0, 1)
    axes.set_yticks(range(len(bars)), [_plain(bar.label) for bar in bars], fontsize=9.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.invert_yaxis()
    axes.grid(axis="x", color=GRID, zorder=0)
    quiet_axes(axes)
    axes.spines["bottom"].set_visible(False)
    return svg_text(figure)


def curves_svg(series: Mapping[str, Sequence[float]], columns: int = 2, width_inches: float = 8.2, rate: bool = False) -> str:
    """One small panel a series, value against iteration from 1; a `rate` panel goes from 0 to 1."""
    rows = math.ceil(len(series) / columns)
    figure = blank_figure(width_inches, 2.0 * rows + 0.2)
    for number, (name, values) in enumerate(series.items(), start=1):
        axes = figure.add_subplot(rows, columns, number)
        steps = range(1, len(values) + 1)
        colour = COLOURS["refined"] if name.startswith("sim_to_real") else COLOURS["dreamed"]
        axes.plot(steps, list(values), color=colour, linewidth=1.8, marker="o", markersize=3 if len(values) <= 40 else 0)
        axes.set_title(_plain(name), loc="left", fontsize=9.5, color=INK)
        axes.grid(axis="y", color=GRID)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if rate:
            axes.set_ylim(-0.03, 1.03)
            axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        quiet_axes(axes)
    return svg_text(figure)


def spark(values: Sequence[float], width: int = 40) -> str:
    """The series as a line of blocks, for reports in plain text; a value that is not finite is a space."""
    shown = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(_BLOCKS[round((value - low) / span * 7)] if math.isfinite(value) else " " for value in shown)


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


def _plain(text: str) -> str:
    """The text without what matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def svg_text(figure: Any) -> str:
    """The figure as SVG text, the same for the same figure."""
    import matplotlib

    sink = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report"}):
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return sink.getvalue()
