"""Finds the round that a further one goes on from: a finished run that trained in a dream and in reality."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.errors import DataError
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run
from components.tracking.stage_store.stage_result import StageResult
from flows.past_runs.past_stages import past_stages

NEEDED = ("validate", "experience_model", "clone", "synthetic_rl", "check_dreamed", "sim_to_real")
"""Stages of a round that the next one goes on with."""

JOBS = ("retrain", "next-round")
"""Jobs whose runs a further round goes on with. A run of `refine` has the logs of another world."""


@dataclass(frozen=True)
class PastRound:
    """A finished round.

    Args:
        run_id: of its run.
        number: from 1.
        real_steps: real interactions up to its end, those of the rounds before it included: training and
            checks.
        stages: the results that the next round goes on with.
    """

    run_id: str
    number: int
    real_steps: int
    stages: tuple[StageResult, ...]


def past_round(root: Path, name: str) -> PastRound:
    """Return the finished round of a run.

    Args:
        root: of the repository.
        name: id of the run, or `latest`.

    Raises:
        DataError: there is no such run, it has not finished or met no reality, or its stages are gone.
    """
    manifest = Manifest.load(find_run(root / "runs", name))
    made = [stage.name for stage in manifest.stages]
    missing = [stage for stage in NEEDED if stage not in made]
    if manifest.status != "finished" or manifest.flow not in JOBS or missing:
        raise DataError(
            f"Run {manifest.run_id} ({manifest.flow}) is {manifest.status}"
            + (f" and has no stage {missing[0]}." if missing else "."),
            f"Expected a finished run of {' or '.join(JOBS)}, in a world that can be played.",
            "Name another run.",
        )
    costs = manifest.costs
    return PastRound(
        manifest.run_id,
        manifest.round,
        costs.earlier_real_interactions + costs.real_interactions + costs.check_interactions,
        tuple(past_stages(root, manifest, NEEDED)),
    )
