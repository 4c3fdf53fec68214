"""Tables with a row for each seed and method: success, differences from two clones, fidelity of the dream."""

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
    """Return the rows of dreams without and with what the adapter knows."""
    without, full = read_cells("study-no-knowledge"), read_cells("study-logs-only")
    return _rows(without | {"dream-grpo": full["dream-grpo"]}, sorted(_seeds(without["no-knowledge"])))


def world_study(name: str) -> str:
    """Return the rows of all cells of a foreign world in docs/results/`name`."""
    cells = read_cells(name)
    return _rows(cells, sorted(_seeds(cells["clone"])))


def _rows(cells: dict[str, list[Cell]], seeds: list[int]) -> str:
    rows = []
    for seed in seeds:
        named = {method: cell for method, group in cells.items() for cell in group if cell.seed == seed}
        bases = [named[name] for name in ("clone", "clone-successes")]
        for cell in named.values():
            games = compared_games(cell)
            rate = proportion(sum(cell.games[game] for game in games), len(games))
            others = [difference(cell, other) if other is not cell else "" for other in bases]
            measures = [f"{cell.figures[name]:.3f}" if name in cell.figures else "" for name in MEASURES]
            real = f"{cell.real_interactions:,}"
            rows.append([str(seed), cell.method, interval(rate), *others, real, *measures])
    head = ["seed", "method", "success", "minus clone", "minus clone-successes", "online real steps"]
    return table([*head, *MEASURES.values()], rows)


def _seeds(cells: list[Cell]) -> set[int]:
    return {cell.seed for cell in cells}
