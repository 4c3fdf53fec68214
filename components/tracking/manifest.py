"""The manifest of a run, `runs/<id>/manifest.json`: it names everything that made the run.

It links the records in git, DVC, Prefect and MLflow. It is replaced atomically whenever the run adds
something, so a crash leaves the last complete version.
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
from components.tracking.stage_store.stage_result import StageResult

MANIFEST = "manifest.json"


class StageEntry(Closed):
    """One stage of the run."""

    name: str
    key: str = Field(description="Content key in the stage store.")
    seconds: float = Field(description="Wall time of the computation, in an earlier run if reused.")
    reused: bool = Field(description="True if an earlier run computed it.")
    mlflow_run_id: str = Field("", description="The stage's run below the parent run.")


class DataLineage(Closed):
    """DVC versions of the data before and after the run."""

    dvc_in: str = Field("", description="DVC hash of data/ when the run started.")
    dvc_out: str = Field("", description="DVC hash of the version with the run's own transitions.")
    parts_in: dict[str, str] = Field(
        default_factory=dict,
        description="Path -> hash of each part that data.dvc named when the run started; empty if data/ was "
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
    """The real games on which the run's policies are evaluated and promoted."""

    split: str = Field(
        "", description="Their split: validation. Empty in an older manifest, whose games were test games."
    )
    draw: int = Field(0, ge=0, description="Number of the draw; `promotion.refresh` says when it changes.")
    games: int = Field(0, ge=0, description="Games per batch.")
    tasks: str = Field("", description="Hash of the list of the first batch.")
    batches: int = Field(1, ge=1, description="Batches that the promotion gate needed.")


class RegisteredModel(Closed):
    """A version in MLflow's registry."""

    name: str
    version: str
    mlflow_run_id: str = ""
    alias: str = Field("", description="Alias that this run moved to the version, such as champion.")


class Costs(Closed):
    """What the run used, apart from time."""

    real_interactions: int = Field(0, ge=0, description="Steps of the real environment spent on training.")
    check_interactions: int = Field(
        0, ge=0, description="Steps of the real environment spent on checks and evaluation."
    )
    earlier_real_interactions: int = Field(
        0, ge=0, description="Steps of the real environment, of training and of checks, in rounds before."
    )
    replayed_episodes: int = Field(
        0, ge=0, description="Evaluation episodes that were played again after a failure of infrastructure."
    )
    tokens_generated: int = Field(0, ge=0, description="Tokens sampled by all models.")
    tokens_trained: int = Field(0, ge=0, description="Tokens trained on by all models.")
    endpoint_prompt_tokens: int = Field(
        0, ge=0, description="Tokens sent to language-model endpoints, by the endpoints' own count."
    )
    endpoint_completion_tokens: int = Field(
        0, ge=0, description="Tokens that endpoints generated, rejected answers included."
    )
    endpoint_calls: int = Field(0, ge=0, description="Answers that were paid for.")
    endpoint_cached_calls: int = Field(0, ge=0, description="Answers from the cache, which cost nothing.")


class Manifest(Closed):
    """Everything that made a run."""

    run_id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the run's directory. It must not contain a path.",
    )
    flow: str = Field("retrain", description="The run's job: retrain, fidelity, study ...")
    cell: str = Field(
        "",
        description="In a study: the file to which its finished cell is written, relative to the clone or "
        "absolute.",
    )
    continues: str = Field("", description="The run whose models this run went on with; empty for most.")
    round: int = Field(1, ge=1, description="1, or one more than that of the run that it went on with.")
    created: str = Field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"), description="UTC, ISO 8601."
    )
    status: Literal["running", "finished", "failed", "killed"] = "running"
    process: OwnProcess | None = Field(
        None, description="The process that makes or made the run; null in an older manifest."
    )
    seconds: float = Field(
        0.0,
        description="Wall time from the start of the process, or from its previous run, to the end of this "
        "run.",
    )
    environment: Environment
    config: dict[str, Any] = Field(description="The resolved config.")
    config_file: str = Field(
        "",
        description="The named config file, relative to the repository or absolute; empty if none was named.",
    )
    overrides: list[str] = Field(
        default_factory=list, description="Values that the command line set on top of it: KEY=VALUE."
    )
    pretrained: dict[str, str] = Field(
        default_factory=dict,
        description="Section of the config -> where the pretrained model that it names comes from.",
    )
    seeds: dict[str, int] = Field(default_factory=dict)
    data: DataLineage = Field(default_factory=lambda: DataLineage())
    prefect_flow_run_id: str = ""
    mlflow_run_id: str = Field("", description="The run's parent run in MLflow.")
    mlflow_uri: str = ""
    costs: Costs = Field(default_factory=lambda: Costs())
    stages: list[StageEntry] = Field(default_factory=list)
    models: list[RegisteredModel] = Field(default_factory=list)
    evaluation: ValidationDraw = Field(default_factory=lambda: ValidationDraw())
    decision: dict[str, Any] | None = Field(
        None, description="The promotion gate's verdict, conditions and reason."
    )

    def add_stage(self, result: StageResult, mlflow_run_id: str = "") -> None:
        """Add a finished stage. An entry of the same name is replaced."""
        entry = StageEntry(
            name=result.name,
            key=result.key,
            seconds=result.seconds,
            reused=result.reused,
            mlflow_run_id=mlflow_run_id,
        )
        self.stages = [*(stage for stage in self.stages if stage.name != result.name), entry]

    def save(self, run_directory: Path) -> Path:
        """Write `manifest.json` atomically and return its path.

        Raises:
            DataError: the disk refuses.
        """
        path = run_directory / MANIFEST
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def load(cls, run_directory: Path) -> Manifest:
        """The manifest of a run.

        Raises:
            DataError: it is missing or damaged, or has an invalid run id.
        """
        path = run_directory / MANIFEST
        if not path.is_file():
            raise DataError(
                f"There is no manifest {path}.", "Every run has one.", "Name a directory under runs/."
            )
        try:
            return cls.model_validate_json(read_text(path))
        except (ValidationError, UnicodeDecodeError, OSError) as error:
            raise DataError(
                f"{path} is damaged: {_first_problem(error)}", next_step=_recovery(path)
            ) from None


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place + ': ' if place else ''}{problem['msg']} ({error.error_count()} problems)."


def _recovery(path: Path) -> str:
    return (
        f"The same manifest is an artifact of the run in MLflow: download {MANIFEST} from there to "
        f"{path.parent}."
    )
