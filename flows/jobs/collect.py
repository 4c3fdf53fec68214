"""Records the offline data: plays tasks of the real environment, writes tasks and trajectories to `data/`.

    dreamgym collect --config configs/quick.yaml
    dreamgym collect --policy endpoint endpoint.url=http://localhost:8000/v1 endpoint.model=NAME

The files are Parquet. The same config and seed give the same bytes, so the same DVC hash. All games are
played before the first file is written, and all files are written before the first is renamed into place. So
a failed collection leaves the old data unchanged.

Finished episodes are kept in `.dreamgym/collect/`: an interrupted or failed collection that is typed again
with the same settings goes on from there, and records the same data as an uninterrupted one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.environments import adapter_modules, make_adapter
from components.environments.capabilities import Adapter
from components.environments.text_world.listed_tasks import listed_tasks
from components.errors import DataError, EnvironmentFailure
from components.files import cannot_write, write_json
from components.policy.endpoint_player import EndpointEpisode, episode_id
from components.records import TEST, TRAIN, Task, Trajectory
from components.tracking.stage_store.hashes import module_hash, text_hash, with_imports
from components.trajectories.dvc.snapshots import Snapshot, push, snapshot
from components.trajectories.parquet_file import move_table
from components.trajectories.recording import BEHAVIOURS, collect, plan, with_reasoning
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from components.trajectories.unfinished_collection import UnfinishedCollection
from flows.dead_flow_runs import end_dead_runs_if_tracked
from flows.run.games.endpoint_games import open_chat, play_endpoint_games
from flows.run.live_adapter import live_adapter
from flows.run.training.teacher_annotations import endpoint_slice

ROWS = 64
"""Episodes played as one batch; the number changes no result."""
TEST_TASKS = 200
"""Held-out games listed in the data: more than an evaluation plays, so that a later one can play more."""
SPARE_TEST_TASKS = 4
"""Test tasks drawn for each task in an unseen world that fidelity is measured on."""
STAGED = ".new.tmp"
"""Directory under `data/` that new files are first written to. DVC ignores *.tmp."""

UNFINISHED = Path(".dreamgym", "collect")
"""Directory of the finished episodes of collections that are not complete, below the repository."""
RECORDING = "components.trajectories.recording"

OnBatch = Callable[[str, int, int], None]
"""Called with (`train` or `fidelity`, finished episodes, all episodes)."""


@dataclass(frozen=True)
class Collected:
    """What was recorded: split -> number of (tasks, episodes, transitions), and the new version of data/."""

    counts: dict[str, tuple[int, int, int]]
    version: Snapshot


@flow(name="collect", validate_parameters=False)
def collect_data(
    config: Config, root: Path = Path(), on_batch: OnBatch | None = None, *, endpoint: bool = False
) -> Collected:
    """Record the offline data of an environment and save it as a new version.

    Args:
        endpoint: the model at `endpoint` plays each task once, in place of the adapter's behaviours.
        on_batch: called after each batch of episodes.

    Finished episodes are kept in `UNFINISHED` until all are written.

    Raises:
        EnvironmentFailure: a game cannot be created, loaded or played.
        EndpointError: the endpoint would refuse every request, or does not answer.
        DataError: a file cannot be written, or `root` is no git repository.
    """
    end_dead_runs_if_tracked(config.tracking, root.resolve())
    # The fidelity set uses other games than the training and the test set.
    tasks = choose_tasks(config)
    play = play_endpoint_episodes if endpoint else play_episodes
    kept = root / UNFINISHED / config.environment.name / ("endpoint" if endpoint else "behaviours")
    episodes = {name: play(config, kept / name, tasks[name], on_batch) for name in ("train", "fidelity")}
    keep_old_version(root)
    write(config, DataLayout.of(root, config.environment.name), tasks, episodes)
    version = snapshot(root)
    push(root)
    shutil.rmtree(kept, ignore_errors=True)
    counts = {
        name: (len(tasks[name]), len(own), sum(len(episode.steps) for episode in own))
        for name, own in episodes.items()
    }
    return Collected({**counts, "test": (len(tasks["test"]), 0, 0)}, version)


@task(cache_policy=NO_CACHE)
def choose_tasks(config: Config) -> dict[str, list[Task]]:
    """Return the tasks of `train`, `fidelity` and `test`."""
    adapter = make_adapter(config.environment)
    data = config.data
    train = listed_tasks(
        adapter, config.environment.name, TRAIN, data.train_tasks + data.fidelity_tasks, data.seed
    )
    listed, test = _held_out_tasks(config, adapter)
    unseen = [task for task in test[listed:] if adapter.unseen(task)][: data.fidelity_worlds]
    if len(unseen) < data.fidelity_worlds:
        raise EnvironmentFailure(
            f"The test split has {len(unseen)} tasks in unseen worlds apart from the {listed} that policies "
            "are evaluated on.",
            f"Expected {data.fidelity_worlds} (data.fidelity_worlds).",
            "Lower data.fidelity_worlds.",
        )
    return {
        "train": train[: data.train_tasks],
        "fidelity": [*train[data.train_tasks :], *unseen],
        "test": test[:listed],
    }


def _held_out_tasks(config: Config, adapter: Adapter) -> tuple[int, list[Task]]:
    """Return the number of test tasks listed for evaluations, and these tasks followed by spare ones.

    An environment with fewer than TEST_TASKS lists as many as an evaluation plays.
    """
    spare = SPARE_TEST_TASKS * config.data.fidelity_worlds
    evaluated = config.evaluation.tasks
    name = config.environment.name
    seed = config.data.seed
    count = max(TEST_TASKS, evaluated)
    try:
        return count, listed_tasks(adapter, name, TEST, count + spare, seed)
    except EnvironmentFailure:
        if evaluated >= TEST_TASKS:
            raise
        return evaluated, listed_tasks(adapter, name, TEST, evaluated + spare, seed)


@task(cache_policy=NO_CACHE)
def play_episodes(
    config: Config, kept: Path, tasks: list[Task], on_batch: OnBatch | None = None
) -> list[Trajectory]:
    """Return every task's episodes, in order.

    Args:
        kept: directory of finished episodes, with the name of the data set.

    Raises:
        EnvironmentFailure: the engine fails in an episode at each of its attempts.
    """
    adapter = live_adapter(config)
    data = config.data
    episodes = plan(tasks, {behaviour: getattr(data, behaviour) for behaviour in BEHAVIOURS}, data.seed)
    if not episodes:
        raise EnvironmentFailure(
            "The config records no episode: all behaviours are 0.",
            "Expected at least one.",
            "Set data.expert=1 and data.near_miss=2, for example.",
        )
    name, log = kept.name, get_run_logger()
    log.info("%s: playing %d episodes of %d tasks", name, len(episodes), len(tasks))

    def report(done: int, count: int) -> None:
        if on_batch is not None:
            on_batch(name, done, count)
        if 10 * done // count > 10 * max(0, done - ROWS) // count:
            log.info("%s: %d of %d episodes", name, done, count)

    unfinished = UnfinishedCollection(kept, recording_inputs(config, tasks), tasks, log.info)
    max_steps = config.environment.max_steps
    return collect(adapter, episodes, max_steps, rows=ROWS, on_batch=report, unfinished=unfinished)


@task(cache_policy=NO_CACHE)
def play_endpoint_episodes(
    config: Config, kept: Path, tasks: list[Task], on_batch: OnBatch | None = None
) -> list[Trajectory]:
    """Return one episode of the endpoint's model per task, in order, with the adapter's reasoning.

    Args:
        kept: directory of finished episodes, with the name of the data set.

    Raises:
        EndpointError: the endpoint would refuse every request, or does not answer.
        EnvironmentFailure: the engine fails in an episode at each of its attempts.
    """
    name, log = kept.name, get_run_logger()
    settings = recording_inputs(config, tasks) | {"endpoint": endpoint_slice(config)}
    unfinished = UnfinishedCollection(kept, settings, tasks, log.info)
    missing = [task for task in tasks if episode_id(task) not in unfinished.finished]
    log.info("%s: %s plays %d tasks", name, config.endpoint.model, len(missing))

    def keep(played: Sequence[EndpointEpisode]) -> None:
        unfinished.add([episode.trajectory for episode in played if not episode.failure])
        if on_batch is not None:
            on_batch(name, len(unfinished.finished), len(tasks))

    if missing:
        with closing(open_chat(config)) as chat:
            play_endpoint_games(config, chat, missing, keep)
            log.info("%s: tokens and calls %s", name, chat.usage.costs())
    adapter = make_adapter(config.environment)
    return [with_reasoning(adapter, unfinished.finished[episode_id(task)]) for task in tasks]


@task(cache_policy=NO_CACHE)
def keep_old_version(root: Path) -> None:
    """Save the present content of `data/` in DVC's cache before it is replaced; do nothing if it is empty."""
    if any(path.is_file() for path in (root / "data").rglob("*")):
        get_run_logger().info("the previous data/ stays in DVC's cache as %s", snapshot(root).hash)


@task(cache_policy=NO_CACHE)
def write(
    config: Config, layout: DataLayout, tasks: dict[str, list[Task]], episodes: dict[str, list[Trajectory]]
) -> None:
    """Write the five Parquet files and their settings to a new directory, then rename them into place."""
    staged = DataLayout(layout.root / STAGED)
    shutil.rmtree(staged.root, ignore_errors=True)
    try:
        for name, chosen in tasks.items():
            write_tasks(staged.tasks(name), chosen)
        for name, own in episodes.items():
            write_transitions(staged.trajectories(name), [step for episode in own for step in episode.steps])
        write_json(staged.settings, recorded_settings(config))
        move_files(staged.root, layout.root)
    finally:
        shutil.rmtree(staged.root, ignore_errors=True)


def move_files(staged: Path, target: Path) -> None:
    """Rename all files and tables of `staged` into place below `target`.

    Raises:
        DataError: the disk refuses.
    """
    tables = [path for path in staged.rglob("*.parquet") if path.parent.suffix != ".parquet"]
    others = [path for path in staged.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    moves = [(path, target / path.relative_to(staged)) for path in [*tables, *others]]
    try:
        for _, place in moves:
            place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        for path, place in moves:
            move_table(path, place)
    except OSError as error:
        problem = f"{target} now holds a mixture of new and old files: {error}."
        raise DataError(
            problem, next_step="Type `dvc checkout --force data.dvc` to get the old data back."
        ) from error


def recorded_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return the part of the config that the recorded games and episodes depend on."""
    return {
        "environment": config.environment.decisive(),
        "data": config.data.model_dump(exclude={"quarantine_share", "mask"}),
    }


def recording_inputs(config: Config, tasks: list[Task]) -> dict[str, Any]:
    """Return all that finished episodes depend on, as JSON values.

    Code of the user's world is left out: a world that was mended goes on with its finished episodes.
    """
    modules = [name for name in adapter_modules(config.environment) if name.startswith("components.")]
    code = {name: module_hash(name) for name in with_imports([RECORDING, *modules])}
    return recorded_settings(config) | {
        "tasks": text_hash(repr(tasks)),
        "code": text_hash(json.dumps(code, sort_keys=True)),
    }
