"""Group-relative policy optimisation (Shao et al. 2024, arXiv 2402.03300), as DreamGym uses it: A = (r -
mean_G) / std_G.

    dreamgym retrain synthetic_rl.algorithm=grpo

The loss of a token, with ratio = pi(token) / pi_old(token) (Eq. 3 of that paper; Schulman et al. 2017, arXiv
1707.06347, Eq. 7):

    -min(ratio A, clip(ratio, 1 - clip, 1 + clip_high) A) + kl (exp(d) - d - 1),   d = log ref(token) - log
    pi(token)

Deviations (plain GRPO: grpo.step_weight=0 grpo.negative_weight=1 idle_penalty=0):
1. The outcome is the return, and every token that the policy wrote in an episode (thoughts and actions) has
   its advantage, plus
   `step_weight` times GiGPO's advantage of its step, which tells the step that decided from those that did
   not.
2. Groups whose returns are all equal have no such advantages. They are counted (`zero_variance_groups`) and
   left out, unless 6 applies
   or, with a `step_weight`, all were won at different lengths: of two successes the shorter one is worth more
   to GiGPO's steps.
3. `loss_mean: token` takes the mean over the tokens of all kept episodes together (as DAPO does), so a long
   episode counts for
   more; `episode` is the formula's own mean of the episodes' means. A lost episode runs to the step limit, a
   won one ends early, so by tokens most of the gradient comes from losses.
4. No KL term by default (`kl`): a small policy has nothing to hold on to that its own start does not give;
   the clip bounds each update.
5. The probabilities in the ratio are those of the sampler at its temperature.
6. The tokens of a reply that left the state as it was, word for word, lose `idle_penalty` (verl-agent's
   penalty for invalid
   actions, for a world that does not say which actions are valid), also in groups without variance.
7. The deviation of a group is the population's; TRL's is the sample's, larger by sqrt(n / (n - 1)).
8. Advantages below zero count `negative_weight` times: pushed away from what it wrote a small model soon
   writes nonsense, unless the
   steps are few and demonstrations are mixed in (docs/experiments). At 0 only what went better than its
   group is learnt, as in RAFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from components.config.training_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.algorithm import Lesson, Written
from components.policy.rl.rewards import Rewards
from components.policy.rl.surrogate import mean_shares, surrogate
from components.policy.rollout import Rollout

EPSILON = 1e-6


def group_advantages(returns: Sequence[float], *, normalise: bool) -> list[float]:
    """Advantages of one group from its returns; all zero where the returns are all equal. The deviation is
    the population's.
    """
    mean = sum(returns) / len(returns)
    centred = [value - mean for value in returns]
    if not normalise:
        return centred
    deviation = (sum(value * value for value in centred) / len(returns)) ** 0.5
    return [value / (deviation + EPSILON) if deviation > 0 else 0.0 for value in centred]


def step_advantages(
    group: Sequence[Rollout], returns: Sequence[float], *, discount: float
) -> list[list[float]]:
    """GiGPO's advantage of each reply (Feng et al. 2025, arXiv 2505.10978, Eq. 6 to 8), for one group of
    rollouts of one task.

    Replies to the same state, word for word, anywhere in the group, are a group of their own; what is
    compared in it is the discounted return from there, discount^(steps to the end) * return. 0.0 where a
    state was met once only. Not divided by the
    deviation: of two successes, one a step longer, that would make as much as of a success and a failure.
    """
    lengths = [len(rollout.idle) for rollout in group]
    ahead = [
        [value * discount ** (length - 1 - step) for step in range(length)]
        for value, length in zip(returns, lengths, strict=True)
    ]
    met: dict[str, list[tuple[int, int]]] = {}
    for row, rollout in enumerate(group):
        for step in range(len(rollout.idle)):
            met.setdefault(rollout.trajectory.states[step], []).append((row, step))
    advantages = [[0.0] * length for length in lengths]
    for places in met.values():
        values = group_advantages([ahead[row][step] for row, step in places], normalise=False)
        for (row, step), value in zip(places, values, strict=True):
            advantages[row][step] = value
    return advantages


def token_values(rollout: Rollout, values: Sequence[float]) -> list[float]:
    """The value of each reply, for each token of it."""
    return [value for length, value in zip(rollout.replies, values, strict=True) for _ in range(length)]


class GRPO:
    """See the module."""

    wants_hidden = False
    anew = False

    def __init__(self, config: RLConfig, rewards: Rewards) -> None:
        self.config, self.rewards = config, rewards
        self.figures: tuple[str, ...] = ("clip_share", "approx_kl", *(["kl"] if config.kl else []))

    def acting(self, policy: Policy, iteration: int) -> Policy:
        """The policy itself."""
        return policy

    def lessons(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[Lesson]:
        """The rollouts with an advantage somewhere."""
        found = []
        for group in filter(None, groups):
            each, telling = self._values(group)
            for rollout, values in zip(group, each, strict=True):
                advantages = token_values(rollout, values)
                if any(advantages):
                    found.append(Lesson((rollout,), {"advantage": advantages}, telling))
        return found

    def _values(self, group: list[Rollout]) -> tuple[list[list[float]], bool]:
        """The advantage of each reply of each rollout: the episode's, GiGPO's of the step, and the penalty of
        the idle.

        And whether any is left without that penalty.
        """
        config, own = self.config, self.config.grpo
        returns, weight = self.rewards.of(group)
        whole = group_advantages(returns, normalise=own.normalise)
        steps = step_advantages(group, returns, discount=config.discount)
        values = [
            [
                weight * (value + own.step_weight * step) - config.idle_penalty * idle
                for step, idle in zip(row, rollout.idle, strict=True)
            ]
            for rollout, value, row in zip(group, whole, steps, strict=True)
        ]
        telling = any(whole) or (own.step_weight > 0 and any(any(row) for row in steps))
        return [
            [value if value > 0 else own.negative_weight * value for value in row] for row in values
        ], telling

    def shares(self, lessons: Sequence[Lesson]) -> list[float]:
        """See `surrogate.mean_shares`."""
        return mean_shares([lesson.written for lesson in lessons], self.config.loss_mean)

    def loss(self, written: Written) -> tuple[Tensor, dict[str, float]]:
        """The clipped loss, and `kl` times the distance from the reference."""
        each, figures = surrogate(written, self.config)
        return (each * written.shares).sum(), figures

    def parameters(self) -> list[torch.nn.Parameter]:
        """None."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """The rewards' state."""
        return {"rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.rewards.load_state_dict(state["rewards"])
