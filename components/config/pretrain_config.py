"""The config list `pretrain.phases`: trainings of a backbone in a row, each from the weights of the one
before.
"""

from __future__ import annotations

from pydantic import Field

from components.config.section import Section


class PretrainPhase(Section):
    """One training of a backbone. What a phase leaves out is as `pretrain` says."""

    copy_tokens: int | None = Field(None, ge=0, description="In place of pretrain.copy_tokens.")
    compare_tokens: int | None = Field(None, ge=0, description="In place of pretrain.compare_tokens.")
    edit_tokens: int | None = Field(None, ge=0, description="In place of pretrain.edit_tokens.")
    number_tokens: int | None = Field(None, ge=0, description="In place of pretrain.number_tokens.")
    exercise_rehearsal: float | None = Field(
        None, ge=0, le=1, description="In place of pretrain.exercise_rehearsal."
    )
    copy_repeats: float | None = Field(None, ge=0, le=1, description="In place of pretrain.copy_repeats.")
    tokens: int | None = Field(None, ge=0, description="In place of pretrain.tokens.")
    hindsight: int | None = Field(None, ge=0, description="In place of pretrain.hindsight.")
    renamed: int | None = Field(None, ge=0, description="In place of pretrain.renamed.")
    rehearsal: float | None = Field(None, ge=0, le=1, description="In place of pretrain.rehearsal.")
    copy_rehearsal: float | None = Field(None, ge=0, le=1, description="In place of pretrain.copy_rehearsal.")
    recall_rehearsal: float | None = Field(
        None, ge=0, le=1, description="In place of pretrain.recall_rehearsal."
    )
    learning_rate: float | None = Field(None, gt=0, description="In place of pretrain.learning_rate.")
    text_rate: float | None = Field(None, gt=0, le=1, description="In place of pretrain.text_rate.")
