"""Tables of reality at rising budgets and of slow real steps, with and without the dream before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from result_files import interval, read_cells, table

from components.evaluation.metrics.intervals import proportion
from components.evaluation.metrics.paired_outcomes import PairedDifference, paired_difference
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
        alone, after = (_of_seed(cells.get(f"{way}-{steps}", ()), 0) for way in ("gigpo-real", "s2r-gigpo"))
        better = _of_seed(read_cells(f"{name}-successes-{steps}").get("successes-gigpo-real", ()), 0)
        figures = [text for cell in (alone, better, after) for text in (_success(cell), _used(cell))]
        rows.append([f"{steps:,}", *figures, difference(after, alone), difference(after, better)])
    head = [
        *("real steps, at most", "reality alone", "used", "reality alone, from the clone of the successes"),
        *("used", "dream, then reality", "used", "minus reality", "minus reality from the successes"),
    ]
    return table(head, rows)


def better_reality(name: str, steps: int) -> list[Cell]:
    """Return the first seed's cells of reality alone with a budget: one of each start, the best first."""
    starts = (
        _of_seed(read_cells(name).get(f"gigpo-real-{steps}", ()), 0),
        _of_seed(read_cells(f"{name}-successes-{steps}").get("successes-gigpo-real", ()), 0),
    )
    return sorted((cell for cell in starts if cell), key=lambda cell: -cell.success)


def budget_differences(most: int, name: str = "study-budgets") -> dict[int, tuple[PairedDifference, int]]:
    """Return budget -> dream and reality minus the better start of reality alone, and the number of starts.

    Of the first seed, paired by game.

    Args:
        most: largest budget.
    """
    found = {}
    for steps in (steps for steps in REAL_STEPS if steps <= most):
        alone = better_reality(name, steps)
        after = _of_seed(read_cells(name)[f"s2r-gigpo-{steps}"], 0)
        if after and alone:
            pairs = [(after.games[game], alone[0].games[game]) for game in compared_games(after)]
            found[steps] = paired_difference(*zip(*pairs, strict=True)), len(alone)
    return found


def minutes_to_success(name: str) -> tuple[float, float, bool]:
    """Return the minutes of dream and reality, those of reality alone, and whether it came to win as much.

    Reality's are those to its first policy that wins as much, or all that it had. Of the first seed; policies
    of reality are looked at on the way.
    """
    cells = read_cells(name)
    after, alone = (_points(_cell_of(cells[method])) for method in ("s2r-gigpo", "gigpo-real"))
    *_, seconds, success = after[-1]
    reached = next((point[2] for point in alone if point[3] >= success), None)
    return seconds / 60, (alone[-1][2] if reached is None else reached) / 60, reached is not None


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
