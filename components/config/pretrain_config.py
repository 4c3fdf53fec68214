"""The config section `pretrain`: how `dreamgym pretrain` makes the backbone, as a list of training phases."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.config_values import Seed
from components.config.reading.section import Section


class PretrainPhase(Section):
    """One training: synthetic exercises first, then the text of trajectories."""

    copy_tokens: int = Field(
        2_000_000, ge=0, description="Tokens of the copying exercise: random sequences that are repeated."
    )
    compare_tokens: int = Field(
        3_000_000, ge=0, description="Tokens of the comparing exercise: is a word in a list?"
    )
    edit_tokens: int = Field(
        3_000_000, ge=0, description="Tokens of the editing exercise: lists that lose and gain words."
    )
    number_tokens: int = Field(
        0, ge=0, description="Tokens of the exercise with pairs of numbers: which one is lower?"
    )
    exercise_rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Tokens of earlier exercises mixed into each later one, per token of its own. Without "
        "them later exercises undo earlier ones.",
    )
    copy_repeats: float = Field(
        0.0, ge=0, le=1, description="Share of copied sequences with few different tokens, like spelt names."
    )
    tokens: int = Field(
        28_000_000, ge=0, description="Tokens of trajectories, in all epochs; 0: the exercises alone."
    )
    hindsight: int = Field(
        0, ge=0, description="Hindsight-relabelled copies per judged episode, with the opposite outcome."
    )
    renamed: int = Field(
        0, ge=0, description="Copies per episode with other names, so that few names are memorised."
    )
    rehearsal: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Tokens of comparing, editing and number exercises per token of text.",
    )
    copy_rehearsal: float = Field(
        0.0, ge=0, le=1, description="Tokens of the copying exercise per token of text."
    )
    recall_rehearsal: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of long-range retrieve-and-compare exercises, per token of text.",
    )
    learning_rate: float = Field(8e-3, gt=0, description="Peak of the cosine schedule.")
    text_rate: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Factor of the learning rate for text; below 1 the text undoes less of the exercises.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> PretrainPhase:
        if self.tokens == 0:
            of_text = [
                "hindsight",
                "renamed",
                "rehearsal",
                "copy_rehearsal",
                "recall_rehearsal",
                "text_rate",
            ]
            self._refuse_without_effect(of_text, "tokens: 0", "tokens")
        return self


class PretrainConfig(Section):
    """How `dreamgym pretrain` makes the backbone, from trajectories of training tasks alone."""

    corpus: Literal["games", "logs"] = Field(
        "games",
        description="games: further training tasks are played for it, by the expert too; logs: it reads the "
        "recorded training episodes and nothing else.",
    )
    tasks: int = Field(
        1750, ge=1, description="Training tasks whose trajectories it is pretrained on (no held-out ones)."
    )
    sizes: list[int] = Field(
        default_factory=lambda: [8, 8, 20],
        min_length=1,
        description="Receptacles, and as many objects, of its generated worlds, in equal parts; a size "
        "named twice has two parts.",
    )
    types: list[str] = Field(
        default_factory=list,
        description="MiniWoB task types in place of environment.browser.types, without every fourth; "
        "empty: those.",
    )
    max_steps: int = Field(30, ge=1, description="Step limit of its episodes.")
    batch_tokens: int = Field(
        3072, ge=64, description="Tokens per optimiser step; many small steps learn copying sooner."
    )
    seed: Seed = Field(
        0, description="Seed of games, initial weights and batches; each further phase adds 1."
    )
    phases: list[PretrainPhase] = Field(
        default_factory=lambda: [PretrainPhase()],
        min_length=1,
        description="The recipe: trainings one after the other on the same episodes.",
    )

    @model_validator(mode="after")
    def _refuse_options_of_played_games(self) -> PretrainConfig:
        if self.corpus == "logs":
            of_games = ["tasks", "sizes", "types", "max_steps"]
            self._refuse_without_effect(of_games, "corpus: logs", "pretrain.corpus=games")
        return self

    def trainings(self) -> list[PretrainConfig]:
        """The settings of each phase, in order, each with one phase and a seed of its own.

        Seeds count up, so that a later phase draws other names, exercises and batches than an earlier one.
        """
        return [
            self.model_copy(update={"phases": [phase], "seed": self.seed + number})
            for number, phase in enumerate(self.phases)
        ]
