"""What a stage is: named inputs, a slice of the config, and the function that makes named outputs of them.

A stage file declares its stage and runs it with the decorator `stage_flow`:

    @stage_flow("clone")
    def clone_policy(run: Run) -> Stage:
        return Stage("clone", work=partial(_clone, run), inputs={"train": StageOutput("validate", "train")},
        ...)

    clone_policy(run)          # a Prefect flow: runs the stage, or reuses its result
    clone_policy.declare(run)  # the declaration alone, which `resume --dry-run` and `retrain --dry-run` ask
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec

from prefect import flow

from components.evaluation.metrics.intervals import Estimate
from components.tracking.stage_store.stage_result import StageResult

if TYPE_CHECKING:
    from flows.run.pipeline_run import Run

RUN_NAME = "{run.label}"
"""Template of the names of a stage's Prefect flow runs: the run's name in MLflow."""

P = ParamSpec("P")


@dataclass(frozen=True)
class StageOutput:
    """Input of a stage: the output `name` of an earlier stage of the same run."""

    stage: str
    name: str


@dataclass(frozen=True)
class Fingerprint:
    """Input of a stage that is in no file of its own: only its hash is known, and only the key reads it."""

    hash: str


@dataclass
class Outcome:
    """What a stage's function returns.

    Args:
        outputs: name -> path relative to the work directory.
        metrics: name -> value with n and interval.
        series: curve -> value of each step or iteration; NaN where there is none.
        details: further JSON values, kept in the stage's record.
        costs: name of a cost in the manifest -> amount, such as real interactions.
    """

    outputs: dict[str, str]
    metrics: dict[str, Estimate] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, int] = field(default_factory=dict)


Inputs = Mapping[str, Path]
"""Name of an input -> its file or directory."""


@dataclass(frozen=True)
class Stage:
    """A declared stage.

    Args:
        name: of the stage, also in the manifest and in MLflow.
        work: called with the paths of the inputs and an empty or resumed work directory.
        inputs: what the stage reads: outputs of earlier stages, files or directories, fingerprints.
        config: the config values that change the result.
        code: module that holds `work`; what it imports belongs to the stage's key too.
    """

    name: str
    work: Callable[[Inputs, Path], Outcome]
    inputs: Mapping[str, StageOutput | Path | Fingerprint]
    config: Mapping[str, Any]
    code: str


class StageFlow(Generic[P]):
    """A stage as a Prefect flow: call it to run the stage, or ask it for the declaration."""

    def __init__(self, name: str, declare: Callable[Concatenate[Run, P], Stage]) -> None:
        self.declare = declare

        @functools.wraps(declare)
        def run_stage(run: Run, *arguments: P.args, **options: P.kwargs) -> StageResult:
            return run.stage(declare(run, *arguments, **options))

        self._flow = flow(name=name, flow_run_name=RUN_NAME, validate_parameters=False)(run_stage)

    def __call__(self, run: Run, *arguments: P.args, **options: P.kwargs) -> StageResult:
        """Run the stage as a Prefect flow, or reuse its result."""
        result: StageResult = self._flow(run, *arguments, **options)
        return result


def stage_flow(name: str) -> Callable[[Callable[Concatenate[Run, P], Stage]], StageFlow[P]]:
    """Decorate a function that declares a stage. Args: name: of the Prefect flow."""
    return functools.partial(StageFlow, name)
