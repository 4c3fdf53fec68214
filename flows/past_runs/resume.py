"""Resumes an unfinished run of `retrain` or of a study's cell.

The old run is never changed. Resuming starts a new run with the same config. It reuses every finished stage
and continues from the checkpoint of the interrupted one. `plan.py` says in advance what will run.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from components.config import Config, load_config
from components.errors import DataError, DreamGymError
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run, list_runs
from flows.jobs.studies.study_methods import METHODS
from flows.retrain import STEPS
from flows.run.games.validation_games import with_validation_draw
from flows.run.plan import REUSED, plan


def unchanged_since(config: Config, root: Path) -> str:
    """Return the newest finished run with the same stages and promotion settings; empty if there is none.

    It is also empty if a stage would run. A new period of `promotion.refresh` is no change: the same policy
    would only be evaluated again.
    """
    config = _with_last_draw(config, root)
    steps = plan(config, root, STEPS)
    if any(step.fate != REUSED for step in steps):
        return ""
    keys = {step.name: step.key for step in steps}
    for name in reversed(list_runs(root / "runs")):
        with suppress(DreamGymError):  # an interrupted run may have no or half a manifest
            earlier = Manifest.load(root / "runs" / name)
            has_same_stages = {stage.name: stage.key for stage in earlier.stages} == keys
            if (
                earlier.status == "finished"
                and has_same_stages
                and earlier.config.get("promotion") == config.promotion.model_dump(mode="json")
            ):
                return name
    return ""


def _with_last_draw(config: Config, root: Path) -> Config:
    """Return the config with the draw of the newest finished retraining, unless it sets its own."""
    draw = config.promotion.draw
    needs_draw = draw is None and config.promotion.refresh != "never"
    for name in reversed(list_runs(root / "runs")) if needs_draw else ():
        with suppress(DreamGymError):
            earlier = Manifest.load(root / "runs" / name)
            if earlier.status == "finished" and earlier.flow == "retrain":
                draw = earlier.evaluation.draw
                break
    return with_validation_draw(
        config.model_copy(update={"promotion": config.promotion.model_copy(update={"draw": draw})})
    )


def resumable(root: Path, run: str) -> tuple[Manifest, Config]:
    """Return the manifest and the config of a run that can be resumed.

    Raises:
        DataError: there is no such run, it is of another job, or it is finished.
    """
    directory = find_run(root / "runs", run)
    manifest = Manifest.load(directory)
    if manifest.flow != "retrain" and not manifest.cell:
        raise DataError(
            f"Run {manifest.run_id} is of the job {manifest.flow}.",
            "Expected one of `dreamgym retrain` or `dreamgym study`.",
            "Type the same command again: it continues from its finished stages.",
        )
    if manifest.status == "finished":
        raise DataError(
            f"Run {manifest.run_id} is finished.",
            next_step=f"Compare it: dreamgym compare {manifest.run_id} latest",
        )
    config = load_config(directory / "config.json")
    return manifest, config


def cell_of(manifest: Manifest, root: Path) -> tuple[Path, str]:
    """Return the directory of the study's cell that the run belongs to, and the cell's method.

    Raises:
        DataError: the cell is outside the clone (an untrusted manifest could name any file), or there is no
            such method.
    """
    file = (root / manifest.cell).resolve()
    if not file.is_relative_to(root.resolve()):
        problem = f"Run {manifest.run_id} belongs to a cell in {file}."
        raise DataError(
            problem,
            f"Expected a place in {root}.",
            "Type the command of the study again: it continues from its finished cells.",
        )
    method = file.stem.rpartition("-")[0]
    if method not in METHODS:
        raise DataError(
            f"Run {manifest.run_id} belongs to a cell of the method {method!r}.",
            f"Expected one of {', '.join(METHODS)}.",
        )
    return file.parent, method
