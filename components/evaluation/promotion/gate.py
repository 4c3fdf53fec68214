"""The promotion gate: whether a challenger replaces the champion, with the reasons.

The vocabulary is that of MLflow's model validation. The games are validation games; the test split is never
read. The conditions:

- `threshold`: the lower bound of the challenger's success rate must reach it, even for the first champion.
- `min_absolute_change`: the smallest gain over the champion **on the same games**.
- `max_p_value`: the one-sided p-value of McNemar's exact test must not exceed it.
- `max_family_drop`: the largest loss allowed for any one family of tasks. The lower bound of the family's
  change on the same games must not be below it.
- `rollout_agreement`: the dream must pass the fidelity gate on the challenger's own dreams. Without a dreamed
  success it passes.

The gate looks at the results after each batch of games, at most `max_batches` times. A condition is undecided
if its interval includes the limit; then the gate plays another batch (`promotion_batches.py`). Each look has
an even share of the error (`sequential.py`). The error rates:

- A challenger that is no better than the champion is promoted with a probability of at most `max_p_value`.
- A challenger below the floor is promoted with a probability of at most 1 - `confidence`.

A challenger that is not ahead of the champion by `min_absolute_change` is refused at once. This only lowers
the first rate. A condition that is undecided after the last batch refuses the challenger: the champion stays
until a better policy is shown. Families are the exception: after the last batch a family's change itself
decides, because its few games would otherwise refuse almost every challenger. A refusal is a normal outcome,
not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.paired_outcomes import paired_difference
from components.evaluation.promotion.conditions import (
    Condition,
    agreement_condition,
    family_changes,
    family_condition,
    floor_condition,
    gain_condition,
    p_value_condition,
)


@dataclass(frozen=True)
class Decision:
    """The gate's decision, its conditions, and the reason in words."""

    promoted: bool
    conditions: list[Condition]
    reason: str

    @property
    def undecided(self) -> bool:
        """True if further games can still lead to a promotion: every failed condition is undecided."""
        failed = [condition for condition in self.conditions if not condition.passed]
        return bool(failed) and all(condition.undecided for condition in failed)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the manifest, MLflow and the report."""
        conditions = [dict(vars(condition)) for condition in self.conditions]
        return {"promoted": self.promoted, "reason": self.reason, "conditions": conditions}

    def to_markdown(self) -> str:
        """Return the reason and a table with one row per condition."""
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
    """Return the decision on the challenger's outcomes (task id -> won).

    Args:
        challenger: task id -> won.
        champion: task id -> won; None if there is no champion.
        config: limits of the conditions.
        confidence: two-sided level of the interval that is shown next to the gain.
        families: task id -> family ('' if it has none), for `max_family_drop`. None: no family is examined.
        agreement: the dream's `rollout_agreement` on the challenger's own dreams, and its floor.
        is_champion: the challenger is the champion itself, so there is nothing to compare.
        final: no further games will be played.

    Raises:
        DataError: the challenger has played no game, or the two policies share no game.
    """
    if not challenger:
        raise DataError(
            "The challenger has played no game.",
            "Expected at least one validation game.",
            "Raise evaluation.tasks.",
        )
    conditions = [floor_condition(challenger, config)]
    if agreement is not None:
        conditions.append(agreement_condition(*agreement))
    if champion is not None and not is_champion:
        conditions += _comparison_conditions(challenger, champion, config, confidence, families, final)
    failed = [condition.reason for condition in conditions if not condition.passed]
    if failed:
        return Decision(False, conditions, " ".join(failed))
    reasons = [condition.reason for condition in conditions if condition.name != "max_family_drop"]
    if is_champion:
        reasons.append("The challenger is already the champion: there is nothing to compare.")
    elif champion is None:
        reasons.append("There is no champion yet: only the floor applies.")
    return Decision(True, conditions, " ".join(reasons))


def _comparison_conditions(
    challenger: Mapping[str, bool],
    champion: Mapping[str, bool],
    config: PromotionConfig,
    confidence: float,
    families: Mapping[str, str] | None,
    final: bool,
) -> list[Condition]:
    """Return the conditions that compare the challenger with the champion on the shared games."""
    shared_tasks = _shared_tasks(challenger, champion)
    gain = paired_difference(
        [challenger[task] for task in shared_tasks], [champion[task] for task in shared_tasks], confidence
    )
    excluded_games = len(set(challenger) | set(champion)) - len(shared_tasks)
    conditions = [gain_condition(gain, excluded_games, config.min_absolute_change)]
    if config.max_p_value < 1:
        conditions.append(p_value_condition(gain, config))
    family_of_task = {task: families[task] for task in shared_tasks if families[task]} if families else {}
    changes = family_changes(challenger, champion, family_of_task, config)
    conditions += [
        family_condition(change, family, config.max_family_drop, final) for family, change in changes.items()
    ]
    return conditions


def _shared_tasks(challenger: Mapping[str, bool], champion: Mapping[str, bool]) -> list[str]:
    shared_tasks = sorted(set(challenger) & set(champion))
    if not shared_tasks:
        raise DataError(
            f"Challenger ({len(challenger)} games) and champion ({len(champion)} games) have no game in "
            "common.",
            "Expected the same validation games.",
            "Evaluate both with the same environment and evaluation.tasks.",
        )
    return shared_tasks
