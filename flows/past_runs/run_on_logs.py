"""Finds the finished stages of a run on logs, whose models a live world is to refine."""

from __future__ import annotations

from pathlib import Path

from components.errors import DataError
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run
from components.tracking.stage_store.stage_result import StageResult
from components.tracking.stage_store.stage_store import StageStore

LOGS_WORLD = "recorded"
TAKEN = ("validate", "experience_model", "clone", "synthetic_rl")
"""Stages whose results a run in a live world goes on with."""


def stages_on_logs(root: Path, name: str) -> list[StageResult]:
    """Return the results of `TAKEN` of a finished run on logs.

    Args:
        root: of the repository.
        name: id of the run, or `latest`.

    Raises:
        DataError: there is no such run, it is not a finished one on logs, or its stages are gone.
    """
    manifest = Manifest.load(find_run(root / "runs", name))
    world = manifest.config.get("environment", {}).get("name", "")
    if manifest.status != "finished" or world != LOGS_WORLD:
        raise DataError(
            f"Run {manifest.run_id} is {manifest.status}, of the environment {world}.",
            f"Expected a finished run on logs, of the environment {LOGS_WORLD}: all others meet the real "
            "environment in the run itself.",
            "Name another run: dreamgym retrain --logs FILE makes one.",
        )
    keys = {stage.name: stage.key for stage in manifest.stages}
    store = StageStore(root / ".dreamgym" / "stages")
    results = {stage: store.find(stage, keys[stage]) for stage in TAKEN}
    missing = [stage for stage, result in results.items() if result is None]
    if missing:
        raise DataError(
            f"The stage {missing[0]} of run {manifest.run_id} is not in {root / '.dreamgym' / 'stages'}.",
            "Expected its result, undamaged.",
            f"Repeat the run: dreamgym reproduce {manifest.run_id}, or name another one.",
        )
    return [result for result in results.values() if result is not None]
