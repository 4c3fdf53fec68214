"""The config sections of how policies are trained: adapters, cloning, RL with its algorithms, the
curriculum.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.section import Section


class LoraConfig(Section):
    """Low-rank adapters through peft; rank 0 trains all weights."""

    rank: int = Field(0, ge=0, description="Rank of the adapters; 0 turns them off.")
    alpha: float = Field(16.0, gt=0, description="Scale of the adapters' output, divided by the rank.")
    targets: list[str] | Literal["all-linear"] = Field(
        default_factory=lambda: ["q_proj", "v_proj"],
        description="Modules that get an adapter: their names, or `all-linear`.",
    )

    @model_validator(mode="after")
    def _no_dead_options(self) -> LoraConfig:
        if self.rank == 0:
            self._refuse_dead(["alpha", "targets"], "rank: 0", "a rank, for example rank: 8")
        return self


class CloningConfig(Section):
    """Behaviour cloning on a few expert demonstrations, or on what the logs hold."""

    demonstrations: int = Field(
        100, ge=1, description="Episodes cloned, the first of those that `behaviours` allows."
    )
    behaviours: list[Literal["expert", "noisy", "near_miss", "random"]] = Field(
        ["expert"],
        min_length=1,
        description="Whose episodes: an expert's that won; all of the others, mistakes included, which "
        "leaves RL more to unlearn.",
    )
    early_experience: Literal["none", "world_modelling", "self_reflection"] = Field(
        "none",
        description="A warm start from alternatives that are really executed beside the expert's steps "
        "(arXiv 2510.08558).",
    )
    alternatives: int = Field(
        3, ge=1, description="K: alternatives tried at each state, for early_experience."
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW, or Muon for the blocks' matrices as in pretraining."
    )
    epochs: float = Field(
        8.0,
        gt=0,
        description="Passes; cloning to a loss near zero kills exploration, too few leave it ungrammatical.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    batch_tokens: int = Field(2048, ge=64, description="Tokens an update.")
    lora: LoraConfig = Field(default_factory=LoraConfig)

    @model_validator(mode="after")
    def _no_dead_options(self) -> CloningConfig:
        if self.early_experience == "none":
            self._refuse_dead(["alternatives"], "early_experience: none", "early_experience: self_reflection")
        elif self.behaviours != ["expert"]:
            found = (
                f"early_experience: {self.early_experience} holds an expert's steps against others; "
                f"behaviours: {self.behaviours}"
            )
            raise ValueError(f"{found} has steps that are none. Expected behaviours: [expert]")
        return self


class GRPOConfig(Section):
    """Advantages of GRPO and GiGPO, with `algorithm: grpo`. The paper gives no hyperparameters: all values
    are our choice.
    """

    step_weight: float = Field(
        2.0,
        ge=0,
        description="Weight of GiGPO's advantage of single steps, among replies to the same state; 0: GRPO "
        "alone.",
    )
    negative_weight: float = Field(
        0.5,
        ge=0,
        description="Weight of advantages below zero; 1: GRPO's own, 0: only what beats its group is learnt.",
    )
    normalise: bool = Field(True, description="Divide advantages by the group's standard deviation.")


class HeroConfig(Section):
    """HERO's hybrid reward (arXiv 2510.07242): the adapter's `progress` ranks the episodes that end alike.
    For `reward: hero`.
    """

    alpha: float = Field(0.05, ge=0, lt=1, description="Half-width of the band of failures, [-alpha, alpha].")
    beta: float = Field(
        0.05, ge=0, lt=1, description="Half-width of the band of successes, [1 - beta, 1 + beta]."
    )
    weighting: Literal["appendix", "text", "off"] = Field(
        "appendix",
        description="w_min, w_max, k of the groups' weights: the paper's appendix (0.4, 3, 6), its text "
        "(0.5, 2, 5), or none.",
    )

    @model_validator(mode="after")
    def _bands_stay_apart(self) -> HeroConfig:
        if self.alpha + self.beta >= 1:
            raise ValueError(
                f"alpha + beta is {self.alpha + self.beta:g}: a failure could be worth more than a success; "
                "expected below 1"
            )
        return self


class PPOConfig(Section):
    """Proximal policy optimisation with a value head, with `algorithm: ppo`. All values are our choice."""

    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="lambda of generalised advantage estimation, a step of the episode."
    )
    value_weight: float = Field(
        0.5, ge=0, description="Weight of the value head's squared error beside the policy's loss."
    )
    value_clip: float = Field(
        0.2, gt=0, description="Most that a value may move from the sampled one before its gradient ends."
    )
    value_rate: float = Field(
        1e-3, gt=0, description="Learning rate of the value head; it falls as learning_rate does."
    )
    clusters: int = Field(
        8,
        ge=1,
        description="Clusters of an iteration's tasks by their encoding: with PPO the group whose variance "
        "the curriculum sees.",
    )


class DPOConfig(Section):
    """Direct preference optimisation on a success and a failure of one task, with `algorithm: dpo` (arXiv
    2506.21495).
    """

    beta: float = Field(0.1, gt=0, description="Strength of the reference; the paper's for verifiable tasks.")
    sync_every: int = Field(
        1,
        ge=0,
        description="Iterations after which what plays becomes what is trained: 1 online, more semi-online, "
        "0 never (offline).",
    )
    sync_reference: bool = Field(
        True, description="The reference moves along with what plays; false: it stays where training began."
    )

    @model_validator(mode="after")
    def _no_dead_options(self) -> DPOConfig:
        if self.sync_every == 0:
            self._refuse_dead(["sync_reference"], "sync_every: 0", "sync_every")
        return self


class RFTConfig(Section):
    """What `algorithm: rft` keeps, and the supervised training that learns it."""

    most: int = Field(8, ge=1, description="Different successes of a task that are kept, the newest.")
    epochs: int = Field(3, ge=1, description="Passes over all that is kept.")
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    step_tokens: int = Field(4096, ge=64, description="Tokens an optimiser step, of what is kept.")


class RLConfig(Section):
    """What all algorithms share: rollouts, updates, the clipped ratio. The paper gives no hyperparameters:
    all values are our choice.
    """

    algorithm: Literal["grpo", "ppo", "dpo", "rft"] = Field(
        "grpo", description="What turns returns into updates."
    )
    iterations: int = Field(20, ge=0, description="Iterations of rollouts and an update.")
    tasks: int = Field(
        32, ge=1, description="Tasks an iteration; a small policy drifts on updates of few rollouts."
    )
    group: int = Field(
        8, ge=1, description="Rollouts a task, which share a baseline; PPO and RFT may do with 1."
    )
    temperature: float = Field(1.0, gt=0, description="Of the policy's sampling in rollouts.")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW, or Muon for the blocks' matrices as in pretraining."
    )
    learning_rate: float = Field(5e-4, gt=0, description="Of the optimiser, at the first iteration.")
    schedule: Literal["linear", "constant"] = Field(
        "linear", description="Rate falling to zero over the iterations, or staying."
    )
    reward: Literal["outcome", "hero"] = Field(
        "outcome", description="1 for a success, else 0; or that and the adapter's progress."
    )
    discount: float = Field(
        0.95, gt=0, le=1, description="Of the return, a step: of GiGPO's steps' advantages and of PPO's."
    )
    idle_penalty: float = Field(
        0.5, ge=0, description="Taken from the advantage of a reply that left the state as it was."
    )
    loss_mean: Literal["episode", "token"] = Field(
        "episode",
        description="Mean of the episodes' means, or over all tokens, where long episodes, mostly lost "
        "ones, weigh more.",
    )
    clip: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="How far below 1 the probability ratio may fall before its gradient ends.",
    )
    clip_high: float = Field(
        0.2, gt=0, description="How far above 1 it may rise; DAPO's clip-higher is 0.28."
    )
    kl: float = Field(
        0.0,
        ge=0,
        description="Weight of the KL divergence from the policy that training began with; 0: none.",
    )
    demonstration_weight: float = Field(
        0.25,
        ge=0,
        description="Weight of the cloning loss on the expert demonstrations in each step (InstructGPT's "
        "PPO-ptx); 0: none.",
    )
    demonstration_tokens: int = Field(
        2048, ge=64, description="Tokens of demonstrations in a step, drawn anew each time."
    )
    epochs: int = Field(1, ge=1, description="Passes over an iteration's rollouts.")
    batch_tokens: int = Field(
        8192, ge=64, description="Tokens a forward pass; the gradients of an update are summed."
    )
    updates: int = Field(2, ge=1, description="Optimiser steps a pass.")
    interpolation: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Weights in the end: this share of the way from those at the start (WiSE-FT); 1: the "
        "last ones.",
    )
    max_new_tokens: int = Field(48, ge=4, description="Longest thought and action of a step, in tokens.")
    grpo: GRPOConfig = Field(default_factory=GRPOConfig)
    hero: HeroConfig = Field(default_factory=HeroConfig)
    ppo: PPOConfig = Field(default_factory=PPOConfig)
    dpo: DPOConfig = Field(default_factory=DPOConfig)
    rft: RFTConfig = Field(default_factory=RFTConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)

    @model_validator(mode="after")
    def _no_dead_options(self) -> RLConfig:
        for name in ("grpo", "ppo", "dpo", "rft"):
            if name != self.algorithm:
                self._refuse_dead([name], f"algorithm: {self.algorithm}", f"algorithm: {name}")
        if self.algorithm == "dpo":
            dead = ["discount", "idle_penalty", "loss_mean", "clip", "clip_high", "kl", "reward"]
            self._refuse_dead(dead, "algorithm: dpo", "algorithm: grpo")
        if self.algorithm == "rft":
            dead = [
                "discount",
                "idle_penalty",
                "loss_mean",
                "clip",
                "clip_high",
                "kl",
                "reward",
                "updates",
                "epochs",
            ]
            dead += ["learning_rate", "schedule"]
            self._refuse_dead(dead, "algorithm: rft", "algorithm: grpo")
        if self.algorithm == "grpo" and not self.grpo.step_weight:
            self._refuse_dead(["discount"], "grpo.step_weight: 0", "grpo.step_weight")
        if self.reward == "outcome":
            self._refuse_dead(["hero"], "reward: outcome", "reward: hero")
        if not self.demonstration_weight:
            self._refuse_dead(
                ["demonstration_tokens"], "demonstration_weight: 0", "demonstration_weight: 0.1"
            )
        if self.group == 1 and self.algorithm not in ("ppo", "rft"):
            raise ValueError(
                f"group: 1 leaves {self.algorithm} nothing to compare a rollout with; expected at least 2"
            )
        return self


class SyntheticRLConfig(RLConfig):
    """RL in the dream."""

    iterations: int = Field(8, ge=0, description="Iterations of rollouts and an update.")
    check_every: int = Field(
        4,
        ge=0,
        description="Iterations between looks at whether the real engine confirms what the policy wins in "
        "the dream; 0: none.",
    )
    check_replays: int = Field(
        16, ge=1, description="Dreamed successes that such a look plays again in the real engine, at most."
    )
    processes: int = Field(
        2,
        ge=1,
        description="Processes that dream side by side; the split of the rollouts is part of the result.",
    )

    @model_validator(mode="after")
    def _no_dead_checks(self) -> SyntheticRLConfig:
        if self.check_every == 0:
            self._refuse_dead(["check_replays"], "check_every: 0", "check_every")
        if self.check_every > self.iterations > 0:
            self._refuse_dead(
                ["check_every"], f"iterations: {self.iterations}", "check_every to as many or fewer"
            )
        return self


class SimToRealConfig(RLConfig):
    """RL in the real environment, started from the dreamed policy."""

    iterations: int = Field(4, ge=0, description="Most iterations; the budget may end them sooner.")
    tasks: int = Field(12, ge=1, description="Tasks an iteration: few, since real ones are dear.")
    budget: int = Field(4000, ge=0, description="Real interactions (environment steps) that may be spent.")

    @model_validator(mode="after")
    def _no_clusters(self) -> SimToRealConfig:
        self.ppo._refuse_dead(
            ["clusters"], "RL in reality, which has no curriculum", "synthetic_rl.ppo.clusters"
        )
        return self


class RealRLConfig(RLConfig):
    """RL in the real environment from the cloned policy: what a study holds the dream against; `dreamgym
    retrain` has no use for it.
    """

    iterations: int = Field(400, ge=1, description="Most iterations; the budget ends them sooner.")
    schedule: Literal["linear", "constant"] = Field(
        "constant", description="The budget, not the iterations, tells how long it lasts."
    )
    budget: int = Field(
        25_000,
        ge=1,
        description="Real interactions that may be spent; no iteration begins that might exceed it.",
    )

    @model_validator(mode="after")
    def _no_clusters(self) -> RealRLConfig:
        self.ppo._refuse_dead(
            ["clusters"], "RL in reality, which has no curriculum", "synthetic_rl.ppo.clusters"
        )
        return self


class CurriculumConfig(Section):
    """Which tasks are dreamed, and which new ones are made (Eq. 6, 7). The paper does not give m and lambda:
    our choice.
    """

    enabled: bool = Field(
        True, description="False samples the training tasks evenly and generates none (ablation)."
    )
    seeds: int = Field(8, ge=1, description="m: tasks of the highest return variance that are varied.")
    candidates: int = Field(
        4,
        ge=1,
        description="Variations the experience model proposes for each seed task; the most novel sound one "
        "is taken.",
    )
    share: float = Field(0.25, ge=0, le=1, description="lambda: largest share of generated tasks in a batch.")
    explore: float = Field(
        0.75,
        ge=0,
        le=1,
        description="Share of a batch drawn from the training tasks, those never played first; what is left "
        "over goes by value.",
    )

    @model_validator(mode="after")
    def _no_dead_options(self) -> CurriculumConfig:
        if not self.enabled:
            self._refuse_dead(["seeds", "candidates", "share", "explore"], "enabled: false", "enabled: true")
        if not self.share:
            self._refuse_dead(["seeds", "candidates"], "share: 0", "a share")
        if self.share + self.explore > 1 + 1e-9:
            raise ValueError(
                f"share + explore is {self.share + self.explore:g}, more than a batch; expected at most 1"
            )
        return self
