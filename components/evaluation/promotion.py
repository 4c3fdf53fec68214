"""The promotion gate: does a challenger replace the champion, and why.

The vocabulary is that of MLflow's model validation: `threshold` is a floor of the challenger's own success rate, also for the
very first champion; `min_absolute_change` is the least gain over the champion **on the same games**; `max_p_value` is how likely by
chance such a gain may be (McNemar's exact test); `max_family_drop` is the most that any one family of tasks may lose. The dream that
the policy comes from must have been held against reality: `rollout_agreement` has the floor of the fidelity gate; a policy that dreamed no
success passes with n = 0, as nothing was there that reality could deny, and the floor of its real games decides. Games that only one of
the two has played count for the floor alone. A refusal is a normal outcome, not an error. Conditions compare point values; the intervals
stand beside them, so that a reader sees how sure a number is: a family has few games, so its margin is wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.intervals import Estimate, paired_difference, proportion

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """One condition of the gate: `value` must reach `threshold`, or stay at or below it where it is not `greater_is_better`.

    `low` and `high` are the ends of the value's interval.
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

    def to_row(self) -> str:
        """One row of the decision's Markdown table."""
        cells = [self.name, self.metric, f"{self.value:.3f}", f"{self.low:.3f} to {self.high:.3f}", str(self.n), f"{self.threshold:.3f}"]
        return "| " + " | ".join([*cells, "pass" if self.passed else "fail"]) + " |"


@dataclass(frozen=True)
class Decision:
    """The verdict, every condition behind it, and one sentence that says why."""

    promoted: bool
    conditions: list[Condition]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest, MLflow and the report."""
        conditions = [dict(vars(condition)) for condition in self.conditions]
        return {"promoted": self.promoted, "reason": self.reason, "conditions": conditions}

    def to_markdown(self) -> str:
        """A sentence and a table with one row a condition."""
        rows = [condition.to_row() for condition in self.conditions]
        head = ["| condition | metric | value | interval | n | needed | result |", "|---|---|---|---|---|---|---|"]
        return "\n".join([f"**{'Promoted' if self.promoted else 'Not promoted'}.** {self.reason}", "", *head, *rows, ""])


def decide(
    challenger: Mapping[str, bool],
    champion: Mapping[str, bool] | None,
    config: PromotionConfig,
    confidence: float = 0.95,
    *,
    families: Mapping[str, str] | None = None,
    agreement: tuple[Estimate, float] | None = None,
) -> Decision:
    """Judge the challenger's outcomes (task id -> success) against the floor and, where there is one, against the champion's.

    Args:
        families: task id -> family, for the drop of each; without them no family is looked at.
        agreement: the dream's `rollout_agreement` on the challenger's own dreams, and its floor.

    Raises:
        DataError: the challenger has played no game, or the two have no game in common.
    """
    if not challenger:
        raise DataError("The challenger has played no game.", "Expected at least one held-out game.", "Raise evaluation.tasks.")
    conditions = [_floor(challenger, config.threshold, confidence)]
    if agreement is not None:
        conditions.append(_agreement(*agreement))
    if champion is not None:
        shared = _shared(challenger, champion)
        conditions.append(_gain(challenger, champion, shared, config.min_absolute_change, confidence))
        if config.max_p_value < 1:
            conditions.append(_chance(challenger, champion, shared, config.max_p_value))
        for family in sorted({families[task] for task in shared} if families else ()):
            of_family = [task for task in shared if families and families[task] == family]
            conditions.append(_drop(challenger, champion, of_family, family, config.max_family_drop, confidence))
    failed = [condition.reason for condition in conditions if not condition.passed]
    if failed:
        return Decision(False, conditions, " ".join(failed))
    first = ["There is no champion yet: the floor decides."] if champion is None else []
    told = [condition.reason for condition in conditions if condition.name != "max_family_drop"]
    return Decision(True, conditions, " ".join([*told, *first]))


def _floor(challenger: Mapping[str, bool], threshold: float, confidence: float) -> Condition:
    wins = sum(challenger.values())
    rate = proportion(wins, len(challenger), confidence)
    passed = rate.value >= threshold - _ROUNDING
    side = "at or above" if passed else "below"
    reason = f"It won {wins} of {rate.n} games ({rate.value:.3f}, {rate.low:.3f} to {rate.high:.3f}), {side} the floor {threshold:.3f}."
    return Condition("threshold", "success_rate", rate.value, threshold, rate.n, rate.low, rate.high, passed, reason)


def _agreement(found: Estimate, floor: float) -> Condition:
    passed = found.n == 0 or found.value >= floor - _ROUNDING
    reason = f"The real engine confirmed {found.value:.3f} of {found.n} dreamed successes; the floor is {floor:.3f}."
    if found.n == 0:
        reason = "No dreamed success was there to be confirmed."
    return Condition("rollout_agreement", "fidelity/rollout_agreement", found.value, floor, found.n, found.low, found.high, passed, reason)


def _shared(challenger: Mapping[str, bool], champion: Mapping[str, bool]) -> list[str]:
    shared = sorted(set(challenger) & set(champion))
    if not shared:
        found = f"Challenger ({len(challenger)} games) and champion ({len(champion)} games) have no game in common."
        raise DataError(found, "Expected the same held-out games.", "Evaluate both with the same environment and evaluation.tasks.")
    return shared


def _gain(
    challenger: Mapping[str, bool], champion: Mapping[str, bool], shared: Sequence[str], needed: float, confidence: float
) -> Condition:
    gain = paired_difference([challenger[task] for task in shared], [champion[task] for task in shared], confidence)
    passed = gain.value >= needed - _ROUNDING
    left_out = len(set(challenger) | set(champion)) - len(shared)
    reason = (
        f"Against the champion it gained {gain.gained} and lost {gain.lost} of {gain.n} shared games "
        f"({gain.value:+.3f}, {gain.low:+.3f} to {gain.high:+.3f}, McNemar p={gain.p_value:.3f}), "
        f"{'at or above' if passed else 'below'} the needed {needed:+.3f}."
    )
    if gain.low <= 0 <= gain.high:
        reason += " The interval holds 0: the difference may be chance."
    if left_out:
        reason += f" {left_out} games that only one of them played do not count here."
    return Condition("min_absolute_change", "success_rate_change", gain.value, needed, gain.n, gain.low, gain.high, passed, reason)


def _chance(challenger: Mapping[str, bool], champion: Mapping[str, bool], shared: Sequence[str], most: float) -> Condition:
    found = paired_difference([challenger[task] for task in shared], [champion[task] for task in shared])
    p = found.p_value
    passed = p <= most + _ROUNDING
    side = "at or below" if passed else "above"
    reason = f"A difference like this comes by chance with p={p:.3f} (McNemar), {side} the allowed {most:.3f}."
    return Condition("max_p_value", "mcnemar_p_value", p, most, found.n, p, p, passed, reason, greater_is_better=False)


def _drop(
    challenger: Mapping[str, bool], champion: Mapping[str, bool], tasks: Sequence[str], family: str, most: float, confidence: float
) -> Condition:
    change = paired_difference([challenger[task] for task in tasks], [champion[task] for task in tasks], confidence)
    passed = change.value >= -most - _ROUNDING
    reason = (
        f"Of the family {family} it gained {change.gained} and lost {change.lost} of {change.n} games ({change.value:+.3f}), "
        f"{'no more than' if passed else 'more than'} the allowed loss of {most:.3f}."
    )
    name = f"success_rate_change/{family}"
    return Condition("max_family_drop", name, change.value, -most, change.n, change.low, change.high, passed, reason)
