"""The promotion gate: does a challenger replace the champion, and why.

The vocabulary is that of MLflow's model validation. The games are validation games; the test split is not
read.
`threshold`: the lower bound of the challenger's success rate must reach it, also for the very first champion.
`min_absolute_change`: the least gain over the champion **on the same games**. `max_p_value`: the one-sided
p-value of McNemar's exact test must not exceed it. `max_family_drop`: the most that any one family of tasks
may lose: the bounds of its change on the same games must not reach further down.
`rollout_agreement`: the dream must have passed the fidelity gate on the challenger's own dreams; without a
dreamed success it passes.

The gate looks after each batch of games, at most `max_batches` times. A condition that its interval does not
decide is undecided, and the gate plays on (`promotion_batches.py`). Each look has an even share of the error
(`sequential.py`). So a challenger that is no better than the champion is promoted with a probability of at
most `max_p_value`, and one below the floor with at most 1 - `confidence`. A challenger that is not ahead of
the champion by `min_absolute_change` is refused at once: this only lowers the first of these rates. What is
still undecided after the last batch is refused: the champion stays until a better policy is shown. Of a
family that is still undecided then, the change itself decides: its few games would otherwise refuse almost
everyone. A refusal is a normal outcome, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, PairedDifference, paired_difference
from components.evaluation.metrics.sequential import (
    ABOVE,
    BELOW,
    exact_bounds,
    mcnemar_greater,
    verdict_against,
)

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """One condition of the gate: `value` must reach `threshold`, or stay at or below it where it is not
    `greater_is_better`.

    `low` and `high` are the ends of the value's interval. `undecided` says that further games could still
    make it pass: it counts as not passed.
    """

    name: str
    metric: str
    value: float
    threshold: float
    n: int
    low: float
    high: float
    passed: bool
    reason: str
    greater_is_better: bool = True
    undecided: bool = False

    def to_row(self) -> str:
        """One row of the decision's Markdown table."""
        cells = [
            self.name,
            self.metric,
            f"{self.value:.3f}",
            f"{self.low:.3f} to {self.high:.3f}",
            str(self.n),
            f"{self.threshold:.3f}",
        ]
        return (
            "| "
            + " | ".join([*cells, "pass" if self.passed else "undecided" if self.undecided else "fail"])
            + " |"
        )


@dataclass(frozen=True)
class Decision:
    """The verdict, every condition behind it, and one sentence that says why."""

    promoted: bool
    conditions: list[Condition]
    reason: str

    @property
    def undecided(self) -> bool:
        """True if no condition is failed for good, and one of them needs further games."""
        failed = [condition for condition in self.conditions if not condition.passed]
        return bool(failed) and all(condition.undecided for condition in failed)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest, MLflow and the report."""
        conditions = [dict(vars(condition)) for condition in self.conditions]
        return {"promoted": self.promoted, "reason": self.reason, "conditions": conditions}

    def to_markdown(self) -> str:
        """A sentence and a table with one row a condition."""
        rows = [condition.to_row() for condition in self.conditions]
        head = [
            "| condition | metric | value | interval | n | needed | result |",
            "|---|---|---|---|---|---|---|",
        ]
        return "\n".join(
            [f"**{'Promoted' if self.promoted else 'Not promoted'}.** {self.reason}", "", *head, *rows, ""]
        )


def decide(
    challenger: Mapping[str, bool],
    champion: Mapping[str, bool] | None,
    config: PromotionConfig,
    confidence: float = 0.95,
    *,
    families: Mapping[str, str] | None = None,
    agreement: tuple[Estimate, float] | None = None,
    is_champion: bool = False,
    final: bool = False,
) -> Decision:
    """Judge the challenger's outcomes (task id -> success) against the floor and, where there is one, against
    the champion's.

    Args:
        confidence: two-sided level of the interval that is shown beside the gain.
        families: task id -> family, or '' where it has none, for the drop of each; without them no family is
            looked at.
        agreement: the dream's `rollout_agreement` on the challenger's own dreams, and its floor.
        is_champion: the challenger is the champion itself, so there is nothing to compare.
        final: no further games will be played.

    Raises:
        DataError: the challenger has played no game, or the two have no game in common.
    """
    if not challenger:
        raise DataError(
            "The challenger has played no game.",
            "Expected at least one validation game.",
            "Raise evaluation.tasks.",
        )
    conditions = [_floor(challenger, config)]
    if agreement is not None:
        conditions.append(_agreement(*agreement))
    if champion is not None and not is_champion:
        shared = _shared(challenger, champion)
        gain = paired_difference(
            [challenger[task] for task in shared], [champion[task] for task in shared], confidence
        )
        conditions.append(
            _gain(gain, len(set(challenger) | set(champion)) - len(shared), config.min_absolute_change)
        )
        if config.max_p_value < 1:
            conditions.append(_chance(gain, config))
        named = {task: families[task] for task in shared if families[task]} if families else {}
        changes = family_changes(challenger, champion, named, config)
        conditions += [
            _drop(change, family, config.max_family_drop, final) for family, change in changes.items()
        ]
    failed = [condition.reason for condition in conditions if not condition.passed]
    if failed:
        return Decision(False, conditions, " ".join(failed))
    last = ["There is no champion yet: the floor decides."] if champion is None else []
    last = ["It is the champion already: there is nothing to compare."] if is_champion else last
    reasons = [condition.reason for condition in conditions if condition.name != "max_family_drop"]
    return Decision(True, conditions, " ".join([*reasons, *last]))


def _floor(challenger: Mapping[str, bool], config: PromotionConfig) -> Condition:
    wins, n, looks, floor = sum(challenger.values()), len(challenger), config.max_batches, config.threshold
    low, high = exact_bounds(wins, n, (1 - config.confidence) / looks)
    verdict = verdict_against(floor, wins, n, looks=looks, error=1 - config.confidence)
    passed, undecided = verdict == ABOVE, verdict not in (ABOVE, BELOW)
    place = {ABOVE: "lies at or above", BELOW: "and the upper bound lie below"}.get(
        verdict, "lies below, the upper bound above"
    )
    reason = (
        f"It won {wins} of {n} validation games ({wins / n:.3f}; bounds {low:.3f} to {high:.3f}): "
        f"the lower bound {place} the floor {floor:.3f}{_after(undecided)}."
    )
    return Condition(
        "threshold", "success_rate", wins / n, floor, n, low, high, passed, reason, undecided=undecided
    )


def _after(undecided: bool) -> str:
    return ", so it is not shown that the challenger reaches it" if undecided else ""


def _agreement(found: Estimate, floor: float) -> Condition:
    passed = found.n == 0 or found.value >= floor - _ROUNDING
    reason = (
        f"The real engine confirmed {found.value:.3f} of {found.n} dreamed successes; the floor is "
        f"{floor:.3f}."
    )
    if found.n and passed and found.low < floor:
        reason += " The interval holds the floor after the last batch, so the share itself decided."
    if found.n == 0:
        reason = "No dreamed success was there to be confirmed."
    return Condition(
        "rollout_agreement",
        "fidelity/rollout_agreement",
        found.value,
        floor,
        found.n,
        found.low,
        found.high,
        passed,
        reason,
    )


def _shared(challenger: Mapping[str, bool], champion: Mapping[str, bool]) -> list[str]:
    shared = sorted(set(challenger) & set(champion))
    if not shared:
        found = (
            f"Challenger ({len(challenger)} games) and champion ({len(champion)} games) have no game in "
            "common."
        )
        raise DataError(
            found,
            "Expected the same validation games.",
            "Evaluate both with the same environment and evaluation.tasks.",
        )
    return shared


def _gain(gain: PairedDifference, left_out: int, needed: float) -> Condition:
    """A challenger that is not ahead is refused for good: further games would seldom show a gain worth
    having.
    """
    passed = gain.value >= needed - _ROUNDING
    reason = (
        f"Against the champion it gained {gain.gained} and lost {gain.lost} of {gain.n} shared games "
        f"({gain.value:+.3f}, {gain.low:+.3f} to {gain.high:+.3f}), "
        f"{'at or above' if passed else 'below'} the needed {needed:+.3f}."
    )
    if gain.low <= 0 <= gain.high:
        reason += " The interval holds 0: the difference may be chance."
    if left_out:
        reason += f" {left_out} games that only one of them played do not count here."
    return Condition(
        "min_absolute_change",
        "success_rate_change",
        gain.value,
        needed,
        gain.n,
        gain.low,
        gain.high,
        passed,
        reason,
    )


def _chance(gain: PairedDifference, config: PromotionConfig) -> Condition:
    p, most = mcnemar_greater(gain.gained, gain.lost), config.max_p_value / config.max_batches
    passed = p <= most + _ROUNDING
    share = (
        f" (max_p_value {config.max_p_value:g} over {config.max_batches} looks)"
        if config.max_batches > 1
        else ""
    )
    side = "at or below" if passed else "above"
    reason = (
        f"A gain like this comes by chance with p={p:.4f} (McNemar, one-sided), {side} the allowed "
        f"{most:.4f}{share}."
    )
    return Condition(
        "max_p_value",
        "mcnemar_p_value",
        p,
        most,
        gain.n,
        p,
        p,
        passed,
        reason,
        greater_is_better=False,
        undecided=not passed,
    )


def family_changes(
    challenger: Mapping[str, bool],
    champion: Mapping[str, bool],
    families: Mapping[str, str],
    config: PromotionConfig,
) -> dict[str, PairedDifference]:
    """Family -> its change on the same games, with bounds that hold for all families at all looks together.

    Each bound is missed with a probability of at most (1 - `confidence`) / (`max_batches` times families):
    see `sequential.py`. One look is Newcombe's interval (1998, method 10). Args: families: shared task id ->
    family.
    """
    names = sorted(set(families.values()))
    error = (1 - config.confidence) / (config.max_batches * max(1, len(names)))
    tasks = {name: [task for task in sorted(families) if families[task] == name] for name in names}
    return {
        name: paired_difference(
            [challenger[task] for task in own], [champion[task] for task in own], 1 - 2 * error
        )
        for name, own in tasks.items()
    }


def _drop(change: PairedDifference, family: str, most: float, final: bool) -> Condition:
    """Passed where the lower bound reaches `-most`, failed for good where the upper bound lies below it."""
    is_decided = change.low >= -most - _ROUNDING or change.high < -most - _ROUNDING
    undecided = not is_decided and not final
    passed = (
        change.value >= -most - _ROUNDING if not is_decided and final else change.low >= -most - _ROUNDING
    )
    verdict = {
        (True, True): "it does not lose more than",
        (True, False): "it loses more than",
        (False, True): "the change is no more than",
        (False, False): "the change is more than",
    }[is_decided, passed]
    if undecided:
        verdict = "the bounds hold"
    reason = (
        f"Of the family {family} it gained {change.gained} and lost {change.lost} of {change.n} games "
        f"({change.value:+.3f}; bounds {change.low:+.3f} to {change.high:+.3f}): {verdict} the allowed loss "
        f"of {most:.3f}."
    )
    if final and not is_decided:
        reason += " The bounds hold that loss after the last batch, so the change itself decided."
    name = f"success_rate_change/{family}"
    return Condition(
        "max_family_drop",
        name,
        change.value,
        -most,
        change.n,
        change.low,
        change.high,
        passed,
        reason,
        undecided=undecided,
    )
