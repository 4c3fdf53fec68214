"""The config section `curriculum`: which tasks the dream plays."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.config.reading.section import Section


class CurriculumConfig(Section):
    """Selection and generation of tasks (Eq. 6, 7). The paper gives no values for m and lambda: ours."""

    enabled: bool = Field(
        True, description="False draws training tasks evenly and generates none (ablation)."
    )
    selection: Literal["variance", "posterior"] = Field(
        "variance",
        description="variance: the paper's, by the variance of a task's latest returns. posterior: by draws "
        "from a decayed posterior over success that tasks of one instruction and family share; a generated "
        "task is first probed with a few rollouts (our choice).",
    )
    seeds: int = Field(
        8,
        ge=1,
        description="m: tasks that are varied, those with the highest return variance (posterior: with "
        "a mean success nearest to one half).",
    )
    candidates: int = Field(
        4,
        ge=1,
        description="Variations that the experience model proposes for each seed task; the most novel "
        "valid one is used. posterior: one harder than an easy seed task or easier than a hard one, of the "
        "largest drawn variance.",
    )
    share: float = Field(
        0.25, ge=0, le=1, description="lambda: largest share of generated tasks in an iteration."
    )
    explore: float = Field(
        0.75,
        ge=0,
        le=1,
        description="Share of an iteration's tasks drawn from all training tasks, new ones first; the "
        "rest is selected by return variance.",
    )
    judge: bool = Field(
        False,
        description="Ask the language model at `endpoint` whether a made-up task can be done; one that it "
        "denies is not played.",
    )

    @model_validator(mode="after")
    def _refuse_options_without_effect(self) -> CurriculumConfig:
        if not self.enabled:
            self._refuse_without_effect(
                ["selection", "seeds", "candidates", "share", "explore", "judge"],
                "enabled: false",
                "enabled: true",
            )
        if not self.share:
            self._refuse_without_effect(["seeds", "candidates", "judge"], "share: 0", "a share")
        if self.selection == "posterior":
            self._refuse_without_effect(["explore"], "selection: posterior", "selection: variance")
        if self.selection == "variance" and self.share + self.explore > 1 + 1e-9:
            raise ValueError(
                f"share + explore is {self.share + self.explore:g}, more than all tasks; expected at most 1"
            )
        return self
