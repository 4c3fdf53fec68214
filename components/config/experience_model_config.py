"""The config section `experience_model`: how the dream is trained and how it answers."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from components.config.section import Section

OF_REASONING = ("hindsight", "renamed", "grounded")
"""Options that need the reasoning of the programmatic teacher."""


class ExperienceModelConfig(Section):
    """Fine-tuning of the experience model (Eq. 5). The paper gives no hyperparameters: all values are our
    choice.
    """

    checkpoint_every: ClassVar[int] = 200
    """Updates between two checkpoints of fine-tuning."""
    max_unannotated_share: ClassVar[float] = 0.05
    """Share of episodes without an annotation of the `llm` teacher above which the stage fails."""

    path: str = Field(
        "",
        description="Directory with the causal LM that it starts from, in safetensors; empty: the policy's "
        "backbone.",
    )
    epochs: float = Field(
        1.0, gt=0, description="Passes over the offline episodes; less than 1: that share of them."
    )
    near_miss_weight: float = Field(
        2.0,
        gt=0,
        description="How many times as often an episode of near misses is learnt from as another; 1: all "
        "alike (our choice).",
    )
    behaviours: list[Literal["expert", "noisy", "near_miss", "random"]] = Field(
        default_factory=list,
        description="Whose offline episodes it learns from and retrieves (ablation); empty: everybody's.",
    )
    transitions: int = Field(
        0,
        ge=0,
        description="Most offline transitions that it learns from and retrieves (data-size curve), in whole "
        "episodes; 0: all.",
    )
    hindsight: int = Field(
        0,
        ge=0,
        description="Further copies of each judged episode, under an instruction that turns its outcome, as "
        "the adapter judges.",
    )
    renamed: int = Field(
        0,
        ge=0,
        description="Further copies of each of these episodes, with other names throughout: few names are "
        "learnt by heart.",
    )
    rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of the backbone's exercises mixed in, for each of the episodes' own; else they "
        "are forgotten.",
    )
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW, or Muon for the matrices of the blocks, as in pretraining."
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak of the cosine schedule.")
    batch_tokens: int = Field(4096, ge=64, description="Tokens an update.")
    history: bool = Field(
        True, description="False hides the steps before the current state from the model (ablation)."
    )
    recall: int = Field(
        6,
        ge=0,
        description="Earlier states of the episode that name what the action names, shown again beside it "
        "(our choice); 0: none.",
    )
    reasoning: bool = Field(True, description="False trains it to predict without reasoning (ablation).")
    teacher: Literal["programmatic", "llm"] = Field(
        "programmatic",
        description="Whose reasoning is learnt: the adapter's, recorded with the data, or that of the model "
        "at `endpoint`.",
    )
    max_new_tokens: int = Field(128, ge=8, description="Longest answer, reasoning included, in tokens.")
    resamples: int = Field(
        6,
        ge=0,
        description="How often an answer that cannot be used is sampled again before the episode fails.",
    )
    coherent: bool = Field(
        True,
        description="Ask again where an answer contradicts the dreamed episode so far, as the adapter tells "
        "(our choice).",
    )
    grounded: bool = Field(
        False,
        description="Ask again where the reasoning quotes what it was not shown, as the adapter tells; "
        "where it always does, the likeliest "
        "answer is believed if it grants no reward (our choice).",
    )
    premise: bool = Field(
        True,
        description="A dream decides before its first step where the things lie that its goal needs (our "
        "choice).",
    )
    temperature: float = Field(
        1.0,
        ge=0,
        description="Of states that the history leaves open, such as what a box contains; all else is "
        "greedy. 0: the likeliest.",
    )

    @model_validator(mode="after")
    def _no_dead_options(self) -> ExperienceModelConfig:
        if not self.history:
            self._refuse_dead(["recall"], "history: false", "history: true")
        if self.behaviours and ("near_miss" not in self.behaviours or set(self.behaviours) == {"near_miss"}):
            self._refuse_dead(
                ["near_miss_weight"],
                f"behaviours: {self.behaviours}",
                "near_miss and others among behaviours",
            )
        if not self.reasoning:
            self._refuse_dead(["teacher"], "reasoning: false", "reasoning: true")
        if self.teacher == "llm" or not self.reasoning:
            given = f"teacher: {self.teacher}, reasoning: {self.reasoning}"
            self._refuse_dead(OF_REASONING, given, "the programmatic teacher's reasoning")
        return self
