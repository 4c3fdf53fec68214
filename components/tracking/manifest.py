"""The manifest: the one file that names everything that made a run, `runs/<id>/manifest.json`.

It is the join key between git, DVC, Prefect and MLflow. It is written again, in one step, whenever the run
learns more, so a crash leaves the last complete one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from components.errors import DataError
from components.files import read_text, write_text
from components.tracking.process import OwnProcess
from components.tracking.run_environment import Closed, Environment
from components.tracking.stage_store.stage_store import StageResult

MANIFEST = "manifest.json"


class StageEntry(Closed):
    """One stage of the run."""

    name: str
    key: str = Field(description="Content key in the stage store.")
    seconds: float = Field(description="Wall time of the computation, of an earlier run if reused.")
    reused: bool = Field(description="True if an earlier run had made it.")
    mlflow_run_id: str = Field("", description="The stage's run below the parent run.")


class DataLineage(Closed):
    """The data before and after, as DVC knows it."""

    dvc_in: str = Field("", description="DVC hash of data/ when the run started.")
    dvc_out: str = Field("", description="DVC hash of the version with the run's own transitions.")
    parts_in: dict[str, str] = Field(
        default_factory=dict,
        description="Path -> hash of each part that data.dvc named when the run started; empty: data/ was "
        "one part.",
    )
    parts_out: dict[str, str] = Field(
        default_factory=dict, description="The same of the version with the run's own transitions."
    )

    def version_in(self) -> dict[str, str]:
        """Path -> hash of each part of the data that the run started from."""
        return self.parts_in or {"data": self.dvc_in}

    experiment_commit: str = Field(
        "",
        pattern=r"^([0-9a-f]{40,64})?$",
        description="Commit of the DVC experiment that holds the whole workspace.",
    )


class ValidationDraw(Closed):
    """The real games that the run's policies are evaluated and promoted on."""

    split: str = Field(
        "", description="Their split: validation. Empty in a manifest of before, whose games were test games."
    )
    draw: int = Field(0, ge=0, description="Number of the draw; `promotion.refresh` says when it changes.")
    games: int = Field(0, ge=0, description="Games of a batch.")
    tasks: str = Field("", description="Hash of the first batch's list.")
    batches: int = Field(1, ge=1, description="Batches that the promotion gate needed.")


class RegisteredModel(Closed):
    """A version in MLflow's registry."""

    name: str
    version: str
    mlflow_run_id: str = ""
    alias: str = Field("", description="Alias that this run moved to the version, such as champion.")


class Costs(Closed):
    """What the run spent beside time."""

    real_interactions: int = Field(0, ge=0, description="Steps of the real environment spent on training.")
    check_interactions: int = Field(
        0, ge=0, description="Steps of the real environment spent on checks and evaluation."
    )
    replayed_episodes: int = Field(
        0, ge=0, description="Episodes of evaluations begun again because infrastructure had ended them."
    )
    tokens_generated: int = Field(0, ge=0, description="Tokens sampled by all models.")
    tokens_trained: int = Field(0, ge=0, description="Tokens trained on by all models.")
    endpoint_prompt_tokens: int = Field(
        0, ge=0, description="Tokens sent to language-model endpoints, as they count them."
    )
    endpoint_completion_tokens: int = Field(
        0, ge=0, description="Tokens that endpoints wrote, refused answers included."
    )
    endpoint_calls: int = Field(0, ge=0, description="Answers paid for.")
    endpoint_cached_calls: int = Field(
        0, ge=0, description="Answers taken from the cache instead, which cost nothing."
    )


class Manifest(Closed):
    """Everything that made a run."""

    run_id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the run's directory: a path in it is refused.",
    )
    flow: str = Field("retrain", description="The job that the run is of: retrain, fidelity, study ...")
    cell: str = Field(
        "",
        description="Of a study: the file that its cell becomes when it is finished, below the clone or "
        "absolute.",
    )
    created: str = Field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"), description="UTC, ISO 8601."
    )
    status: Literal["running", "finished", "failed", "killed"] = "running"
    process: OwnProcess | None = Field(
        None, description="The process that makes or made the run; none in a manifest of before."
    )
    seconds: float = Field(
        0.0,
        description="Wall time from the start of the process, or from the run before it there, to this "
        "run's end.",
    )
    environment: Environment
    config: dict[str, Any] = Field(description="The resolved config.")
    config_file: str = Field(
        "",
        description="The config file that was named, relative to the repository or absolute; empty for none.",
    )
    overrides: list[str] = Field(
        default_factory=list, description="What the command line set on top of it: KEY=VALUE."
    )
    seeds: dict[str, int] = Field(default_factory=dict)
    data: DataLineage = Field(default_factory=lambda: DataLineage())
    prefect_flow_run_id: str = ""
    mlflow_run_id: str = Field("", description="The run's parent run.")
    mlflow_uri: str = ""
    costs: Costs = Field(default_factory=lambda: Costs())
    stages: list[StageEntry] = Field(default_factory=list)
    models: list[RegisteredModel] = Field(default_factory=list)
    evaluation: ValidationDraw = Field(default_factory=lambda: ValidationDraw())
    decision: dict[str, Any] | None = Field(
        None, description="The promotion gate's verdict, conditions and reason."
    )

    def add_stage(self, result: StageResult, mlflow_run_id: str = "") -> None:
        """Note a finished stage; an entry of the same name is replaced."""
        entry = StageEntry(
            name=result.name,
            key=result.key,
            seconds=result.seconds,
            reused=result.reused,
            mlflow_run_id=mlflow_run_id,
        )
        self.stages = [*(stage for stage in self.stages if stage.name != result.name), entry]

    def save(self, run_directory: Path) -> Path:
        """Write `manifest.json` in one step and return its path. Raises DataError if the disk refuses."""
        path = run_directory / MANIFEST
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def load(cls, run_directory: Path) -> Manifest:
        """The manifest of a run. Raises DataError if it is missing or damaged, or names what no run is
        called.
        """
        path = run_directory / MANIFEST
        if not path.is_file():
            raise DataError(
                f"There is no manifest {path}.", "Every run has one.", "Name a directory under runs/."
            )
        try:
            return cls.model_validate_json(read_text(path))
        except (ValidationError, UnicodeDecodeError, OSError) as error:
            raise DataError(f"{path} is damaged: {_first_problem(error)}", next_step=_recover(path)) from None


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place + ': ' if place else ''}{problem['msg']} ({error.error_count()} problems)."


def _recover(path: Path) -> str:
    return (
        f"The same manifest is an artifact of the run in MLflow: download {MANIFEST} from there to "
        f"{path.parent}."
    )
