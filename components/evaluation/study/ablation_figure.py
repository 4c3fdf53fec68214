"""Figures of an ablation: bars of each metric by variant, with intervals, and metrics by data size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.charts import COLOURS, INK, MUTED, blank_figure, style_axes

Metrics = Mapping[str, Estimate]
PANELS = {
    "fidelity/next_state_exact/determined": "next state exact, where determined",
    "fidelity/hallucination_rate": "facts that reality contradicts",
    "fidelity/reward_precision/near_miss": "reward precision, near misses",
    "fidelity/policy_reward_precision": "reward precision, policies' steps",
    "fidelity/rollout_agreement/20": "dreamed successes confirmed",
    "fidelity/open_loop_exact/10": "10th dreamed state exact",
}
"""Metric -> title of its panel."""
DATA_CURVE_METRICS = (
    "fidelity/next_state_exact/determined",
    "fidelity/fact_recall",
    "fidelity/reward_recall",
    "fidelity/rollout_agreement/20",
)
DATA_SIZE_PREFIX = "data-"
"""Beginning of the name of a variant with less data."""
_FULL_COLOUR, _VARIANT_COLOUR = COLOURS["dreamed"], COLOURS["cloned"]
FORMATS = (".png", ".svg", ".pdf")
"""Suffixes of figure files."""


def draw_ablation(metrics: Mapping[str, Metrics], path: Path) -> None:
    """Draw one panel of bars per metric, with one bar per variant; variants with less data are left out.

    Args:
        metrics: variant -> its metrics.
        path: file to write; its suffix selects the format.
    """
    variants = [name for name in metrics if not name.startswith(DATA_SIZE_PREFIX)]
    panels = [panel for panel in PANELS if any(panel in metrics[name] for name in variants)]
    column_count = (len(panels) + 1) // 2
    figure = blank_figure(9.6, 0.9 + 0.62 * len(variants))
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(2, column_count, number)
        colours = {name: _FULL_COLOUR if name == "full" else _VARIANT_COLOUR for name in variants}
        draw_estimate_bars(axes, {name: metrics[name].get(panel) for name in variants}, colours)
        if (number - 1) % column_count:
            axes.set_yticks(range(len(variants)), [""] * len(variants), fontsize=8.5)
        axes.set_title(PANELS[panel], loc="left", fontsize=9, color=INK)
        style_axes(axes)
    save_figure(figure, path)


def draw_estimate_bars(
    axes: Any, estimates: Mapping[str, Estimate | None], colours: Mapping[str, str]
) -> None:
    """Draw one horizontal bar per name, from 0 to 1, with its interval and value.

    Args:
        axes: matplotlib axes.
        estimates: name -> estimate, None if it was not measured.
        colours: name -> colour of its bar.
    """
    for row, (name, estimate) in enumerate(estimates.items()):
        if estimate is None or not estimate.n:
            axes.text(0.02, row, "not measured", va="center", fontsize=8, color=MUTED)
            continue
        axes.barh(row, estimate.value, height=0.6, color=colours[name], zorder=2)
        axes.plot([estimate.low, estimate.high], [row, row], color=INK, linewidth=1.3, zorder=3)
        axes.text(1.02, row, f"{estimate.value:.3f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(estimates)), list(estimates), fontsize=8.5)
    axes.set_xlim(0, 1)
    axes.invert_yaxis()


def draw_data_curve(metrics: Mapping[str, Metrics], path: Path, total: int) -> None:
    """Draw metrics against the number of offline transitions that the model was trained on.

    Args:
        metrics: variant -> its metrics.
        path: file to write; its suffix selects the format.
        total: number of transitions of the full model.
    """
    variant_of_size = {
        int(name.removeprefix(DATA_SIZE_PREFIX)): name
        for name in metrics
        if name.startswith(DATA_SIZE_PREFIX)
    } | {total: "full"}
    figure = blank_figure(7.2, 3.4)
    axes = figure.add_subplot()
    for name in DATA_CURVE_METRICS:
        points = [
            (size, metrics[variant][name])
            for size, variant in sorted(variant_of_size.items())
            if metrics[variant][name].n
        ]
        sizes = [size for size, _ in points]
        values = [estimate.value for _, estimate in points]
        lows = [estimate.low for _, estimate in points]
        highs = [estimate.high for _, estimate in points]
        line = axes.plot(sizes, values, marker="o", markersize=4, label=name)
        axes.fill_between(sizes, lows, highs, color=line[0].get_color(), alpha=0.15)
    axes.set_xscale("log")
    axes.set_xticks(sorted(variant_of_size), [f"{size:,}" for size in sorted(variant_of_size)], fontsize=8.5)
    axes.minorticks_off()
    axes.set_xlabel("offline transitions", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    style_axes(axes)
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write the figure in the format of the suffix; the same figure always gives the same file."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "ablation"}):
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
