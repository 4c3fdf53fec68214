"""The algorithm that a config names."""

from __future__ import annotations

from components.config.training_config import RLConfig
from components.errors import ConfigError
from components.policy.policy import Policy
from components.policy.rl.algorithm import Algorithm
from components.policy.rl.dpo import DPO
from components.policy.rl.grpo import GRPO
from components.policy.rl.ppo import PPO
from components.policy.rl.rewards import HybridRewards, Progress, Rewards
from components.policy.rl.rft import RFT


def make_algorithm(config: RLConfig, policy: Policy, progress: Progress | None = None) -> Algorithm:
    """`config.algorithm` for `policy`; `progress` is the adapter's.

    Raises:
        ConfigError: `reward: hero` without `progress`.
    """
    if config.reward == "hero" and progress is None:
        raise ConfigError("reward: hero needs an adapter's progress.", "Found none.", "Set reward: outcome.")
    rewards = HybridRewards(config.hero, progress) if config.reward == "hero" and progress else Rewards()
    if config.algorithm == "dpo":
        return DPO(config)
    if config.algorithm == "rft":
        return RFT(config)
    if config.algorithm == "ppo":
        return PPO(config, rewards, policy.model.config.hidden_size, policy.model.device)
    return GRPO(config, rewards)
