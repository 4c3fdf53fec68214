"""The pictures of an ablation: a panel of bars a metric, one bar a variant with its interval; and the
data-size curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.evaluation.report.charts import COLOURS, INK, MUTED, blank_figure, quiet_axes

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
CURVE = (
    "fidelity/next_state_exact/determined",
    "fidelity/fact_recall",
    "fidelity/reward_recall",
    "fidelity/rollout_agreement/20",
)
SIZE = "data-"
_FULL, _OTHER = COLOURS["dreamed"], COLOURS["cloned"]
FORMATS = (".png", ".svg", ".pdf")


def draw_ablation(metrics: Mapping[str, Metrics], path: Path) -> None:
    """Bars of the variants that are no data size; the file's suffix says in which format (png, svg)."""
    names = [name for name in metrics if not name.startswith(SIZE)]
    panels = [panel for panel in PANELS if any(panel in metrics[name] for name in names)]
    figure = blank_figure(9.6, 0.9 + 0.62 * len(names))
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(2, (len(panels) + 1) // 2, number)
        for row, name in enumerate(names):
            found = metrics[name].get(panel)
            if found is None or not found.n:
                axes.text(0.02, row, "not measured", va="center", fontsize=8, color=MUTED)
                continue
            axes.barh(row, found.value, height=0.6, color=_FULL if name == "full" else _OTHER, zorder=2)
            axes.plot([found.low, found.high], [row, row], color=INK, linewidth=1.3, zorder=3)
            axes.text(1.02, row, f"{found.value:.3f}", va="center", fontsize=8, color=INK)
        axes.set_yticks(
            range(len(names)),
            names if number % ((len(panels) + 1) // 2) == 1 else [""] * len(names),
            fontsize=8.5,
        )
        axes.set_title(PANELS[panel], loc="left", fontsize=9, color=INK)
        axes.set_xlim(0, 1)
        axes.invert_yaxis()
        quiet_axes(axes)
    save_figure(figure, path)


def draw_data_curve(metrics: Mapping[str, Metrics], path: Path, total: int) -> None:
    """Metrics against the offline transitions that the model learnt from; `total` is how many the full model
    had.
    """
    sizes = {int(name.removeprefix(SIZE)): name for name in metrics if name.startswith(SIZE)} | {
        total: "full"
    }
    figure = blank_figure(7.2, 3.4)
    axes = figure.add_subplot()
    for name in CURVE:
        points = [
            (size, metrics[variant][name])
            for size, variant in sorted(sizes.items())
            if metrics[variant][name].n
        ]
        line = axes.plot(
            [size for size, _ in points],
            [found.value for _, found in points],
            marker="o",
            markersize=4,
            label=name,
        )
        low, high = [found.low for _, found in points], [found.high for _, found in points]
        axes.fill_between([size for size, _ in points], low, high, color=line[0].get_color(), alpha=0.15)
    axes.set_xscale("log")
    axes.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)], fontsize=8.5)
    axes.minorticks_off()
    axes.set_xlabel("offline transitions", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    quiet_axes(axes)
    save_figure(figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write `figure` in the format of the suffix; the same figure gives the same file."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "ablation"}):
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
