"""The RL algorithms as a tagged union: `rl.algorithm: {type: grpo, ...}`, each type with its own options.

Names are TRL's where the idea is TRL's (`epsilon`, `epsilon_high`, `beta`, `num_iterations`,
`scale_rewards`). The DreamGym paper gives no hyperparameters: all defaults are our choice.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from components.config.reading.section import Section


class OptimiserStepsConfig(Section):
    """What all algorithms with optimiser steps on an iteration's rollouts have."""

    num_iterations: int = Field(1, ge=1, description="Passes over an iteration's rollouts.")
    optimizer_steps: int = Field(2, ge=1, description="Optimiser steps per pass.")


class PolicyGradientConfig(OptimiserStepsConfig):
    """What GRPO and PPO share: discount, clipped ratio, KL divergence."""

    discount: float = Field(
        0.95, gt=0, le=1, description="Discount per step, for the step advantages of GiGPO and PPO."
    )
    idle_penalty: float = Field(
        0.5, ge=0, description="Subtracted from the advantage of a reply that left the state unchanged."
    )
    loss_aggregation: Literal["episode", "token"] = Field(
        "episode",
        description="Mean of the episodes' means, or mean over all tokens, which gives long episodes more "
        "weight.",
    )
    epsilon: float = Field(
        0.2, gt=0, lt=1, description="Lower clip range: the probability ratio is clipped at 1 - epsilon."
    )
    epsilon_high: float = Field(
        0.2, gt=0, description="Upper clip range: clipped at 1 + epsilon_high; DAPO uses 0.28."
    )
    beta: float = Field(
        0.0, ge=0, description="Weight of the KL divergence from the initial policy; 0: none."
    )
    cross_policy_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the replies in rollouts that the stage's initial policy writes, so that "
        "episodes reach states that the trained one alone would not (AgentRL, arXiv 2510.04206).",
    )


class GRPOConfig(PolicyGradientConfig):
    """GRPO with GiGPO's step advantages."""

    needs_task_clusters: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2

    type: Literal["grpo"] = "grpo"
    reward: Literal["outcome", "hero", "hero_learnt"] = Field(
        "outcome",
        description="outcome: 1 for success, else 0. hero: also the adapter's progress, which ranks "
        "episodes with the same outcome (arXiv 2510.07242). hero_learnt: a model that is trained on the "
        "recorded outcomes ranks them.",
    )
    step_credit: Literal["gigpo", "salt", "istar"] = Field(
        "gigpo",
        description="Advantages of single steps. gigpo: adds those among replies to the same state. salt: "
        "steps that episodes share get the mean of their episodes' advantages (arXiv 2510.20022). istar: "
        "adds rewards of a model that learns to prefer successes (arXiv 2509.19199).",
    )
    step_weight: float = Field(
        2.0,
        ge=0,
        description="Weight of GiGPO's step advantages, among replies to the same state; 0: GRPO alone.",
    )
    negative_advantage_weight: float = Field(
        0.5,
        ge=0,
        description="Factor of negative advantages; 1: as in GRPO, 0: train only on better-than-average "
        "rollouts.",
    )
    normalise_families: bool = Field(
        False,
        description="Normalise the advantages of all tokens within each family of tasks (AgentRL, arXiv "
        "2510.04206).",
    )
    scale_rewards: bool = Field(True, description="Divide advantages by the group's standard deviation.")

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> GRPOConfig:
        if self.reward != "outcome" and self.scale_rewards:
            raise ValueError(
                "scale_rewards: true lets a group of failures pull harder than one with a success if reward "
                f"is {self.reward}; set scale_rewards: false"
            )
        if self.step_credit == "istar" and self.cross_policy_share:
            raise ValueError(
                "step_credit: istar rewards replies of the initial policy for being its own; set "
                "cross_policy_share: 0"
            )
        if self.step_credit != "gigpo":
            names = ["step_weight", "discount"]
            self._refuse_without_effect(names, f"step_credit: {self.step_credit}", "step_credit: gigpo")
        elif not self.step_weight:
            self._refuse_without_effect(["discount"], "step_weight: 0", "step_weight")
        return self


class PPOConfig(PolicyGradientConfig):
    """PPO with a value head.

    It has no `reward`: it normalises over the iteration, not within groups, so HERO's ranks would have no
    group, or a group of failures would pull harder than one with a success.
    """

    needs_task_clusters: ClassVar[bool] = True
    min_generations: ClassVar[int] = 1
    value_learning_rate: ClassVar[float] = 1e-3
    """Learning rate of the value head; it falls with `rl.learning_rate`."""

    type: Literal["ppo"] = "ppo"
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="lambda of generalised advantage estimation, per step of the episode."
    )


class DPOConfig(OptimiserStepsConfig):
    """DPO on a success and a failure of one task (arXiv 2506.21495)."""

    needs_task_clusters: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2

    type: Literal["dpo"] = "dpo"
    beta: float = Field(0.1, gt=0, description="Strength of the reference policy.")
    sync_every: int = Field(
        1,
        ge=0,
        description="Iterations between updates of the rollout policy and of the reference: 1 online, "
        "more semi-online, 0 offline. As many as there are iterations are refused: that is offline.",
    )


class RFTConfig(Section):
    """Rejection-sampling fine-tuning: supervised training on the policy's own successes."""

    needs_task_clusters: ClassVar[bool] = False
    min_generations: ClassVar[int] = 1

    type: Literal["rft"] = "rft"
    max_successes: int = Field(8, ge=1, description="Different successes kept per task, the newest ones.")
    epochs: int = Field(3, ge=1, description="Epochs over all kept successes, in each iteration.")


class MetaRewardingConfig(OptimiserStepsConfig):
    """Meta-Rewarding: a chat model judges its own episodes and judgements (arXiv 2407.19594)."""

    needs_task_clusters: ClassVar[bool] = False
    min_generations: ClassVar[int] = 2

    type: Literal["meta_rewarding"] = "meta_rewarding"
    beta: float = Field(0.1, gt=0, description="Strength of the reference policy.")
    judgements: int = Field(5, ge=2, description="Judgements of each episode.")


def _type_of(value: Any) -> str:
    return str(value.get("type", "grpo") if isinstance(value, dict) else getattr(value, "type", ""))


AlgorithmConfig = Annotated[
    Annotated[GRPOConfig, Tag("grpo")]
    | Annotated[PPOConfig, Tag("ppo")]
    | Annotated[DPOConfig, Tag("dpo")]
    | Annotated[RFTConfig, Tag("rft")]
    | Annotated[MetaRewardingConfig, Tag("meta_rewarding")],
    Discriminator(_type_of),
]
ALGORITHMS: dict[str, type[Section]] = {
    "grpo": GRPOConfig,
    "ppo": PPOConfig,
    "dpo": DPOConfig,
    "rft": RFTConfig,
    "meta_rewarding": MetaRewardingConfig,
}


def merged_algorithm(*layers: Any) -> dict[str, Any]:
    """One mapping from `algorithm` values of rising precedence; a text is a type alone.

    A layer with another type keeps those options of the layers before it that both types share.
    """
    merged: dict[str, Any] = {"type": "grpo"}
    for layer in layers:
        values = {"type": layer} if isinstance(layer, str) else layer
        if not isinstance(values, dict):
            continue
        before, after = str(merged["type"]), str(values.get("type", merged["type"]))
        if before != after:
            shared = shared_options(before, after)
            merged = {name: value for name, value in merged.items() if name in shared}
        merged |= values
        merged.setdefault("type", after)
    return merged


def shared_options(first: str, second: str) -> set[str]:
    """Options that two types inherit from one base. DPO's `beta` and GRPO's are different ideas."""
    if first not in ALGORITHMS or second not in ALGORITHMS:
        return set()
    bases = [base for base in ALGORITHMS[first].__mro__ if issubclass(ALGORITHMS[second], base)]
    return {name for base in bases if issubclass(base, Section) for name in base.model_fields}
