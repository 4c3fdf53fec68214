"""The conditions of the promotion gate: each compares one number of the challenger with its limit.

`sequential.py` explains how several looks at the games share one error probability. Reasons are shown to
users in the report, in MLflow and on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.config import PromotionConfig
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.paired_outcomes import (
    PairedDifference,
    mcnemar_one_sided_p_value,
    paired_difference,
)
from components.evaluation.metrics.sequential import ABOVE, UNDECIDED, exact_bounds, verdict_against

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """One condition: `value` must be at or above `threshold`, or at or below it if not `greater_is_better`.

    `low` and `high` are the ends of the value's interval. `undecided` says that further games could still
    make the condition pass; an undecided condition does not count as passed.
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
        """Return the condition's row of the decision's Markdown table."""
        result = "pass" if self.passed else "undecided" if self.undecided else "fail"
        cells = [
            self.name,
            self.metric,
            f"{self.value:.3f}",
            f"{self.low:.3f} to {self.high:.3f}",
            str(self.n),
            f"{self.threshold:.3f}",
            result,
        ]
        return "| " + " | ".join(cells) + " |"


def floor_condition(challenger: Mapping[str, bool], config: PromotionConfig) -> Condition:
    """Return the condition `threshold`: the lower bound of the success rate must reach the floor.

    Args:
        challenger: task id -> won.
        config: floor, number of looks and confidence.
    """
    wins = sum(challenger.values())
    n = len(challenger)
    looks = config.max_batches
    floor = config.threshold
    error = 1 - config.confidence
    low, high = exact_bounds(wins, n, error / looks)
    verdict = verdict_against(floor, wins, n, looks=looks, error=error)
    if verdict == ABOVE:
        comparison = f"the lower bound reaches the floor {floor:.3f}"
    elif verdict == UNDECIDED:
        comparison = (
            f"the floor {floor:.3f} lies between the bounds, so it is not shown that the challenger reaches "
            "it"
        )
    else:
        comparison = f"the upper bound is below the floor {floor:.3f}"
    return Condition(
        name="threshold",
        metric="success_rate",
        value=wins / n,
        threshold=floor,
        n=n,
        low=low,
        high=high,
        passed=verdict == ABOVE,
        reason=f"The challenger won {wins} of {n} validation games "
        f"({wins / n:.3f}; bounds {low:.3f} to {high:.3f}): {comparison}.",
        undecided=verdict == UNDECIDED,
    )


def agreement_condition(agreement: Estimate, floor: float) -> Condition:
    """Return the condition `rollout_agreement`: the real engine must confirm enough dreamed successes.

    Args:
        agreement: share of the challenger's dreamed successes that the real engine confirmed.
        floor: lowest share that passes; without a dreamed success the condition passes.
    """
    passed = agreement.n == 0 or agreement.value >= floor - _ROUNDING
    reason = (
        f"The real engine confirmed {agreement.value:.3f} of {agreement.n} dreamed successes; the floor is "
        f"{floor:.3f}."
    )
    if agreement.n and passed and agreement.low < floor:
        reason += " The floor lies inside the interval after the last batch, so the share itself decided."
    if agreement.n == 0:
        reason = "There was no dreamed success to confirm."
    return Condition(
        name="rollout_agreement",
        metric="fidelity/rollout_agreement",
        value=agreement.value,
        threshold=floor,
        n=agreement.n,
        low=agreement.low,
        high=agreement.high,
        passed=passed,
        reason=reason,
    )


def gain_condition(gain: PairedDifference, excluded_games: int, minimum: float) -> Condition:
    """Return the condition `min_absolute_change`: the gain over the champion must reach the minimum.

    It is never undecided: if the challenger is not ahead, further games would seldom show a useful gain.

    Args:
        gain: success rate minus the champion's, on the shared games.
        excluded_games: games that only one of the two played.
        minimum: smallest gain that passes.
    """
    passed = gain.value >= minimum - _ROUNDING
    reason = (
        f"Compared with the champion it gained {gain.gained} and lost {gain.lost} of {gain.n} shared games "
        f"({gain.value:+.3f}, {gain.low:+.3f} to {gain.high:+.3f}), "
        f"{'at or above' if passed else 'below'} the required {minimum:+.3f}."
    )
    if gain.low <= 0 <= gain.high:
        reason += " The interval includes 0: the difference may be due to chance."
    if excluded_games:
        reason += f" {excluded_games} games that only one of them played are not counted."
    return Condition(
        name="min_absolute_change",
        metric="success_rate_change",
        value=gain.value,
        threshold=minimum,
        n=gain.n,
        low=gain.low,
        high=gain.high,
        passed=passed,
        reason=reason,
    )


def p_value_condition(gain: PairedDifference, config: PromotionConfig) -> Condition:
    """Return the condition `max_p_value`: the gain must be unlikely by chance (McNemar's exact test).

    Each look has an even share of `max_p_value`.
    """
    p_value = mcnemar_one_sided_p_value(gain.gained, gain.lost)
    maximum = config.max_p_value / config.max_batches
    passed = p_value <= maximum + _ROUNDING
    share = (
        f" (max_p_value {config.max_p_value:g} over {config.max_batches} looks)"
        if config.max_batches > 1
        else ""
    )
    return Condition(
        name="max_p_value",
        metric="mcnemar_p_value",
        value=p_value,
        threshold=maximum,
        n=gain.n,
        low=p_value,
        high=p_value,
        passed=passed,
        reason=f"The probability of such a gain by chance is p={p_value:.4f} (McNemar, one-sided), "
        f"{'at or below' if passed else 'above'} the allowed {maximum:.4f}{share}.",
        greater_is_better=False,
        undecided=not passed,
    )


def family_changes(
    challenger: Mapping[str, bool],
    champion: Mapping[str, bool],
    families: Mapping[str, str],
    config: PromotionConfig,
) -> dict[str, PairedDifference]:
    """Return each family's change on the same games, with bounds valid for all families and looks together.

    Each bound is violated with a probability of at most (1 - `confidence`) / (`max_batches` times the number
    of families): see `sequential.py`. One look is Newcombe's interval (1998, method 10).

    Args:
        challenger: task id -> won.
        champion: task id -> won.
        families: shared task id -> family.
        config: number of looks and confidence.
    """
    names = sorted(set(families.values()))
    error = (1 - config.confidence) / (config.max_batches * max(1, len(names)))
    tasks = {name: [task for task in sorted(families) if families[task] == name] for name in names}
    return {
        name: paired_difference(
            [challenger[task] for task in family_tasks],
            [champion[task] for task in family_tasks],
            1 - 2 * error,
        )
        for name, family_tasks in tasks.items()
    }


def family_condition(change: PairedDifference, family: str, max_drop: float, final: bool) -> Condition:
    """Return the condition `max_family_drop`: the family may not lose more than `max_drop`.

    It passes if the lower bound reaches `-max_drop`. It fails for good if the upper bound is below it.
    Between them it is undecided; after the last batch (`final`) the change itself decides.
    """
    bounds_pass = change.low >= -max_drop - _ROUNDING
    is_decided = bounds_pass or change.high < -max_drop - _ROUNDING
    is_undecided = not is_decided and not final
    passed = change.value >= -max_drop - _ROUNDING if not is_decided and final else bounds_pass
    if is_decided:
        comparison = f"it {'does not lose' if passed else 'loses'} more than the allowed {max_drop:.3f}."
    else:
        comparison = f"the allowed loss of {max_drop:.3f} lies between the bounds"
        comparison += (
            f" after the last batch, so the change itself decided. It {'is within' if passed else 'exceeds'} "
            "the allowed loss."
            if final
            else "."
        )
    return Condition(
        name="max_family_drop",
        metric=f"success_rate_change/{family}",
        value=change.value,
        threshold=-max_drop,
        n=change.n,
        low=change.low,
        high=change.high,
        passed=passed,
        reason=f"In the family {family} it gained {change.gained} and lost {change.lost} of {change.n} games "
        f"({change.value:+.3f}; bounds {change.low:+.3f} to {change.high:+.3f}): {comparison}",
        undecided=is_undecided,
    )
