"""Theorem 1 of DreamGym (arXiv 2511.03773, App. B) with the numbers of a held-out measurement put in.

The paper bounds how far the return of one policy in the dream lies from its return in reality (Lemma 1), with
rewards in [0, R_max], R_max = 1 here, and the discount g:

    |J(real) - J(dream)| <= D = e_R / (1 - g) + 2 g R_max e_P / (1 - g)^2

and that an update which gains more in the dream than 2 D (beside its trust-region term) gains in reality too
(Theorem 1).

What the estimate licenses. e_R and e_P are suprema over all states and actions in the paper; no finite sample
gives a supremum. Here they are means over held-out real steps: e_R of |R - R^|, e_P of the total variation,
bounded from above by the share of steps whose predicted next state is another text (the coupling inequality:
TV <= P(X != Y), for any joint draw of X and Y). So the bound speaks of policies that visit states and try
actions as often as the measured episodes did, and of those alone. What it does not license: any claim about a
policy that RL has driven elsewhere. There it must be measured anew (`fidelity/policy_*`), and where even one
reachable step is wrong the supremum is 1 and Lemma 1 says nothing. With a discount near 1 it is mostly
vacuous (above 1, the largest difference two returns can have); it is logged so that runs can be compared, and
so that nobody claims more.

`bound/value_horizon` is the tighter bound for returns of at most 1 without discount over episodes of at most
H steps: dream and reality agree until the first step in which they differ, so |J - J^| <= 1 - (1 - e)^H <= H
e, where e is the share of steps with another text or another reward. It takes the steps of an episode as
equally likely to be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, clustered_proportion
from components.experience.step_judgements import Judgement


def bound_metrics(
    judgements: Sequence[Judgement], *, discount: float, max_steps: int, suffix: str = ""
) -> dict[str, Estimate]:
    """`bound/reward_error`, `bound/transition_divergence`, `bound/value`, `bound/value_horizon` from held-out
    real steps.

    The ends of the last two are the formula at the ends of what goes in. An answer that cannot be read counts
    as wrong.

    Args:
        discount: g of Lemma 1, below 1.
        max_steps: H, the step limit of an episode.

    Raises:
        ValueError: not 0 <= discount < 1.
    """
    if not 0 <= discount < 1:
        raise ValueError(f"the discount is {discount}; expected 0 <= discount < 1")
    tasks = [j.transition.task_id for j in judgements]
    reward = clustered_proportion([abs(j.reward - j.predicted_reward) > 0.5 for j in judgements], tasks)
    divergence = clustered_proportion([not j.exact for j in judgements], tasks)
    either = clustered_proportion([not j.exact or j.reward != j.predicted_reward for j in judgements], tasks)

    def lemma(error: float, variation: float) -> float:
        return error / (1 - discount) + 2 * discount * variation / (1 - discount) ** 2

    n = len(judgements)
    ends = [lemma(getattr(reward, end), getattr(divergence, end)) for end in ("value", "low", "high")]
    horizon = [1 - (1 - getattr(either, end)) ** max_steps for end in ("value", "low", "high")]
    return {
        f"bound/reward_error{suffix}": reward,
        f"bound/transition_divergence{suffix}": divergence,
        f"bound/value{suffix}": Estimate(ends[0], n, ends[1], ends[2]),
        f"bound/value_horizon{suffix}": Estimate(horizon[0], n, horizon[1], horizon[2]),
    }
