"""Tables with a row for each seed and method: success, differences, and some figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from result_files import interval, read_cells, table

from components.evaluation.metrics.intervals import proportion
from components.evaluation.study.cells import Cell
from components.evaluation.study.seed_table import difference
from components.evaluation.study.study_results import compared_games
from flows.jobs.studies.method import DREAM
from flows.jobs.studies.study_methods import WRONG_DREAMS

CLONES = ("clone", "clone-successes")
FIDELITY = {
    "fidelity/next_state_exact/determined": "states exact",
    "fidelity/reward_precision": "rewards precise",
    "fidelity/reward_recall": "rewards recalled",
}
AS_USED = {
    "fidelity/as_used/next_state_exact/determined": "states exact as used",
    "fidelity/as_used/reward_precision": "rewards precise as used",
    "fidelity/as_used/reward_recall": "rewards recalled as used",
    "fidelity/as_used/unanswered_rate": "steps without an answer",
}
"""The dream as RL uses it: sampled, with all checks. FIDELITY is of the bare model, greedy and unchecked."""
JUDGE = {
    f"real_rl/{curve}/{when}": f"{title}, {when} iteration"
    for curve, title in (
        ("judged_share", "episodes judged"),
        ("judge_auc", "judge's ROC area"),
    )
    for when in ("first", "last")
}


def knowledge() -> str:
    """Return the rows of dreams without and with what the adapter knows."""
    without, full = read_cells("study-no-knowledge"), read_cells("study-logs-only")
    seeds = _seeds(without["no-knowledge"])
    return _rows(without | {"dream-gigpo": full["dream-gigpo"]}, seeds, CLONES, FIDELITY)


def used_fidelity(name: str) -> str:
    """Return the fidelity of each dream of a study, of the bare model and as RL uses it."""
    cells = {method: own for method, own in read_cells(name).items() if method in (DREAM, *WRONG_DREAMS)}
    return _rows(cells, sorted({cell.seed for own in cells.values() for cell in own}), (), FIDELITY | AS_USED)


def world_study(*names: str) -> str:
    """Return the rows of a study of one world, with its dream's fidelity where there is a dream.

    Args:
        names: folders of its cells, each with seeds of its own.
    """
    cells = read_cells(*names)
    seeds = sorted({cell.seed for group in cells.values() for cell in group})
    return _rows(cells, seeds, CLONES, FIDELITY | AS_USED)


def meta_rewarding() -> str:
    """Return the rows of Meta-Rewarding, with what its judge knows of the outcomes."""
    cells = read_cells("study-meta-rewarding")
    return _rows(cells, _seeds(cells["clone"]), CLONES[:1], JUDGE)


def _rows(
    cells: Mapping[str, list[Cell]], seeds: list[int], bases: Sequence[str], figures: Mapping[str, str]
) -> str:
    """Return the table. Args: figures: name among a cell's figures -> title of its column."""
    rows = []
    for seed in seeds:
        named = {method: cell for method, group in cells.items() for cell in group if cell.seed == seed}
        for cell in named.values():
            games = compared_games(cell)
            rate = proportion(sum(cell.games[game] for game in games), len(games))
            others = [
                difference(cell, named[base]) if base in named and base != cell.method else ""
                for base in bases
            ]
            values = [f"{cell.figures[name]:.3f}" if name in cell.figures else "" for name in figures]
            rows.append(
                [str(seed), cell.method, interval(rate), *others, f"{cell.real_interactions:,}", *values]
            )
    minus = [f"minus {base}" for base in bases]
    return table(["seed", "method", "success", *minus, "online real steps", *figures.values()], rows)


def _seeds(cells: list[Cell]) -> list[int]:
    return sorted({cell.seed for cell in cells})
