"""The config section `data`: the offline trajectories that `dreamgym collect` records."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from components.config.reading.config_values import Seed
from components.config.section import Section


class DataConfig(Section):
    """The offline trajectories that `dreamgym collect` records."""

    max_text_chars: ClassVar[int] = 4000
    """Longest text that validation accepts, in characters."""

    train_tasks: int = Field(300, ge=1, description="Training tasks played for the offline data.")
    fidelity_tasks: int = Field(
        40, ge=1, description="Further training-split tasks held out to measure fidelity on."
    )
    fidelity_worlds: int = Field(
        20,
        ge=0,
        description="Test-split tasks in worlds (floor plans, sites) where no training task plays, to "
        "measure fidelity on, too.",
    )
    expert: int = Field(1, ge=0, description="Expert episodes a task.")
    noisy: int = Field(1, ge=0, description="Episodes a task of an expert that errs.")
    near_miss: int = Field(
        2, ge=0, description="Episodes a task full of near misses: what teaches the dream to refuse."
    )
    random: int = Field(
        1, ge=0, description="Episodes a task of a random policy, impossible and malformed actions included."
    )
    seed: Seed = Field(0, description="Seed of the behaviours; regenerated data has the same DVC hash.")
    families: list[str] = Field(
        default_factory=list,
        description="Families of tasks that models and policies learn from (transfer to the others); empty: "
        "all.",
    )
    quarantine_share: float = Field(
        0.02, ge=0, le=1, description="Share of invalid rows above which validation stops the run."
    )
