"""A study: several methods, each with several seeds, on the same held-out games; cells, their pooling, and what differs.

A cell is one method with one seed, a small file that says everything a table or a figure needs, so that a study may begin on one machine
and end on another. A game's outcome is averaged over a method's seeds before anything is compared: n is the number of games, the
comparison is paired by game (Student's t over the games' differences), and the p-values of all comparisons with one method are corrected
together (Holm 1979). With three seeds there is no honest interval over seeds: each seed's own rate stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.special import stdtr

from components.errors import DataError
from components.evaluation.intervals import Estimate, exact, mean


@dataclass(frozen=True)
class Cell:
    """What one method with one seed came to.

    `games`: task id -> won. `curve`: one (real interactions, dreamed interactions, seconds, success of the rollouts) an iteration of RL,
    all counted from the cloned policy. `curriculum`: `Curriculum.life` of RL in the dream. `seconds`: stage -> wall time. `origin` tells
    config, data and models: a cell is read back for the same alone. `crash` says how it ended if it did not come to its end; then
    there are no games.
    """

    method: str
    seed: int
    origin: dict[str, Any]
    games: dict[str, bool] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)
    real_interactions: int = 0
    dreamed_interactions: int = 0
    check_interactions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[list[float]] = field(default_factory=list)
    curriculum: list[dict[str, Any]] = field(default_factory=list)
    run_id: str = ""
    commit: str = ""
    crash: str = ""

    @property
    def success(self) -> float:
        """Share of the held-out games won."""
        return sum(self.games.values()) / len(self.games)


def summarise(cells: Mapping[str, Sequence[Cell]], against: str) -> dict[str, dict[str, Estimate]]:
    """Metrics of each method over its seeds, and its difference from the method `against`; a method without a finished cell has none.

    `evaluate/success_rate`, also by family; `cost/...` as means over the seeds; `difference/success_rate` with `difference/p_value`
    (two-sided, Holm-corrected over all methods compared) and `ratio/success_rate`, whose interval is the difference's over the base.
    """
    whole = {name: [cell for cell in found if not cell.crash] for name, found in cells.items()}
    metrics = {name: _of_method(found) if found else {} for name, found in whole.items()}
    base = whole.get(against) or []
    compared = {name: _differences(found, base) for name, found in whole.items() if found and base and name != against}
    corrected = holm({name: p_value(values) for name, values in compared.items()})
    for name, values in compared.items():
        difference, rate = mean(values), metrics[against]["evaluate/success_rate"].value
        metrics[name]["difference/success_rate"] = difference
        metrics[name]["difference/p_value"] = exact(corrected[name])
        if rate:
            ends = [1 + part / rate for part in (difference.value, difference.low, difference.high)]
            metrics[name]["ratio/success_rate"] = Estimate(ends[0], difference.n, ends[1], ends[2])
    return metrics


def _of_method(cells: Sequence[Cell]) -> dict[str, Estimate]:
    rates, families = _by_game(cells), cells[0].families
    found = {"evaluate/success_rate": _inside(mean(list(rates.values())))}
    for family in sorted(set(families.values())):
        found[f"evaluate/success_rate/{family}"] = _inside(mean([rate for game, rate in rates.items() if families[game] == family]))
    for cell in cells:
        found[f"evaluate/success_rate/seed_{cell.seed}"] = exact(cell.success)
    for cost in ("real_interactions", "dreamed_interactions", "check_interactions"):
        found[f"cost/{cost}"] = mean([float(getattr(cell, cost)) for cell in cells])
    found["cost/seconds"] = mean([sum(cell.seconds.values()) for cell in cells])
    return found


def _by_game(cells: Sequence[Cell]) -> dict[str, float]:
    """Of each game the share of the seeds that won it.

    Raises:
        DataError: the cells played other games.
    """
    first = cells[0]
    for cell in cells[1:]:
        _same_games(first, cell)
    return {game: sum(cell.games[game] for cell in cells) / len(cells) for game in first.games}


def _same_games(one: Cell, other: Cell) -> None:
    missing = set(one.games) ^ set(other.games)
    if missing:
        pair = f"{one.method} (seed {one.seed}) and {other.method} (seed {other.seed})"
        found = f"{pair} differ in {len(missing)} games, such as {min(missing)}."
        raise DataError(found, "Expected the same held-out games.", "Make the cells again with one evaluation.tasks and the same data.")


def _differences(cells: Sequence[Cell], base: Sequence[Cell]) -> list[float]:
    """Game by game; of the seeds that both have, if they have some, so that what a seed shares cancels."""
    _same_games(cells[0], base[0])
    shared = {cell.seed for cell in cells} & {cell.seed for cell in base}
    one, other = ([cell for cell in side if cell.seed in shared or not shared] for side in (cells, base))
    rates, others = _by_game(one), _by_game(other)
    return [rates[game] - others[game] for game in rates]


def p_value(values: Sequence[float]) -> float:
    """Two-sided p of Student's t that the mean is 0; 1.0 where all values are 0 or there are fewer than two."""
    found = mean(values)
    if found.n < 2 or not any(values):
        return 1.0
    deviation = math.sqrt(math.fsum((value - found.value) ** 2 for value in values) / (found.n - 1))
    return 0.0 if deviation == 0 else 2 * float(stdtr(found.n - 1, -abs(found.value) / (deviation / math.sqrt(found.n))))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for their number (Holm 1979, Scand. J. Statist. 6:65), by name."""
    corrected, highest = {}, 0.0
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        highest = max(highest, min(1.0, (len(values) - place) * value))
        corrected[name] = highest
    return corrected


def reached_at(cell: Cell, success: float, window: int = 3) -> tuple[float, float] | None:
    """(real interactions, seconds) after which the mean success of `window` iterations' rollouts was `success`; None if never."""
    for place in range(window, len(cell.curve) + 1):
        if sum(point[3] for point in cell.curve[place - window : place]) / window >= success:
            return cell.curve[place - 1][0], cell.curve[place - 1][2]
    return None


def _inside(estimate: Estimate) -> Estimate:
    return Estimate(estimate.value, estimate.n, max(0.0, estimate.low), min(1.0, estimate.high))
