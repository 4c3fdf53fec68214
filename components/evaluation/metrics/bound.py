"""Theorem 1 of DreamGym (arXiv 2511.03773, App. B), evaluated with errors measured on held-out real steps.

Lemma 1 bounds the difference between a policy's return in the dream and in reality. Rewards are in [0, R_max]
with R_max = 1, and g is the discount:

    |J(real) - J(dream)| <= D = e_R / (1 - g) + 2 g R_max e_P / (1 - g)^2

Theorem 1: an update whose gain in the dream exceeds 2 D (plus its trust-region term) also gains in reality.

What the estimate means:

1. In the paper e_R and e_P are suprema over all states and actions. A finite sample gives no supremum, so
   both
   are means over held-out real steps here.
2. e_R is the mean of |R - R^|. e_P is the mean total variation, bounded from above by the share of steps
   whose predicted next state is a different text. This is the coupling inequality: TV <= P(X != Y) for any
   joint draw of X and Y.
3. The bound therefore holds only for policies that visit states and choose actions as often as the measured
   episodes did.
4. It makes no claim about a policy that RL has moved elsewhere. Measure there again (`fidelity/policy_*`).
   If one reachable step is wrong, the supremum is 1 and Lemma 1 gives no information.
5. With a discount near 1 the bound is mostly vacuous: it exceeds 1, the largest possible difference of two
   returns. It is logged to compare runs and to keep claims within it.

`bound/value_horizon` is a tighter bound for undiscounted returns of at most 1 over episodes of at most H
steps. Dream and reality agree until the first step that differs. So |J - J^| <= 1 - (1 - e)^H <= H e, where e
is the share of steps with a different text or a different reward. It assumes that every step of an episode is
equally likely to be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, clustered_proportion
from components.experience.step_judgements import Judgement


def bound_metrics(
    judgements: Sequence[Judgement], *, discount: float, max_steps: int, suffix: str = ""
) -> dict[str, Estimate]:
    """Return the `bound/*` metrics of held-out real steps.

    The metrics are `bound/reward_error`, `bound/transition_divergence`, `bound/value` and
    `bound/value_horizon`. The interval ends of the last two are the formula applied to the ends of its
    inputs. An answer that cannot be parsed counts as wrong.

    Args:
        judgements: predicted steps with the real steps that they are compared with.
        discount: g of Lemma 1, below 1.
        max_steps: H, the step limit of an episode.
        suffix: appended to each metric's name.

    Raises:
        ValueError: not 0 <= discount < 1.
    """
    if not 0 <= discount < 1:
        raise ValueError(f"the discount is {discount}; expected 0 <= discount < 1")
    tasks = [j.transition.task_id for j in judgements]
    reward_error = clustered_proportion([abs(j.reward - j.predicted_reward) > 0.5 for j in judgements], tasks)
    divergence = clustered_proportion([not j.exact for j in judgements], tasks)
    any_error = clustered_proportion(
        [not j.exact or j.reward != j.predicted_reward for j in judgements], tasks
    )

    def lemma_1(error: float, variation: float) -> float:
        return error / (1 - discount) + 2 * discount * variation / (1 - discount) ** 2

    n = len(judgements)
    value, low, high = (
        lemma_1(error, variation)
        for error, variation in (
            (reward_error.value, divergence.value),
            (reward_error.low, divergence.low),
            (reward_error.high, divergence.high),
        )
    )
    horizon, horizon_low, horizon_high = (
        1 - (1 - error) ** max_steps for error in (any_error.value, any_error.low, any_error.high)
    )
    return {
        f"bound/reward_error{suffix}": reward_error,
        f"bound/transition_divergence{suffix}": divergence,
        f"bound/value{suffix}": Estimate(value, n, low, high),
        f"bound/value_horizon{suffix}": Estimate(horizon, n, horizon_low, horizon_high),
    }
