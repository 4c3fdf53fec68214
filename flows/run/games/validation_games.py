"""Draws the validation games of a run, in batches, before its first stage.

Promotions are decided on them. Test games are read on demand only (`components/tracking/held_out_ledger.py`).
A batch depends on the environment, the recorded tasks and the number of the draw, never on the run's seed. So
runs with other seeds, champion and challenger play the same games.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.validation_split import batch_seed, draw_validation_tasks
from components.records import Task
from components.tracking.manifest import ValidationDraw
from components.tracking.stage_store.hashes import file_hash
from components.tracking.stage_store.stage_keys import key_of
from components.trajectories.store import read_tasks, write_tasks
from flows.run.pipeline_run import Run

RECORDED = ("train", "fidelity", "test")


def draw_of(refresh: str, today: date) -> int:
    """Return the number of the draw for a date, such as 202648 for the 48th ISO week of 2026."""
    if refresh == "week":
        year, week, _ = today.isocalendar()
        return 100 * year + week
    return 100 * today.year + today.month if refresh == "month" else 0


def with_validation_draw(config: Config, today: date | None = None) -> Config:
    """Return the config with the number of its draw set, so that a repeated run plays the same games."""
    if config.promotion.draw is not None:
        return config
    draw = draw_of(config.promotion.refresh, today or datetime.now(UTC).date())
    return config.model_copy(update={"promotion": config.promotion.model_copy(update={"draw": draw})})


def validation_file(run: Run, number: int = 0) -> Path:
    """Return the file of batch `number`; draw the batch if it does not exist.

    Raises:
        EnvironmentFailure: the environment has too few tasks apart from the recorded ones.
    """
    recorded = {name: file_hash(run.data.tasks(name)) for name in RECORDED}
    draw_settings = {
        "draw": with_validation_draw(run.config).promotion.draw,
        "batch": number,
        "games": run.config.evaluation.tasks,
    }
    parts = run.key_parts(
        recorded, run.slice("environment") | draw_settings, "flows.run.games.validation_games"
    )
    key = key_of("validation_games", parts)
    path = run.root / ".dreamgym" / "validation" / f"{key[:12]}.parquet"
    if not path.is_file():
        write_tasks(path, _draw_batch(run, number))
    return path


def validation_games(run: Run, number: int = 0) -> list[Task]:
    """Return the tasks of batch `number`. Raises EnvironmentFailure as `validation_file`."""
    return read_tasks(validation_file(run, number))


def record_validation_draw(run: Run) -> None:
    """Draw the first batch, and record the draw in the manifest and in MLflow."""
    draw = with_validation_draw(run.config).promotion.draw or 0
    path = validation_file(run)
    games = run.config.evaluation.tasks
    run.manifest.evaluation = ValidationDraw(
        split="validation", draw=draw, games=games, tasks=file_hash(path)
    )
    run.manifest.seeds["validation"] = draw
    run.manifest.save(run.directory)
    run.tracker.set_tags(run.parent, {"dreamgym.evaluated_on": f"{games} validation games, draw {draw}"})


def games_note(run: Run) -> str:
    """Return a note for the report on the games that success is measured on."""
    draw = run.manifest.evaluation
    batches = ""
    if draw.batches > 1:
        batches = f" The promotion gate played {draw.batches} batches of as many."
    return (
        f"Success is measured on {draw.games} games of the {draw.split} split (draw {draw.draw}), "
        f"which no model is trained on.{batches} The test split was not read: "
        f"dreamgym evaluate --split test --run {run.manifest.run_id}"
    )


def _draw_batch(run: Run, number: int) -> list[Task]:
    others = [task for name in RECORDED for task in read_tasks(run.data.tasks(name))]
    others += [task for earlier in range(number) for task in validation_games(run, earlier)]
    seed = batch_seed(with_validation_draw(run.config).promotion.draw or 0, number)
    return draw_validation_tasks(
        make_adapter(run.config.environment), run.config.evaluation.tasks, seed, others
    )
