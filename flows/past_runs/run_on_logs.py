"""Finds the finished stages of a run on logs, whose models a live world is to refine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from components.errors import DataError, DreamGymError
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run, list_runs
from components.tracking.stage_store.stage_result import StageResult
from flows.jobs.import_logs import WORLD
from flows.past_runs.past_stages import past_stages

TAKEN = ("validate", "experience_model", "clone", "synthetic_rl")
"""Stages whose results a run in a live world goes on with."""


def find_run_on_logs(root: Path, name: str) -> Path:
    """Return the directory of a run; `latest` is the newest finished run on logs, if there is one."""
    if name == "latest":
        for run in reversed(list_runs(root / "runs")):
            with suppress(DreamGymError):  # an interrupted run may have no or half a manifest
                if _is_finished_on_logs(Manifest.load(root / "runs" / run)):
                    return root / "runs" / run
    return find_run(root / "runs", name)


def _is_finished_on_logs(manifest: Manifest) -> bool:
    return manifest.status == "finished" and _world_of(manifest) == WORLD


def _world_of(manifest: Manifest) -> str:
    return str(manifest.config.get("environment", {}).get("name", ""))


def stages_on_logs(root: Path, name: str) -> tuple[str, list[StageResult]]:
    """Return the id of a finished run on logs, and its results of `TAKEN`.

    Args:
        root: of the repository.
        name: id of the run, or `latest`.

    Raises:
        DataError: there is no such run, it is not a finished one on logs, or its stages are gone.
    """
    manifest = Manifest.load(find_run_on_logs(root, name))
    world = _world_of(manifest)
    if not _is_finished_on_logs(manifest):
        raise DataError(
            f"Run {manifest.run_id} is {manifest.status}, of the environment {world}.",
            f"Expected a finished run on logs, of the environment {WORLD}: all others meet the real "
            "environment in the run itself.",
            "Name another run: dreamgym retrain --logs FILE makes one.",
        )
    return manifest.run_id, past_stages(root, manifest, TAKEN)
