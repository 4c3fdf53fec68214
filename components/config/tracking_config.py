"""The config section `tracking`: MLflow and the DVC experiment of a run."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from components.config.reading.section import Section

_NAME = re.compile(r"[^/:\x00-\x1f\x7f]{1,200}")


class TrackingConfig(Section):
    """MLflow: its address and the name of the experiment."""

    uri: str = Field(
        "", description="MLflow tracking URI; empty: $MLFLOW_TRACKING_URI, else sqlite under mlflow/."
    )
    experiment: str = Field(
        "dreamgym",
        description="MLflow experiment, and prefix of the registered models' names. The default is "
        "`dreamgym` for ALFWorld and `dreamgym-NAME` for other environments.",
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
