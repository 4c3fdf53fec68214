"""Which measure of a dream goes with the real success of the policy that was trained in it: table and figure.

`make_figures.py` draws the figure, docs/images/weak/fidelity-transfer.png.

All dreams of the two studies on weak logs in which GiGPO trained with the same settings: the full ones and
the controls.
"""

from __future__ import annotations

from pathlib import Path

from result_files import read_cells, table

from components.evaluation.report.charts import INK, blank_figure, style_axes
from components.evaluation.study.cells import Cell
from components.evaluation.study.graded_dreams import correlation_with_success

STUDIES = {
    "study-logs-only": "knows the logs alone",
    "study-no-knowledge": "knows the logs alone",
    "study-weak": "knew the world",
}
"""Folder of the cells -> what the dream's backbone knew."""
DREAMS = {
    "dream-gigpo": "full dream",
    "no-knowledge": "without hand-written knowledge",
    "flipped-dream": "half of the outcomes wrong",
    "swapped-dream": "next states of other steps",
    "untrained-dream": "not fine-tuned",
}
"""Method -> its name in the figure."""
STATES = "fidelity/as_used/next_state_exact/determined"
MEASURES = {
    STATES: "states exact, as RL uses the dream",
    "fidelity/next_state_exact/determined": "states exact, bare model",
    "fidelity/as_used/reward_precision": "rewards precise, as RL uses the dream",
    "fidelity/reward_precision": "rewards precise, bare model",
    "fidelity/as_used/reward_recall": "rewards recalled, as RL uses the dream",
    "fidelity/reward_recall": "rewards recalled, bare model",
    "synthetic_rl/unparsable_episodes": "RL's episodes without an answer",
}
COLOURS = ("#7b61c9", "#12878a", "#c2571a", "#9aa5b4", INK)
"""Of the dreams, in their order."""
FAITHFUL = 0.9
"""Share of exact states from which a dream counts as faithful in its states."""
IMAGE = Path("weak") / "fidelity-transfer.png"
"""The figure, under docs/images."""


def dreams() -> dict[tuple[str, str], list[Cell]]:
    """Return (study, method) -> the finished cells of that dream."""
    found = {
        (study, method): [cell for cell in own if not cell.crash]
        for study in STUDIES
        for method, own in read_cells(study).items()
        if method in DREAMS
    }
    return {dream: cells for dream, cells in found.items() if cells}


def fidelity_transfer() -> str:
    """Return the rank correlation of each measure with real success: of all dreams, of the faithful ones."""
    rows = []
    for measure, title in MEASURES.items():
        row = [title]
        for floor in (0.0, FAITHFUL):
            points = [
                [(cell.figures[measure], cell.success) for cell in cells if _counts(cell, measure, floor)]
                for cells in dreams().values()
            ]
            found = correlation_with_success(points)
            row.append(
                f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f}), n={found.n}" if found else ""
            )
        rows.append(row)
    return table(["measure", "all dreams", f"states exact in {FAITHFUL} or more"], rows)


def _counts(cell: Cell, measure: str, floor: float) -> bool:
    return measure in cell.figures and cell.figures.get(STATES, 0.0) >= floor


def draw(images: Path) -> Path:
    """Draw real success against three measures, one point a dream and seed. Args: images: docs/images."""
    shown = (STATES, "fidelity/as_used/reward_precision", "fidelity/reward_precision")
    figure = blank_figure(11.0, 3.4)
    colours = dict(zip(DREAMS, COLOURS, strict=True))
    for place, measure in enumerate(shown, start=1):
        axes = figure.add_subplot(1, len(shown), place)
        for (study, method), cells in dreams().items():
            points = [(cell.figures[measure], cell.success) for cell in cells if measure in cell.figures]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    "s" if study == "study-weak" else "o",
                    color=colours[method],
                    markersize=6,
                    markerfacecolor="none" if study == "study-weak" else colours[method],
                    label=f"{DREAMS[method]}, {STUDIES[study]}",
                )
        axes.set_title(MEASURES[measure], loc="left", fontsize=9, color=INK)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(bottom=0)
        if place == 1:
            axes.set_ylabel("success on real games", fontsize=9)
        style_axes(axes)
    handles: dict[str, object] = {}
    for axes in figure.axes:
        lines, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    figure.legend(
        handles.values(), handles.keys(), fontsize=7.5, frameon=False, ncols=3, loc="outside lower center"
    )
    path = images / IMAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
