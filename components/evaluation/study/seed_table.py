"""The differences of a study's methods within each seed, as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.evaluation.metrics.paired_outcomes import paired_difference
from components.evaluation.study.cells import Cell
from components.evaluation.study.study_results import bases_present, compared_games, require_same_games


def seed_table(
    cells: Mapping[str, Sequence[Cell]], against: str, bases: Mapping[str, str] | None = None
) -> str:
    """Return a table with one row per method and base, and one column per seed.

    A difference is paired by game; its 95 % interval covers further games, not further seeds
    (`paired_difference`). Each method is compared with `against`, and with its own base if that is another.

    Args:
        cells: method -> its cells, of which the crashed ones are left out.
        against: base method of all methods that are not in `bases`.
        bases: method -> its base method.

    Raises:
        DataError: cells of different games.
    """
    finished = {
        name: {cell.seed: cell for cell in method_cells if not cell.crash}
        for name, method_cells in cells.items()
    }
    seeds = sorted({seed for method_cells in finished.values() for seed in method_cells})
    own_bases = bases_present(finished, against, bases or {})
    rows = [["method", "compared with", *(f"seed {seed}" for seed in seeds)], ["---"] * (2 + len(seeds))]
    for name, method_cells in finished.items():
        for base in dict.fromkeys([against, own_bases[name]]):
            base_cells = finished.get(base, {})
            if name == base or not method_cells.keys() & base_cells.keys():
                continue
            rows.append(
                [name, base, *(difference(method_cells.get(seed), base_cells.get(seed)) for seed in seeds)]
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def difference(cell: Cell | None, base: Cell | None) -> str:
    """Return the difference of two cells of a seed, paired by game; empty if one of them is missing.

    Its 95 % interval covers further games, not further seeds.
    """
    if cell is None or base is None:
        return ""
    require_same_games(cell, base)
    games = compared_games(cell)
    found = paired_difference([cell.games[game] for game in games], [base.games[game] for game in games])
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
