"""Tables of reality at rising budgets and of slow real steps, with and without the dream before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from result_files import interval, read_cells, table

from components.evaluation.metrics.intervals import proportion
from components.evaluation.study.cells import Cell
from components.evaluation.study.seed_table import difference
from components.evaluation.study.study_results import compared_games
from flows.jobs.studies.method_groups import REAL_STEPS

SLOW_STUDIES = {"study-slow": "0.5 s", "study-slow-5": "5 s"}
"""Study -> what a real step takes in it."""


def budgets(name: str = "study-budgets") -> str:
    """Return a row for each budget of the first seed: reality alone from two starts, dream and then reality.

    Reality from the clone of the successes is in folders of its own, `NAME-successes-BUDGET`.
    """
    cells = read_cells(name)
    rows = []
    for steps in REAL_STEPS:
        alone, after = (_of_seed(cells.get(f"{way}-{steps}", ()), 0) for way in ("grpo-real", "s2r-grpo"))
        better = _of_seed(read_cells(f"{name}-successes-{steps}").get("successes-grpo-real", ()), 0)
        figures = [text for cell in (alone, better, after) for text in (_success(cell), _used(cell))]
        rows.append([f"{steps:,}", *figures, difference(after, alone), difference(after, better)])
    head = [
        *("real steps, at most", "reality alone", "used", "reality alone, from the clone of the successes"),
        *("used", "dream, then reality", "used", "minus reality", "minus reality from the successes"),
    ]
    return table(head, rows)


def budget_differences(most: int, name: str = "study-budgets") -> list[str]:
    """Return dream and reality minus reality alone at each budget, of the first seed.

    Args:
        most: largest budget.
    """
    cells = read_cells(name)
    return [
        difference(*(_of_seed(cells[f"{way}-{steps}"], 0) for way in ("s2r-grpo", "grpo-real")))
        for steps in REAL_STEPS
        if steps <= most
    ]


def minutes_to_success(name: str) -> tuple[str, str]:
    """Return the minutes of dream and reality, and those of reality alone to a policy that wins as much.

    Of the first seed; policies of reality are looked at on the way. "more than N": it never won as much.
    """
    cells = read_cells(name)
    after, alone = (_points(_cell_of(cells[method])) for method in ("s2r-grpo", "grpo-real"))
    *_, seconds, success = after[-1]
    reached = next((point[2] for point in alone if point[3] >= success), None)
    found = f"{reached / 60:.0f}" if reached is not None else f"more than {alone[-1][2] / 60:.0f}"
    return f"{seconds / 60:.0f}", found


def slow(names: Mapping[str, str] = SLOW_STUDIES) -> str:
    """Return the success of policies on the way, against the minutes that they took.

    Args:
        names: study of slow real steps -> what a step takes.
    """
    rows = []
    for name, step in names.items():
        for method, own in read_cells(name).items():
            for cell in own:
                rows += [
                    [step, method, f"{real:,.0f}", f"{dreamed:,.0f}", f"{seconds / 60:.0f}", f"{success:.3f}"]
                    for real, dreamed, seconds, success in _points(cell)
                ]
    head = ["a real step takes", "method", "real steps", "dreamed steps", "minutes", "held-out games won"]
    return table(head, rows)


def _points(cell: Cell) -> list[list[float]]:
    """Return (real steps, dreamed steps, seconds, share of the held-out games) on the way and at the end."""
    games = compared_games(cell)
    success = sum(cell.games[game] for game in games) / len(games)
    steps = [cell.real_interactions, cell.dreamed_interactions]
    last = [*steps, sum(cell.seconds.values()), success]
    return [point for point in cell.held_out if point[:2] != steps] + [last]


def _cell_of(cells: Sequence[Cell]) -> Cell:
    return next(cell for cell in cells if cell.seed == 0 and not cell.crash)


def _of_seed(cells: Sequence[Cell], seed: int) -> Cell | None:
    return next((cell for cell in cells if cell.seed == seed and not cell.crash), None)


def _success(cell: Cell | None) -> str:
    if cell is None:
        return ""
    games = compared_games(cell)
    return interval(proportion(sum(cell.games[game] for game in games), len(games)))


def _used(cell: Cell | None) -> str:
    return "" if cell is None else f"{cell.real_interactions:,}"
