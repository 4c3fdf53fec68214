"""The config sections of a run: where it is recorded, and how long a stage may take."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from components.config.section import Section

_NAME = re.compile(r"[^/:\x00-\x1f\x7f]{1,200}")


class TrackingConfig(Section):
    """MLflow: where it is and what the experiment is called."""

    uri: str = Field(
        "", description="MLflow tracking URI; empty: $MLFLOW_TRACKING_URI, else sqlite under mlflow/."
    )
    experiment: str = Field(
        "dreamgym",
        description="MLflow experiment, and prefix of the registered models' names; left out, other "
        "environments than ALFWorld add theirs: "
        "dreamgym-webshop.",
    )
    dvc_experiment: bool = Field(
        True, description="Save the workspace as a DVC experiment commit at the end of a run."
    )

    @field_validator("experiment")
    @classmethod
    def _begins_model_names(cls, value: str) -> str:
        """MLflow refuses such a name only when the first model is registered, after all training."""
        if not _NAME.fullmatch(value) or value != value.strip():
            raise ValueError(
                "expected 1 to 200 characters without '/', ':', line breaks or blanks at the ends"
            )
        return value


class TimeoutConfig(Section):
    """How many minutes a stage may take: one that hangs ends its run, in place of holding up the schedule for
    ever.
    """

    stage: float = Field(
        1440.0,
        gt=0,
        description="Minutes that a stage may take; its checkpoint stays, and the next run goes on from it.",
    )
    experience_model: float | None = Field(
        None, gt=0, description="Minutes of this stage in place of `stage`."
    )
    synthetic_rl: float | None = Field(None, gt=0, description="Minutes of this stage in place of `stage`.")
    sim_to_real: float | None = Field(None, gt=0, description="Minutes of this stage in place of `stage`.")
    real_rl: float | None = Field(None, gt=0, description="Minutes of this stage in place of `stage`.")

    def seconds(self, stage: str) -> float:
        """What the stage may take."""
        return 60.0 * (self.model_dump().get(stage) or self.stage)
