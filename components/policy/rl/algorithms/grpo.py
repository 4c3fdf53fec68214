"""Group-relative policy optimisation (Shao et al. 2024, arXiv 2402.03300): A = (r - mean_G) / std_G.

    dreamgym retrain rl.algorithm=grpo

The loss of a token, with ratio = pi(token) / pi_old(token) (Eq. 3 of that paper; Schulman et al. 2017, arXiv
1707.06347, Eq. 7) and d = log ref(token) - log pi(token):

    -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) + beta (exp(d) - d - 1)

Deviations (plain GRPO: step_weight=0 negative_advantage_weight=1 idle_penalty=0):
1. The outcome is the return. Every token that the policy wrote in an episode (thoughts and actions) has the
   episode's advantage, plus `step_weight` times GiGPO's advantage of its step (`step_credit/gigpo.py`). The
   latter separates decisive steps from the others. With `step_credit: salt` it has SALT's advantage instead,
   with `istar` iStar's is added.
2. Groups whose returns are all equal have no such advantages, nor has a group of one, where the others were
   left out. They are counted (`zero_variance_groups`) and left out. There are three exceptions: point 6,
   `istar` once its model has seen a pair, and successes of different lengths if `step_weight` is set. GiGPO
   prefers the shorter of two successes.
3. `loss_aggregation: token` averages over the tokens of all kept episodes together, as DAPO does, so long
   episodes have more weight. `episode` is the mean of the episodes' means, as in the paper. A failed episode
   runs to the step limit and a success ends early. So with `token` most of the gradient comes from failures.
4. `beta` is 0 by default. The initial weights of a small policy are not worth staying close to, and the clip
   bounds each update.
5. The probabilities in the ratio are those of the sampler at its temperature.
6. `idle_penalty` is subtracted from the advantage of a reply that left the state unchanged, word for word,
   also in groups without variance. It replaces verl-agent's penalty for invalid actions, for a world that
   does not say which actions are valid.
7. The deviation of a group is the population's. TRL's is the sample's, larger by sqrt(n / (n - 1)).
8. Negative advantages are multiplied by `negative_advantage_weight`. Lowering the probability of its own text
   soon makes a small model write nonsense, unless steps are few and demonstrations are mixed in
   (docs/experiments). At 0 only replies with positive advantages are trained on, as in RAFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from components.config.algorithm_config import GRPOConfig
from components.config.rl_config import RLConfig
from components.policy.policy import Policy
from components.policy.rl.advantages.family_normalisation import Credit, normalise_families
from components.policy.rl.advantages.group_advantages import group_advantages, weighted
from components.policy.rl.advantages.step_credit.gigpo import step_advantages
from components.policy.rl.advantages.step_credit.istar import ImplicitRewards
from components.policy.rl.advantages.step_credit.salt import merged_advantages
from components.policy.rl.algorithms.algorithm import LossInputs
from components.policy.rl.algorithms.policy_gradient import PolicyGradient
from components.policy.rl.rewards.outcome_rewards import Rewards
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout


def per_token(rollout: Rollout, reply_values: Sequence[float]) -> list[float]:
    """Return the value of each reply, repeated for each of its tokens."""
    pairs = zip(rollout.reply_lengths, reply_values, strict=True)
    return [value for length, value in pairs for _ in range(length)]


class GRPO(PolicyGradient):
    """Group-relative policy optimisation; see the module."""

    def __init__(self, options: GRPOConfig, rewards: Rewards) -> None:
        super().__init__(options)
        self.rewards = rewards
        self.options = options
        self._implicit: ImplicitRewards | None = None
        self.needs_whole_model |= self.options.step_credit == "istar"
        self._groups: Sequence[list[Rollout]] = ()
        self._report: dict[str, float] = {}

    def start(self, policy: Policy, config: RLConfig) -> None:
        """Copy the initial policy for the divergence (`beta`) and for iStar's rewards."""
        super().start(policy, config)
        if self.options.step_credit == "istar":
            self._implicit = ImplicitRewards(policy, config, self.options.optimizer_steps)

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return a sample for each rollout that has, or with iStar may get, a non-zero advantage."""
        self._groups = [group for group in groups if group]
        credit: list[Credit] = [self._weighted_credit(group) for group in self._groups]
        differs = [any(map(any, rows)) for rows in credit]
        if self.options.normalise_families:
            credit = normalise_families(self._groups, credit)
        keeps_all = self._implicit is not None and self._implicit.tells_replies_apart(self._groups)
        self._report = self._implicit.pair_figures(self._groups) if self._implicit else {}
        samples = []
        for group, rows, signal in zip(self._groups, credit, differs, strict=True):
            for rollout, row in zip(group, rows, strict=True):
                advantages = per_token(rollout, self._with_penalties(row, rollout))
                gets_rewards = keeps_all and bool(advantages)
                if any(advantages) or gets_rewards:
                    has_signal = signal or gets_rewards
                    samples.append(TrainingSample((rollout,), {"advantage": advantages}, has_signal))
        return samples

    def report(self) -> dict[str, float]:
        """Return figures of the rewards and, with iStar, those of its model before it learns.

        See `ImplicitRewards.pair_figures`.
        """
        return {**self.rewards.figures, **self._report}

    def _weighted_credit(self, group: list[Rollout]) -> list[list[float]]:
        returns, group_weight = self.rewards.returns(group)
        return [[group_weight * value for value in row] for row in self._credit(group, returns)]

    def _with_penalties(self, row: Sequence[float], rollout: Rollout) -> list[float]:
        """Return the advantages of a rollout's replies, from their credit."""
        options = self.options
        penalised = [
            value - options.idle_penalty * idle for value, idle in zip(row, rollout.idle, strict=True)
        ]
        if self._implicit is not None:  # weighted once iStar's part is added
            return penalised
        return [weighted(value, options.negative_advantage_weight) for value in penalised]

    def _credit(self, group: list[Rollout], returns: Sequence[float]) -> list[list[float]]:
        """Return the advantage of each reply of each rollout, before weights and penalties."""
        options = self.options
        episode_advantages = group_advantages(returns, scale=options.scale_rewards)
        if options.step_credit == "salt":
            return merged_advantages(group, episode_advantages)
        if options.step_credit == "istar":  # added in `prepare_update`, where phi may be trained
            return [[value] * len(one.idle) for value, one in zip(episode_advantages, group, strict=True)]
        steps = step_advantages(group, returns, discount=options.discount)
        return [
            [value + options.step_weight * step for step in row]
            for value, row in zip(episode_advantages, steps, strict=True)
        ]

    def prepare_update(self, samples: list[TrainingSample]) -> list[TrainingSample]:
        """Return the samples, with iStar's advantages of steps if they are chosen."""
        if self._implicit is not None and samples:
            self._implicit.learn(self._groups)
            samples = self._implicit.add_step_advantages(samples, self.options.negative_advantage_weight)
        return super().prepare_update(samples)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rewards, and iStar's model."""
        own = {"implicit": self._implicit.state_dict()} if self._implicit else {}
        return {"rewards": self.rewards.state_dict()} | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.rewards.load_state_dict(state["rewards"])
        if self._implicit is not None:
            self._implicit.load_state_dict(state["implicit"])

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the clipped loss, plus `beta` times the KL divergence from the initial policy."""
        losses, figures = self.surrogate(inputs)
        return (losses * inputs.token_weights).sum(), figures
