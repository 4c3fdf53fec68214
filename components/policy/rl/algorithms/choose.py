"""Factory of the algorithm that a config names, and of the learner that trains with it."""

from __future__ import annotations

from collections.abc import Mapping

from components.config.algorithm_config import (
    DPOConfig,
    GRPOConfig,
    MetaRewardingConfig,
    PPOConfig,
    RFTConfig,
)
from components.config.rl_config import RLConfig
from components.errors import ConfigError
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import Algorithm
from components.policy.rl.algorithms.dpo import DPO
from components.policy.rl.algorithms.grpo import GRPO
from components.policy.rl.algorithms.meta_rewarding import MetaRewarding
from components.policy.rl.algorithms.ppo import PPO
from components.policy.rl.algorithms.rft import RFT, RestartingLearner
from components.policy.rl.learner import Learner
from components.policy.rl.rewards.outcome_rewards import HybridRewards, Progress, Rewards


def make_algorithm(
    config: RLConfig,
    policy: Policy,
    progress: Progress | None = None,
    progress_figures: Mapping[str, float] | None = None,
) -> Algorithm:
    """Return the algorithm of `config.algorithm` for `policy`.

    Args:
        progress: score of an episode, which HERO's rewards need: the adapter's, or a learnt one.
        progress_figures: figures of that score, which each iteration reports.

    Raises:
        ConfigError: `reward: hero` without `progress`.
    """
    match config.algorithm:
        case GRPOConfig() as options:
            return GRPO(options, _make_rewards(options.reward, progress, progress_figures or {}))
        case PPOConfig() as options:
            return PPO(config, options, policy)
        case DPOConfig() as options:
            return DPO(config, options)
        case RFTConfig() as options:
            return RFT(options)
        case MetaRewardingConfig() as options:
            return MetaRewarding(config, options)


def learner_class(config: RLConfig) -> type[Learner]:
    """Return the learner of `config.algorithm`: RFT restarts in each iteration, all others continue."""
    return RestartingLearner if isinstance(config.algorithm, RFTConfig) else Learner


def _make_rewards(kind: str, progress: Progress | None, figures: Mapping[str, float]) -> Rewards:
    if kind == "outcome":
        return Rewards()
    if progress is None:
        raise ConfigError(
            "reward: hero needs an adapter with `progress`; this environment's has none.",
            next_step="Set rl.algorithm.reward=hero_learnt (the score is learnt from the logs), or =outcome.",
        )
    return HybridRewards(progress, figures)
