"""Metrics of a study: several methods with several seeds each, evaluated on the same held-out games.

A comparison of two methods is paired by game and seed. Its interval covers further games and further seeds
(`crossed_mean`; n is the number of games). The p-values of all comparisons with one base method are corrected
together (Holm 1979). Each seed's own rate is reported too. Methods trained on some families of tasks only are
compared on the games of the other families.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from components.errors import DataError
from components.evaluation.metrics.intervals import (
    Estimate,
    crossed_mean,
    crossed_p_value,
    crossed_ratio,
    exact_value,
    mean,
    proportion,
)
from components.evaluation.study.cells import Cell
from components.evaluation.study.crossed_bootstrap import bootstrap_difference, bootstrap_ratio
from components.evaluation.study.reach_costs import reach_metrics

MARGIN = 0.9
"""A method is not inferior to its base if it surely wins at least this share of the base's games."""
MARGIN_SET = "20261128-090221"
"""When `MARGIN` was set, UTC, as run ids begin. Whether older cells reach it is not judged."""
MIN_TESTED_SEEDS = 3
"""Fewest seeds with a p-value: with two, small ones are too frequent under chance alone (docs/limits.md)."""
Rows = list[dict[str, float]]
"""One row per seed: game -> 1.0 if it was won, else 0.0."""


def summarise(
    cells: Mapping[str, Sequence[Cell]],
    against: str,
    bases: Mapping[str, str] | None = None,
    planned: Sequence[str] = (),
    controls: Collection[str] = (),
) -> dict[str, dict[str, Estimate]]:
    """Return the metrics of each method over its seeds, and its difference from its base method.

    - `evaluate/success_rate`, also by family and by seed. `.../learnt` and `.../held_back` are the families
      with and without training tasks, if the method was trained on some families only.
    - `cost/...`: means over the seeds. `cost/evaluation_interactions` only if all cells have it; else they
      are part of `cost/check_interactions`. `cost/offline_transitions` and `cost/pretraining_transitions`
      only if all cells know them (`Cell.recorded_transitions`).
    - `difference/success_rate` and `difference/p_value`: two-sided, Holm-corrected over all methods in
      `cells` and `planned` with the same base; one with fewer than
      `MIN_TESTED_SEEDS` seeds has no p-value and counts as 1. With one seed the interval covers further games
      alone.
    - `ratio/success_rate`: of the method's rate to its base's on the same seeds and games (`crossed_ratio`);
      left out if the base's rate may be 0.
    - `difference/bootstrap`, `ratio/bootstrap`: the same with intervals of `crossed_bootstrap`.
    - `ratio/non_inferior`: 1 if it reaches the margin (`reaches_margin`), else 0. Only where the comparison
      has a p-value, the base is trained by RL, the method is no control, and all cells were run after the
      margin was set: how much of its success is kept without reality, or a part?
    - `reached/...`: see `reach_metrics`.
    - `watched/rollout_agreement`: share of replayed dreamed successes that were confirmed, a mean over the
      seeds.
    - Names of `Cell.figures` that all seeds have: means over the seeds.
    - `crashed_seeds`: number of crashed cells, if any. A method without a finished cell has only this metric,
      or none.

    Args:
        cells: method -> its cells.
        against: base method of all methods that are not in `bases`.
        bases: method -> its base method; one without a finished cell is replaced by `against`.
        planned: methods of the study, with those that have no cell: their comparisons are part of the family
            of tests, else p-values would fall while a study is unfinished.
        controls: methods that must not help, so being not inferior is no success of theirs.

    Raises:
        DataError: cells with different games.
    """
    cells = {name: cells.get(name, ()) for name in (*planned, *cells)}
    finished_cells = {
        name: [cell for cell in method_cells if not cell.crash] for name, method_cells in cells.items()
    }
    metrics = {
        name: _method_metrics(method_cells) if method_cells else {}
        for name, method_cells in finished_cells.items()
    }
    for name, method_cells in cells.items():
        crash_count = sum(bool(cell.crash) for cell in method_cells)
        metrics[name] |= {"crashed_seeds": exact_value(crash_count)} if crash_count else {}
        metrics[name] |= reach_metrics(finished_cells[name], finished_cells.get(against) or [])
    _add_comparisons(metrics, finished_cells, against, bases or {}, controls)
    return metrics


def _add_comparisons(
    metrics: dict[str, dict[str, Estimate]],
    cells: Mapping[str, Sequence[Cell]],
    against: str,
    bases: Mapping[str, str],
    controls: Collection[str],
) -> None:
    """Add each method's comparison with its base; p-values with the same base are corrected together.

    Where another base takes the place of one without cells there is no p-value: that test was not planned.
    Nor has a method with few seeds: their variance is estimated too badly.
    """
    base_of = bases_present(cells, against, bases)
    for base in dict.fromkeys(base_of.values()):
        row_pairs = {
            name: rows
            for name in cells
            if base_of[name] == base and (rows := _paired_rows(cells[name], cells.get(base) or []))
        }
        family = [name for name in cells if bases.get(name, against) == base and name != base]
        p_values = holm_correction(
            {
                name: crossed_p_value(_differences(*row_pairs[name]))
                for name in family
                if name in row_pairs and len(row_pairs[name][0]) >= MIN_TESTED_SEEDS
            },
            family=len(family),
        )
        for name, rows in row_pairs.items():
            metrics[name] |= _comparison_metrics(*rows)
            if name not in p_values:
                continue
            metrics[name]["difference/p_value"] = exact_value(p_values[name])
            is_judged = name not in controls and _is_judged(cells[name], cells[base])
            if is_judged and "ratio/success_rate" in metrics[name]:
                metrics[name]["ratio/non_inferior"] = exact_value(reaches_margin(metrics[name]))


def reaches_margin(metrics: Mapping[str, Estimate]) -> bool:
    """Return whether both intervals of a method's ratio, Fieller's and the bootstrap's, reach `MARGIN`."""
    return min(metrics[f"ratio/{name}"].low for name in ("success_rate", "bootstrap")) >= MARGIN


def _is_judged(cells: Sequence[Cell], base: Sequence[Cell]) -> bool:
    """Return whether the base is trained by RL, and all cells were run after the margin was set."""
    is_trained = any(cell.real_interactions or cell.dreamed_interactions for cell in base)
    return is_trained and all(cell.run_id >= MARGIN_SET for cell in (*cells, *base))


def bases_present(
    cells: Mapping[str, Sequence[Cell] | Mapping[int, Cell]], against: str, bases: Mapping[str, str]
) -> dict[str, str]:
    """Return each method's base: its own one of `bases` if that has cells, else `against`.

    A method that was trained on some families of tasks alone keeps its own: others are no base for it.
    """
    base_of = {name: bases.get(name, against) for name in cells}
    return {
        name: base if cells.get(base) or _is_transfer(cells[name]) else against
        for name, base in base_of.items()
    }


def _is_transfer(cells: Sequence[Cell] | Mapping[int, Cell]) -> bool:
    own = list(cells.values()) if isinstance(cells, Mapping) else cells
    return bool(own and own[0].training_families)


def _paired_rows(cells: Sequence[Cell], base: Sequence[Cell]) -> tuple[Rows, Rows] | None:
    """Return the rows of both methods for their common seeds, so that effects of a seed cancel.

    None if there is nothing to compare.
    """
    if not cells or not base or cells[0].method == base[0].method:
        return None
    require_same_games(cells[0], base[0])
    method_rows, base_rows = (
        {cell.seed: row for cell, row in zip(side, _rows_by_seed(side), strict=True)}
        for side in (cells, base)
    )
    common_seeds = sorted(method_rows.keys() & base_rows.keys())
    if not common_seeds:
        return None
    games = compared_games(cells[0])
    return (
        [{game: method_rows[seed][game] for game in games} for seed in common_seeds],
        [{game: base_rows[seed][game] for game in games} for seed in common_seeds],
    )


def _differences(method_rows: Rows, base_rows: Rows) -> list[list[float]]:
    return [
        [row[game] - base_row[game] for game in row]
        for row, base_row in zip(method_rows, base_rows, strict=True)
    ]


def _comparison_metrics(method_rows: Rows, base_rows: Rows) -> dict[str, Estimate]:
    difference = crossed_mean(_differences(method_rows, base_rows))
    won, base_won = ([list(row.values()) for row in rows] for rows in (method_rows, base_rows))
    metrics = {
        "difference/success_rate": difference,
        "difference/bootstrap": bootstrap_difference(won, base_won),
    }
    if any(map(any, base_won)):
        ratio = crossed_ratio(won, base_won)
        if math.isfinite(ratio.high):
            metrics |= {"ratio/success_rate": ratio, "ratio/bootstrap": bootstrap_ratio(won, base_won)}
    return metrics


def compared_games(cell: Cell) -> list[str]:
    """Return the games of families without training tasks; all games if every family has training tasks."""
    families = cell.training_families
    return [game for game in cell.games if not families or cell.families[game] not in families]


def _method_metrics(cells: Sequence[Cell]) -> dict[str, Estimate]:
    metrics = _success_metrics(cells)
    costs = {
        "real_interactions": [float(cell.real_interactions) for cell in cells],
        "dreamed_interactions": [float(cell.dreamed_interactions) for cell in cells],
        "check_interactions": [float(cell.check_interactions) for cell in cells],
    }
    if all(cell.evaluation_interactions is not None for cell in cells):
        costs["evaluation_interactions"] = [float(cell.evaluation_interactions or 0) for cell in cells]
    for origin in ("offline", "pretraining"):
        if all(origin in cell.recorded_transitions for cell in cells):
            costs[f"{origin}_transitions"] = [float(cell.recorded_transitions[origin]) for cell in cells]
    for name, values in costs.items():
        metrics[f"cost/{name}"] = mean(values)
    agreements = [[agreement for _, _, agreement in cell.watched] for cell in cells if cell.watched]
    if agreements:
        seed_means = [sum(values) / len(values) for values in agreements]
        metrics["watched/rollout_agreement"] = _clip_to_share(mean(seed_means))
    for name in cells[0].figures:
        if all(name in cell.figures for cell in cells):
            values = [cell.figures[name] for cell in cells]
            is_share = all(0 <= value <= 1 for value in values)
            metrics[name] = _clip_to_share(mean(values)) if is_share else mean(values)
    metrics["cost/seconds"] = mean([sum(cell.seconds.values()) for cell in cells])
    return metrics


def _success_metrics(cells: Sequence[Cell]) -> dict[str, Estimate]:
    """Return the success rates: overall, by family, by training families, by seed."""
    rows = _rows_by_seed(cells)
    families = cells[0].families
    metrics = {"evaluate/success_rate": _success_rate(rows)}
    for family in sorted(set(families.values()) - {""}):
        metrics[f"evaluate/success_rate/{family}"] = _success_rate(
            [{game: won for game, won in row.items() if families[game] == family} for row in rows]
        )
    if cells[0].training_families:
        unseen_games = set(compared_games(cells[0]))
        metrics["evaluate/success_rate/held_back"] = _success_rate(
            [{game: won for game, won in row.items() if game in unseen_games} for row in rows]
        )
        metrics["evaluate/success_rate/learnt"] = _success_rate(
            [{game: won for game, won in row.items() if game not in unseen_games} for row in rows]
        )
    for cell in cells:
        metrics[f"evaluate/success_rate/seed_{cell.seed}"] = exact_value(cell.success)
    return metrics


def _success_rate(rows: Sequence[Mapping[str, float]]) -> Estimate:
    """Return the success rate over seeds and games.

    If all games have the same outcome, there is no variance; the interval is Wilson's for the number of
    games.
    """
    values = [value for row in rows for value in row.values()]
    if values and (all(value == 1.0 for value in values) or not any(values)):
        return proportion(round(values[0] * len(rows[0])), len(rows[0]))
    return _clip_to_share(crossed_mean([list(row.values()) for row in rows]))


def _clip_to_share(estimate: Estimate) -> Estimate:
    """Return the estimate with its interval clipped to 0 to 1."""
    return Estimate(estimate.value, estimate.n, max(0.0, estimate.low), min(1.0, estimate.high))


def _rows_by_seed(cells: Sequence[Cell]) -> Rows:
    """Return one row per cell, with the games in the first cell's order.

    Raises:
        DataError: the cells have different games.
    """
    first = cells[0]
    for cell in cells[1:]:
        require_same_games(first, cell)
    return [{game: float(cell.games[game]) for game in first.games} for cell in cells]


def require_same_games(one: Cell, other: Cell) -> None:
    """Raise DataError if two cells have different games."""
    differing_games = set(one.games) ^ set(other.games)
    if differing_games:
        pair = f"{one.method} (seed {one.seed}) and {other.method} (seed {other.seed})"
        raise DataError(
            f"{pair} differ in {len(differing_games)} games, such as {min(differing_games)}.",
            "Expected the same held-out games.",
            "Run the cells again with one evaluation.tasks and the same data.",
        )


def holm_correction(p_values: Mapping[str, float], family: int = 0) -> dict[str, float]:
    """Return p-values corrected for multiple comparisons (Holm 1979, Scand. J. Statist. 6:65), by name.

    Args:
        family: number of comparisons, with those that have no p-value; at least as many as there are.
    """
    corrected = {}
    highest = 0.0
    count = max(family, len(p_values))
    for place, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda pair: pair[1])):
        highest = max(highest, min(1.0, (count - place) * p_value))
        corrected[name] = highest
    return corrected
