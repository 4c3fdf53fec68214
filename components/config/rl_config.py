"""The config section `rl`: RL in the dream, in the real environment, and of the baseline without a dream.

    rl:
      num_generations: 8        # for all three
      algorithm: {type: grpo, epsilon_high: 0.28}
      dream: {iterations: 10}   # what differs in the dream
      real: {budget: 4000}

A key of `rl` holds for all three stages; `rl.dream`, `rl.real` and `rl.baseline` override it. The resolved
config has the settings of each stage in full.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from components.config.algorithm_config import (
    AlgorithmConfig,
    DPOConfig,
    GRPOConfig,
    PolicyGradientConfig,
    merged_algorithm,
)
from components.config.reading.section import Section

RFT_LEARNING_RATE = 1e-3
"""Default of `learning_rate` with `algorithm: rft`, whose every iteration is a supervised training."""


class RLConfig(Section):
    """Settings of one RL stage. The paper gives no hyperparameters: all values are our choice."""

    schedule: ClassVar[Literal["linear", "constant"]] = "linear"
    """The learning rate over the training: falling to zero with its iterations or its budget, whichever is
    nearer its end; or constant.
    """

    algorithm: AlgorithmConfig = Field(
        default_factory=GRPOConfig,
        description="Algorithm, with its own options: type grpo, ppo, dpo, rft or meta_rewarding.",
    )
    iterations: int = Field(20, ge=0, description="Iterations: rollouts, then an update.")
    tasks: int = Field(32, ge=1, description="Tasks per iteration; updates on few rollouts are noisy.")
    num_generations: int = Field(
        8, ge=1, description="Rollouts per task: the group that shares a baseline. PPO and RFT work with 1."
    )
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of the policy in rollouts.")
    learning_rate: float = Field(
        5e-4, gt=0, description="Learning rate of AdamW at the first iteration; rft has a default of 1e-3."
    )
    demonstration_weight: float = Field(
        0.25,
        ge=0,
        description="Weight of the cloning loss on expert demonstrations in each step (PPO-ptx); 0: none.",
    )
    observation_weight: float = Field(
        0.0,
        ge=0,
        description="Weight of the cross-entropy of the observed states in each step (ECHO); 0: none.",
    )
    batch_tokens: int = Field(
        8192, ge=64, description="Tokens per forward pass; gradients are summed over an update."
    )
    max_new_tokens: int = Field(48, ge=4, description="Longest thought and action of a step in tokens.")

    @property
    def discount(self) -> float:
        """Discount per step of the algorithm; the default of GRPO if it has none."""
        options = self.algorithm if isinstance(self.algorithm, PolicyGradientConfig) else GRPOConfig()
        return options.discount

    @model_validator(mode="after")
    def _groups_can_be_compared(self) -> RLConfig:
        if self.num_generations < self.algorithm.min_generations:
            raise ValueError(
                f"num_generations: {self.num_generations} leaves {self.algorithm.type} nothing to compare a "
                f"rollout with; expected at least {self.algorithm.min_generations}"
            )
        return self

    @model_validator(mode="after")
    def _dpo_synchronises(self) -> RLConfig:
        options = self.algorithm
        if isinstance(options, DPOConfig) and 0 < self.iterations <= options.sync_every > 1:
            raise ValueError(
                f"sync_every: {options.sync_every} never updates the rollout policy in {self.iterations} "
                "iterations: it is offline. Expected fewer than iterations, or sync_every: 0"
            )
        return self


class DreamRLConfig(RLConfig):
    """RL in the dream."""

    iterations: int = Field(8, ge=0, description="Iterations: rollouts, then an update.")
    check_every: int = Field(
        4,
        ge=0,
        description="Iterations between checks whether the real environment confirms dreamed successes; "
        "0: none.",
    )
    processes: int = Field(
        2,
        ge=1,
        description="Parallel dream processes; the split of the rollouts among them affects the numbers. "
        "1 plays in the process of the run: right for a pretrained model, whose decoding uses all threads.",
    )
    unanswered: Literal["left_out", "failure"] = Field(
        "failure",
        description="Episodes to whose last step the dream gave no valid answer. failure: failures like "
        "others, as in the paper. left_out: not trained on, nor in the group's baseline, which flatters a "
        "group whose losing episodes end so.",
    )
    end_early: bool = Field(
        True,
        description="End the run with an error where RL has no learning signal for many iterations or its "
        "success rate falls below half. A study's negative controls train on.",
    )
    lost_actions: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the dreamed steps whose action is lost on purpose: the state repeats, so that "
        "the policy learns to try again. Such steps never enter the buffer.",
    )
    staleness: int = Field(
        0,
        ge=0,
        le=16,
        description="Updates that the policy that plays is behind the trained one. 0: rollouts and updates "
        "take turns. 1: the next rollouts are played during an update. More: as many iterations are in the "
        "making at once. Truncated importance weights correct for it; for grpo and ppo.",
    )

    @model_validator(mode="after")
    def _staleness_can_be_corrected(self) -> DreamRLConfig:
        if not self.staleness:
            return self
        if not isinstance(self.algorithm, PolicyGradientConfig):
            raise ValueError(
                f"staleness: {self.algorithm.type} does not correct for an older policy; expected grpo or "
                "ppo, or staleness: 0"
            )
        if self.algorithm.cross_policy_share:
            raise ValueError("cross_policy_share and staleness: expected one of them to be 0")
        return self

    @model_validator(mode="after")
    def _no_dead_checks(self) -> DreamRLConfig:
        if self.check_every > self.iterations > 0:
            self._refuse_without_effect(
                ["check_every"], f"iterations: {self.iterations}", "check_every to as many or fewer"
            )
        return self


class RealRLConfig(RLConfig):
    """RL in the real environment, from the policy that was trained in the dream."""

    iterations: int = Field(4, ge=0, description="Most iterations; the budget may end them sooner.")
    tasks: int = Field(12, ge=1, description="Tasks per iteration: few, since real steps are costly.")
    budget: int = Field(4000, ge=0, description="Real interactions (environment steps) that may be spent.")


class BaselineRLConfig(RLConfig):
    """RL in the real environment from the cloned policy: the baseline of studies, unused by `retrain`."""

    schedule: ClassVar[Literal["linear", "constant"]] = "constant"

    iterations: int = Field(400, ge=1, description="Most iterations; the budget ends them sooner.")
    budget: int = Field(
        25_000,
        ge=1,
        description="Real interactions that may be spent; no iteration begins that might exceed it.",
    )


STAGES: dict[str, type[RLConfig]] = {
    "dream": DreamRLConfig,
    "real": RealRLConfig,
    "baseline": BaselineRLConfig,
}


class RLSection(Section):
    """Reinforcement learning: keys for all stages, and what differs in the dream and in reality."""

    dream: DreamRLConfig = Field(default_factory=DreamRLConfig)
    real: RealRLConfig = Field(default_factory=RealRLConfig)
    baseline: BaselineRLConfig = Field(default_factory=BaselineRLConfig)

    @classmethod
    def input_fields(cls) -> dict[str, FieldInfo]:
        """The keys that a file may set in this section: those of all stages, and the stages."""
        return {**RLConfig.model_fields, **cls.model_fields}

    @model_validator(mode="before")
    @classmethod
    def _distribute(cls, values: Any) -> Any:
        """Give each stage the keys for all stages; a stage's own keys win over them."""
        if not isinstance(values, dict):
            return values
        shared = {name: value for name, value in values.items() if name in RLConfig.model_fields}
        rest = {name: value for name, value in values.items() if name not in shared}
        for stage in STAGES:
            own = rest.get(stage)
            if own is not None and not isinstance(own, dict):
                if isinstance(own, str) and own in ("", "null", "~"):
                    own = {}
                else:
                    continue
            rest[stage] = _stage_values(shared, own or {})
        return rest


def _stage_values(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    values = shared | own
    algorithm = merged_algorithm(shared.get("algorithm"), own.get("algorithm"))
    if isinstance(values.get("algorithm", {}), str | dict):  # anything else is refused by its type
        values["algorithm"] = algorithm
    if str(algorithm["type"]) == "rft":
        values.setdefault("learning_rate", RFT_LEARNING_RATE)
    return values
