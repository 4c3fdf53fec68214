"""The promotion gate: does a challenger replace the champion, and why.

The vocabulary is that of MLflow's model validation: `threshold` is a floor of the challenger's own success rate, also for the
very first champion; `min_absolute_change` is the least gain over the champion **on the same games**. Games that only one of
the two has played count for the floor but not for the gain. A refusal is a normal outcome, not an error. The conditions
compare point values; the intervals and McNemar's p-value stand beside them, so that a reader sees how sure the number is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.intervals import paired_difference, proportion

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """One condition of the gate: it passes if `value` >= `threshold`. `low` and `high` are the ends of the value's interval."""

    name: str
    metric: str
    value: float
    threshold: float
    n: int
    low: float
    high: float
    passed: bool
    reason: str

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
) -> Decision:
    """Judge the challenger's outcomes (task id -> success) against the floor and, where there is one, against the champion's.

    Raises:
        DataError: the challenger has played no game, or the two have no game in common.
    """
    if not challenger:
        raise DataError("The challenger has played no game.", "Expected at least one held-out game.", "Raise evaluation.tasks.")
    conditions = [_floor(challenger, config.threshold, confidence)]
    if champion is not None:
        conditions.append(_gain(challenger, champion, config.min_absolute_change, confidence))
    failed = [condition.reason for condition in conditions if not condition.passed]
    if failed:
        return Decision(False, conditions, " ".join(failed))
    first = ["There is no champion yet: the floor alone decides."] if champion is None else []
    return Decision(True, conditions, " ".join([*(condition.reason for condition in conditions), *first]))


def _floor(challenger: Mapping[str, bool], threshold: float, confidence: float) -> Condition:
    wins = sum(challenger.values())
    rate = proportion(wins, len(challenger), confidence)
    passed = rate.value >= threshold - _ROUNDING
    side = "at or above" if passed else "below"
    reason = f"It won {wins} of {rate.n} games ({rate.value:.3f}, {rate.low:.3f} to {rate.high:.3f}), {side} the floor {threshold:.3f}."
    return Condition("threshold", "success_rate", rate.value, threshold, rate.n, rate.low, rate.high, passed, reason)


def _gain(challenger: Mapping[str, bool], champion: Mapping[str, bool], needed: float, confidence: float) -> Condition:
    shared = sorted(set(challenger) & set(champion))
    if not shared:
        found = f"Challenger ({len(challenger)} games) and champion ({len(champion)} games) have no game in common."
        raise DataError(found, "Expected the same held-out games.", "Evaluate both with the same environment and evaluation.tasks.")
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
