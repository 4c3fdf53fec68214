"""The table of docs/experiments/no-knowledge.md: a dream with and without what the adapter knows."""

from __future__ import annotations

from result_files import interval, read_cells, table

from components.evaluation.metrics.intervals import proportion
from components.evaluation.study.cells import Cell
from components.evaluation.study.seed_table import difference
from components.evaluation.study.study_results import compared_games

MEASURES = {
    "fidelity/next_state_exact/determined": "states exact",
    "fidelity/reward_precision": "rewards precise",
    "fidelity/reward_recall": "rewards recalled",
}


def knowledge() -> str:
    """Return success, differences and fidelity with and without knowledge, for each seed."""
    without, full = read_cells("study-no-knowledge"), read_cells("study-logs-only")
    rows = []
    for seed in sorted(cell.seed for cell in without["no-knowledge"]):
        cells = [_of_seed(without, name, seed) for name in ("clone", "clone-successes", "no-knowledge")]
        cells.append(_of_seed(full, "dream-grpo", seed))
        for cell in cells:
            games = compared_games(cell)
            rate = proportion(sum(cell.games[game] for game in games), len(games))
            others = [difference(cell, other) if other is not cell else "" for other in cells[:2]]
            measures = [f"{cell.figures[name]:.3f}" if name in cell.figures else "" for name in MEASURES]
            rows.append([str(seed), cell.method, interval(rate), *others, *measures])
    head = ["seed", "method", "success", "minus clone", "minus clone-successes"]
    return table([*head, *MEASURES.values()], rows)


def _of_seed(cells: dict[str, list[Cell]], method: str, seed: int) -> Cell:
    return next(cell for cell in cells[method] if cell.seed == seed)
