"""The config section `cloning`: behaviour cloning of the first policy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section


class CloningConfig(Section):
    """Behaviour cloning on expert demonstrations, or on other recorded episodes."""

    demonstrations: int = Field(
        100, ge=1, description="Episodes to clone: the first ones of the behaviours below."
    )
    behaviours: list[Literal["expert", "noisy", "near_miss", "random", "policy"]] = Field(
        ["expert"],
        min_length=1,
        description="Behaviours to clone: the successful episodes of an expert, all episodes of the "
        "others. Mistakes in them leave RL more to improve.",
    )
    only_successes: bool = Field(
        False, description="Clone successful episodes alone, whoever acted; logs of unknown quality need it."
    )
    thoughts: bool = Field(
        True,
        description="Clone the behaviours' own thoughts too. False: actions alone, as with logs that have no "
        "thoughts.",
    )
    advantage_temperature: float = Field(
        0.0,
        ge=0,
        description="Draw episodes in proportion to exp(advantage / this), the advantage being the return "
        "minus the mean return of the task's episodes (advantage-weighted regression, arXiv 1910.00177); "
        "0: all alike.",
    )
    early_experience: Literal["none", "world_modelling", "self_reflection", "own_reflection"] = Field(
        "none",
        description="Early Experience (arXiv 2510.08558): also learn from alternatives to the cloned "
        "actions, executed in the real environment. A self_reflection is a template of the adapter's, an "
        "own_reflection is written by the policy's own chat model, which also proposes the alternatives. "
        "Needs experts or only_successes.",
    )
    judged_episodes: int = Field(
        0,
        ge=0,
        description="Logged episodes that a chat model also learns to judge, from their outcome, as many "
        "successes as failures: what rl.algorithm.type=meta_rewarding starts from.",
    )
    epochs: float = Field(
        8.0,
        gt=0,
        description="Epochs. Too many collapse exploration; too few produce malformed actions.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    batch_tokens: int = Field(2048, ge=64, description="Tokens per optimiser step.")

    @model_validator(mode="after")
    def _reflections_belong_to_each_demonstration(self) -> CloningConfig:
        if self.early_experience.endswith("reflection") and self.advantage_temperature:
            raise ValueError(
                f"advantage_temperature: draws demonstrations anew, and {self.early_experience} needs each "
                "of them. Expected advantage_temperature: 0"
            )
        return self

    @model_validator(mode="after")
    def _only_good_actions_have_alternatives(self) -> CloningConfig:
        is_good = self.only_successes or self.behaviours == ["expert"]
        if self.early_experience != "none" and not is_good:
            problem = (
                f"early_experience: {self.early_experience} compares good actions with others; behaviours: "
                f"{self.behaviours} have failures"
            )
            raise ValueError(f"{problem}. Expected behaviours: [expert], or only_successes: true")
        return self

    def needs_success(self, behaviour: str) -> bool:
        """Whether an episode of `behaviour` is cloned only if it succeeded."""
        return self.only_successes or behaviour == "expert"
