"""Go on with a run that did not come to its end, of `retrain` or a study (`plan.py` says what will be
made).

A run is never changed: going on is a new run with the same config, which reuses every finished stage and
takes up the checkpoint of the one that was interrupted.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from components.config import Config, load_config
from components.errors import DataError, DreamGymError
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run, list_runs
from flows.jobs.study_methods import METHODS
from flows.retrain import STEPS
from flows.run.plan import REUSED, plan
from flows.run.validation_games import with_draw


def unchanged_since(config: Config, root: Path) -> str:
    """The newest finished run of the same stages, with the same terms of promotion; empty if there is none,
    or a stage would be made.

    A new period of `promotion.refresh` alone is no change: the same policy would only be judged once more.
    """
    config = _with_last_draw(config, root)
    steps = plan(config, root, STEPS)
    if any(step.fate != REUSED for step in steps):
        return ""
    keys = {step.name: step.key for step in steps}
    for name in reversed(list_runs(root / "runs")):
        with suppress(DreamGymError):  # a run that was cut short has no manifest, or half of one
            earlier = Manifest.load(root / "runs" / name)
            same = {stage.name: stage.key for stage in earlier.stages} == keys
            if (
                earlier.status == "finished"
                and same
                and earlier.config.get("promotion") == config.promotion.model_dump(mode="json")
            ):
                return name
    return ""


def _with_last_draw(config: Config, root: Path) -> Config:
    """The config with the draw of the newest finished retraining, where it names none of its own."""
    draw = config.promotion.draw
    for name in (
        reversed(list_runs(root / "runs")) if draw is None and config.promotion.refresh != "never" else ()
    ):
        with suppress(DreamGymError):
            earlier = Manifest.load(root / "runs" / name)
            if earlier.status == "finished" and earlier.flow == "retrain":
                draw = earlier.evaluation.draw
                break
    return with_draw(
        config.model_copy(update={"promotion": config.promotion.model_copy(update={"draw": draw})})
    )


def resumable(root: Path, run: str) -> tuple[Manifest, Config]:
    """The run and its config.

    Raises:
        DataError: there is no such run, it is of another job, or it has come to its end.
    """
    directory = find_run(root / "runs", run)
    manifest = Manifest.load(directory)
    if manifest.flow != "retrain" and not manifest.cell:
        found, wanted = (
            f"Run {manifest.run_id} is of the job {manifest.flow}.",
            "Expected one of `dreamgym retrain` or `dreamgym study`.",
        )
        raise DataError(found, wanted, "Type the command that began it again: it goes on where it was.")
    if manifest.status == "finished":
        raise DataError(
            f"Run {manifest.run_id} has come to its end.",
            next_step=f"Compare it: dreamgym compare {manifest.run_id} latest",
        )
    config = load_config(directory / "config.json")
    return manifest, config


def cell_of(manifest: Manifest, root: Path) -> tuple[Path, str]:
    """Where the cell of a study goes that the run was making, and its method.

    Raises:
        DataError: it lies elsewhere than in the clone, where a stranger's manifest could name any file; or
            there is no such method.
    """
    file = (root / manifest.cell).resolve()
    if not file.is_relative_to(root.resolve()):
        found = f"Run {manifest.run_id} made a cell that goes to {file}."
        raise DataError(
            found,
            f"Expected a place in {root}.",
            "Type the command of the study again: it goes on where it was.",
        )
    method = file.stem.rpartition("-")[0]
    if method not in METHODS:
        raise DataError(
            f"Run {manifest.run_id} made a cell of {method!r}.", f"Expected one of {', '.join(METHODS)}."
        )
    return file.parent, method
