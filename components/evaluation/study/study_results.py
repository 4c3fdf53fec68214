"""A study: several methods, each with several seeds, on the same held-out games; cells, their pooling, and
what differs.

A cell is one method with one seed, a small file that says everything a table or a figure needs, so that a
study may begin on one machine and end on another. A comparison is paired by game and seed, its interval
speaks of further games and further seeds (`crossed_mean`; n is the number of games), and the p-values of all
comparisons with one method are corrected together (Holm 1979). Each seed's own rate stands beside. Methods
that learnt from some families of tasks alone are compared on games of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from components.errors import DataError
from components.evaluation.metrics.intervals import (
    Estimate,
    crossed_mean,
    crossed_p_value,
    exact,
    mean,
    proportion,
)

Rows = list[dict[str, float]]
"""A row a seed: game -> 1.0 where it was won."""
Point = tuple[float, float]
"""Where training has come to: (real interactions, seconds)."""


@dataclass(frozen=True)
class Cell:
    """What one method with one seed came to.

    `games`: task id -> won. `curve`: one (real interactions, dreamed interactions, seconds, success of the
    rollouts) an iteration of RL, all counted from the cloned policy; `held_out`: the same of policies on the
    way, with their success on the held-out games in place of the rollouts'. `watched`: one (iteration,
    dreamed success, share of replayed dreamed successes that were confirmed) a look of the watch.
    `curriculum`: `Curriculum.life` of RL in the dream. `figures`: what its dream and its RL were like, by
    name: fidelity of single steps, and means over the iterations of what taught and what did not. `seconds`:
    stage -> wall time. `origin` tells config, data and models: a cell is read back for the same alone.
    `policy` is the policy's content hash, empty in older cells. `crash` says how it ended if it did not come
    to its end; then there are no games.
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
    held_out: list[list[float]] = field(default_factory=list)
    curriculum: list[dict[str, Any]] = field(default_factory=list)
    watched: list[list[float]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    run_id: str = ""
    commit: str = ""
    policy: str = ""
    crash: str = ""

    @property
    def success(self) -> float:
        """Share of the held-out games won."""
        return sum(self.games.values()) / len(self.games)

    @property
    def learnt(self) -> list[str]:
        """The families of tasks that it learnt from; empty: all."""
        families: list[str] = self.origin.get("config", {}).get("data", {}).get("families", [])
        return families


def require_different_cells(cells: Mapping[str, Sequence[Cell]]) -> None:
    """Refuse a method of which two seeds are one policy: of the same run, or with the same content hash. It
    would be a false n.

    Raises:
        DataError: two seeds of a method are one policy.
    """
    for method, found in cells.items():
        for one, other in combinations([cell for cell in found if not cell.crash], 2):
            if (one.run_id and one.run_id == other.run_id) or (one.policy and one.policy == other.policy):
                what = (
                    f"The cells {method}, seed {one.seed} and seed {other.seed}, are one policy (run "
                    f"{one.run_id}, run {other.run_id})."
                )
                raise DataError(
                    what,
                    "Expected a policy of its own for each seed.",
                    f"Remove {method}-{other.seed}.json and make it again.",
                )


def summarise(
    cells: Mapping[str, Sequence[Cell]], against: str, bases: Mapping[str, str] | None = None
) -> dict[str, dict[str, Estimate]]:
    """Metrics of each method over its seeds, and its difference from another; of a method without a finished
    cell the crashes alone.

    `evaluate/success_rate`, also by family, and `.../learnt` and `.../held_back` where only some were learnt
    from; `cost/...` as means over the seeds; `difference/success_rate` with `difference/p_value` (two-sided,
    Holm-corrected over all methods compared with the same one) and `ratio/success_rate`, whose interval is
    the difference's over the base of the same seeds and games. `reached/...`: see `_reached`.
    `watched/rollout_agreement`: share of the dreamed successes replayed by the watch that were confirmed, a
    mean a seed. The names of `Cell.figures` that all seeds have: means over the seeds.
    `crashed_seeds`: cells that came to no end, where there are any.

    Args: bases: what some methods are compared with, in place of `against`.
    """
    whole = {name: [cell for cell in found if not cell.crash] for name, found in cells.items()}
    metrics = {name: _of_method(found) if found else {} for name, found in whole.items()}
    for name, found in cells.items():
        metrics[name] |= (
            {"crashed_seeds": exact(lost)} if (lost := sum(bool(cell.crash) for cell in found)) else {}
        )
        metrics[name] |= _reached(whole[name], whole.get(against) or [])
    beside = {name: (bases or {}).get(name, against) for name in whole}
    for base in dict.fromkeys(beside.values()):
        compared = {
            name: pair
            for name in whole
            if beside[name] == base and (pair := _pair(whole[name], whole.get(base) or []))
        }
        corrected = holm({name: crossed_p_value(_differences(*pair)) for name, pair in compared.items()})
        for name, pair in compared.items():
            metrics[name] |= _beside(*pair) | {"difference/p_value": exact(corrected[name])}
    return metrics


def _pair(cells: Sequence[Cell], base: Sequence[Cell]) -> tuple[Rows, Rows] | None:
    """The rows of both sides, of the seeds that both have, so that what a seed shares cancels; None where
    there is none to compare.
    """
    if not cells or not base or cells[0].method == base[0].method:
        return None
    _same_games(cells[0], base[0])
    ours, theirs = (
        {cell.seed: row for cell, row in zip(side, _by_seed(side), strict=True)} for side in (cells, base)
    )
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    mine, other = ([side[seed] for seed in shared] for side in (ours, theirs))
    kept = _held_back(cells[0])
    return [{game: row[game] for game in kept} for row in mine], [
        {game: row[game] for game in kept} for row in other
    ]


def _differences(ours: Rows, theirs: Rows) -> list[list[float]]:
    return [[mine[game] - other[game] for game in mine] for mine, other in zip(ours, theirs, strict=True)]


def _beside(ours: Rows, theirs: Rows) -> dict[str, Estimate]:
    difference = crossed_mean(_differences(ours, theirs))
    metrics, rate = (
        {"difference/success_rate": difference},
        crossed_mean([list(row.values()) for row in theirs]).value,
    )
    if rate:
        ends = [1 + part / rate for part in (difference.value, difference.low, difference.high)]
        metrics["ratio/success_rate"] = Estimate(ends[0], difference.n, ends[1], ends[2])
    return metrics


def _held_back(cell: Cell) -> list[str]:
    """The games of families that it did not learn from; all of them where it learnt from all."""
    return [game for game in cell.games if not cell.learnt or cell.families[game] not in cell.learnt]


def _of_method(cells: Sequence[Cell]) -> dict[str, Estimate]:
    rows, families = _by_seed(cells), cells[0].families
    found = {"evaluate/success_rate": _rate(rows)}
    for family in sorted(set(families.values()) - {""}):
        found[f"evaluate/success_rate/{family}"] = _rate(
            [{game: won for game, won in row.items() if families[game] == family} for row in rows]
        )
    if cells[0].learnt:
        kept = set(_held_back(cells[0]))
        found["evaluate/success_rate/held_back"] = _rate(
            [{game: won for game, won in row.items() if game in kept} for row in rows]
        )
        found["evaluate/success_rate/learnt"] = _rate(
            [{game: won for game, won in row.items() if game not in kept} for row in rows]
        )
    for cell in cells:
        found[f"evaluate/success_rate/seed_{cell.seed}"] = exact(cell.success)
    for cost in ("real_interactions", "dreamed_interactions", "check_interactions"):
        found[f"cost/{cost}"] = mean([float(getattr(cell, cost)) for cell in cells])
    looked = [[confirmed for _, _, confirmed in cell.watched] for cell in cells if cell.watched]
    if looked:
        found["watched/rollout_agreement"] = _share(mean([sum(looks) / len(looks) for looks in looked]))
    for name in cells[0].figures:
        if all(name in cell.figures for cell in cells):
            values = [cell.figures[name] for cell in cells]
            found[name] = _share(mean(values)) if all(0 <= value <= 1 for value in values) else mean(values)
    found["cost/seconds"] = mean([sum(cell.seconds.values()) for cell in cells])
    return found


def _rate(rows: Sequence[Mapping[str, float]]) -> Estimate:
    """A success rate; where all games ended alike there is no spread to reckon with, and the interval is
    Wilson's for as many games.
    """
    values = [value for row in rows for value in row.values()]
    if values and (all(value == 1.0 for value in values) or not any(values)):
        return proportion(round(values[0] * len(rows[0])), len(rows[0]))
    return _share(crossed_mean([list(row.values()) for row in rows]))


def _share(found: Estimate) -> Estimate:
    """What cannot be below 0 or above 1 has no interval beyond either."""
    return Estimate(found.value, found.n, max(0.0, found.low), min(1.0, found.high))


def _by_seed(cells: Sequence[Cell]) -> Rows:
    """Of each cell the games in the order of the first one's, 1.0 where it won.

    Raises:
        DataError: the cells played other games.
    """
    first = cells[0]
    for cell in cells[1:]:
        _same_games(first, cell)
    return [{game: float(cell.games[game]) for game in first.games} for cell in cells]


def _same_games(one: Cell, other: Cell) -> None:
    missing = set(one.games) ^ set(other.games)
    if missing:
        pair = f"{one.method} (seed {one.seed}) and {other.method} (seed {other.seed})"
        found = f"{pair} differ in {len(missing)} games, such as {min(missing)}."
        raise DataError(
            found,
            "Expected the same held-out games.",
            "Make the cells again with one evaluation.tasks and the same data.",
        )


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for their number (Holm 1979, Scand. J. Statist. 6:65), by name."""
    corrected, highest = {}, 0.0
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        highest = max(highest, min(1.0, (len(values) - place) * value))
        corrected[name] = highest
    return corrected


def reached_at(cell: Cell, success: float) -> Point | None:
    """Where a policy on the way, or the last one, first won that share of the held-out games."""
    last = [[*cell.curve[-1][:3], cell.success]] if cell.curve else []
    return next(((point[0], point[2]) for point in [*cell.held_out, *last] if point[3] >= success), None)


def reached_by(cells: Sequence[Cell], base: Sequence[Cell]) -> list[tuple[Point | None, Point]]:
    """A pair a seed: where a cell won as many held-out games as its base did in the end (None: nowhere), and
    where the base did.
    """
    ends = {
        cell.seed: (cell.success, found)
        for cell in base
        if cell.held_out and (found := reached_at(cell, cell.success))
    }
    return [
        (reached_at(cell, ends[cell.seed][0]), ends[cell.seed][1])
        for cell in cells
        if cell.held_out and cell.seed in ends
    ]


def _reached(cells: Sequence[Cell], base: Sequence[Cell]) -> dict[str, Estimate]:
    """What it took to win as many held-out games as the base of the same seed does in the end; n counts the
    seeds that came there.

    `reached/seconds_ratio` is over the base's own seconds to the same success. Both sides are the first of
    several policies that did so, each looked at once, so a lucky one counts. `reached/step_seconds/even` and
    `.../third`: how much longer a real step would have to take (all environments together) for the method to
    need as long as the base, and a third of it; of the seeds in which it took less than a third of the base's
    real steps.
    """
    there = reached_by(cells, base)
    pairs = [(own, other) for own, other in there if own is not None]
    if not there:
        return {}
    metrics = {"reached/seeds": Estimate(float(len(pairs)), len(there), float(len(pairs)), float(len(pairs)))}
    if pairs:
        metrics["reached/real_interactions"] = mean([own[0] for own, _ in pairs])
        metrics["reached/seconds"] = mean([own[1] for own, _ in pairs])
        metrics["reached/seconds_ratio"] = mean([own[1] / other[1] for own, other in pairs])
    sparing = [(own, other) for own, other in pairs if 3 * own[0] < other[0]]
    for name, share in (("even", 1), ("third", 3)) if sparing else ():
        metrics[f"reached/step_seconds/{name}"] = mean(
            [(share * own[1] - other[1]) / (other[0] - share * own[0]) for own, other in sparing]
        )
    return metrics
