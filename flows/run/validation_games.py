"""The validation games of a run: which draw it plays, and its batches, drawn before the first stage and kept
beside the stages.

Promotions are decided on them; test games are read on demand alone
(`components/tracking/held_out_ledger.py`). A batch
follows from the environment, the recorded tasks and the number of the draw, never from the run's seed. So
runs of other seeds, champion and challenger play the same games.
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
    """The number of the draw that a run of this day plays, such as 202648 for the 48th ISO week of 2026."""
    if refresh == "week":
        year, week, _ = today.isocalendar()
        return 100 * year + week
    return 100 * today.year + today.month if refresh == "month" else 0


def with_draw(config: Config, today: date | None = None) -> Config:
    """The config with the number of its draw filled in, so that a run made again plays the same games."""
    if config.promotion.draw is not None:
        return config
    draw = draw_of(config.promotion.refresh, today or datetime.now(UTC).date())
    return config.model_copy(update={"promotion": config.promotion.model_copy(update={"draw": draw})})


def validation_file(run: Run, number: int = 0) -> Path:
    """The file of batch `number`; it is drawn if it is not there yet.

    Raises:
        EnvironmentFailure: the world has too few tasks beside the recorded ones.
    """
    recorded = {name: file_hash(run.data.tasks(name)) for name in RECORDED}
    drawn = {
        "draw": with_draw(run.config).promotion.draw,
        "batch": number,
        "games": run.config.evaluation.tasks,
    }
    parts = run.key_parts(recorded, run.slice("environment") | drawn, "flows.run.validation_games")
    key = key_of("validation_games", parts)
    path = run.root / ".dreamgym" / "validation" / f"{key[:12]}.parquet"
    if not path.is_file():
        write_tasks(path, _drawn(run, number))
    return path


def validation_games(run: Run, number: int = 0) -> list[Task]:
    """The tasks of batch `number`. Raises EnvironmentFailure as `validation_file` does."""
    return read_tasks(validation_file(run, number))


def note_draw(run: Run) -> None:
    """Draw the first batch before the first stage, and note in the manifest and in MLflow which games
    decide.
    """
    draw = with_draw(run.config).promotion.draw or 0
    path = validation_file(run)
    games = run.config.evaluation.tasks
    run.manifest.evaluation = ValidationDraw(
        split="validation", draw=draw, games=games, tasks=file_hash(path)
    )
    run.manifest.seeds["validation"] = draw
    run.manifest.save(run.directory)
    run.tracker.set_tags(run.parent, {"dreamgym.evaluated_on": f"{games} validation games, draw {draw}"})


def games_note(run: Run) -> str:
    """Which games the figures are of, for people."""
    played = run.manifest.evaluation
    further = f" The promotion gate played {played.batches} batches of as many." if played.batches > 1 else ""
    return (
        f"Success is measured on {played.games} games of the {played.split} split (draw {played.draw}), "
        "which no model learns "
        f"from.{further} The test split was not read: dreamgym evaluate --split test --run "
        f"{run.manifest.run_id}"
    )


def _drawn(run: Run, number: int) -> list[Task]:
    others = [task for name in RECORDED for task in read_tasks(run.data.tasks(name))]
    others += [task for earlier in range(number) for task in validation_games(run, earlier)]
    seed = batch_seed(with_draw(run.config).promotion.draw or 0, number)
    return draw_validation_tasks(
        make_adapter(run.config.environment), run.config.evaluation.tasks, seed, others
    )
