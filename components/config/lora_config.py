"""The config section `lora`: low-rank adapters, for both models and for every training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section


class LoraConfig(Section):
    """Low-rank adapters (peft) in fine-tuning, cloning and RL; rank 0 trains all weights instead."""

    rank: int = Field(0, ge=0, description="Rank of the adapters; 0 trains all weights.")
    alpha: float = Field(16.0, gt=0, description="Scale of the adapters' output, divided by the rank.")
    targets: list[str] | Literal["all-linear"] = Field(
        default_factory=lambda: ["q_proj", "v_proj"],
        description="Names of the modules that get an adapter, or `all-linear`.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> LoraConfig:
        if self.rank == 0:
            self._refuse_without_effect(["alpha", "targets"], "rank: 0", "a rank, for example rank: 8")
        return self
