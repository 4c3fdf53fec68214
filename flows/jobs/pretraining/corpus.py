"""The corpus of a pretraining: episodes of training games, played once and kept as Parquet files.

The games are drawn with seeds of their own. Tasks that `data/` holds out (the fidelity set and the test
split) are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.config.worlds.browser_config import BrowserConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import adapter_modules, make_adapter
from components.environments.browser.task_lists import is_unseen_type
from components.environments.text_world.import_path import look_here
from components.errors import ConfigError
from components.records import TRAIN, Task, Trajectory
from components.tracking.stage_store.hashes import file_hash, module_hash, text_hash, with_imports
from components.trajectories.recording import collect, plan
from components.trajectories.store import (
    read_tasks,
    read_transitions,
    trajectories,
    write_tasks,
    write_transitions,
)

SEED_OFFSET = 1000
"""Added to the seed of the pretraining games, so that they differ from the games of the offline data."""
BEHAVIOURS = {"expert": 1, "noisy": 2, "near_miss": 3, "random": 1}
"""Behaviour -> episodes of each game."""
SETTINGS_FILE = "settings.json"
"""File with the settings that the stored corpus was played with."""
ROWS = 64
"""Games that are played as one batch."""
LOG_EPISODES = 640
"""Episodes between two log lines."""


def require_held_out_types(config: Config) -> None:
    """Check that pretraining plays no task type that `environment.browser.types` keeps for the test split.

    Raises:
        ConfigError: it would play one.
    """
    if not config.pretrain.types:
        return
    run_browser = config.environment.browser
    corpus_browser = pretraining_environment(config).browser
    leaked_types = [
        name
        for name in corpus_browser.types
        if not is_unseen_type(corpus_browser, name) and is_unseen_type(run_browser, name)
    ]
    if leaked_types:
        raise ConfigError(
            f"pretrain.types would train on {', '.join(leaked_types)}, which environment.browser.types keeps "
            "for the test split.",
            "Pretraining leaves out every fourth name of pretrain.types; the types of the test split must "
            "be among these.",
            "Move it to a fourth place of pretrain.types (the 4th, 8th, 12th ...), or remove it.",
        )


def pretraining_environment(config: Config) -> EnvironmentConfig:
    """Return the environment of the corpus: the run's, with the task types of `pretrain.types` if set."""
    if not config.pretrain.types:
        return config.environment
    browser = BrowserConfig.model_validate(
        config.environment.browser.model_dump() | {"types": config.pretrain.types}
    )
    return config.environment.model_copy(update={"browser": browser})


@task(name="corpus", cache_policy=NO_CACHE)
def play_corpus(config: Config, work: Path, held_out_ids: set[str]) -> list[Trajectory]:
    """Play the pretraining games and return their episodes; read them if the same settings were played.

    Args:
        work: directory of the stored corpus.
        held_out_ids: ids of tasks that are left out.

    Raises:
        ConfigError: no behaviour is played.
        EnvironmentFailure: there are too few tasks, or a behaviour cannot be played.
    """
    settings = _corpus_settings(config, held_out_ids)
    settings_file = work / SETTINGS_FILE
    if settings_file.is_file() and json.loads(settings_file.read_text()) == settings:
        return trajectories(
            read_tasks(work / "tasks.parquet"), read_transitions(work / "transitions.parquet")
        )
    behaviours = corpus_behaviours(config)
    adapter = make_adapter(pretraining_environment(config))
    tasks = [task for task in choose_tasks(config) if task.id not in held_out_ids]
    episodes = collect(
        adapter,
        plan(tasks, behaviours, config.pretrain.seed),
        config.pretrain.max_steps,
        rows=ROWS,
        on_batch=_log_episodes,
    )
    work.mkdir(parents=True, exist_ok=True)
    write_tasks(work / "tasks.parquet", tasks)
    write_transitions(work / "transitions.parquet", [step for episode in episodes for step in episode.steps])
    settings_file.write_text(json.dumps(settings))
    return episodes


def _corpus_settings(config: Config, held_out_ids: set[str]) -> dict[str, Any]:
    """Return everything that the corpus depends on, as JSON values."""
    settings = task_settings(config) | {"games_seed": config.environment.seed}
    settings |= config.pretrain.model_dump(include={"tasks", "sizes", "max_steps", "seed"})
    settings |= {
        "behaviours": corpus_behaviours(config),
        "held_out": text_hash(" ".join(sorted(held_out_ids))),
    }
    return settings | world_identity(config.environment)


def corpus_behaviours(config: Config) -> dict[str, int]:
    """Return behaviour -> episodes of each game. A world of the user's plays those alone that its data has.

    Raises:
        ConfigError: that is none.
    """
    if not config.environment.is_users_world:
        return BEHAVIOURS
    played = {name: count for name, count in BEHAVIOURS.items() if getattr(config.data, name)}
    if not played:
        raise ConfigError(
            f"pretrain.corpus is games, and all of {', '.join(f'data.{name}' for name in BEHAVIOURS)} are 0.",
            "Expected one that plays.",
            "Set data.random=1, or pretrain.corpus=logs, which plays no game.",
        )
    return played


def task_settings(config: Config) -> dict[str, Any]:
    """Return the environment's settings that decide which tasks exist.

    Its seed, sizes and step limit are left out, because pretraining sets its own.
    """
    replaced = ("seed", "max_steps", "receptacles", "objects")
    decisive = pretraining_environment(config).decisive()
    return {name: value for name, value in decisive.items() if name not in replaced}


def world_identity(environment: EnvironmentConfig) -> dict[str, Any]:
    """Return hashes of the code that plays, the user's included, and of the user's demonstrations.

    The address of an OpenEnv server is part of it too.
    """
    look_here()
    files = [world.text.demonstrations for world in environment.each_world]
    modules = ["components.trajectories.recording", *adapter_modules(environment)]
    return {
        "code": {name: module_hash(name) for name in with_imports(modules)},
        "demonstrations": "".join(file_hash(Path(name)) for name in files if name and Path(name).is_file()),
        "server": "".join(world.openenv.url for world in environment.each_world if world.name == "openenv"),
    }


def choose_tasks(config: Config) -> list[Task]:
    """Return the pretraining games, an equal share of each size in `pretrain.sizes`."""
    settings = config.pretrain
    environment = pretraining_environment(config)
    has_sizes = environment.model_dump().get("games") == "generated"
    tasks: list[Task] = []
    for number, size in enumerate(settings.sizes):
        sizes = {"receptacles": size, "objects": size} if has_sizes else {}
        adapter = make_adapter(environment.model_copy(update=sizes))
        task_count = len(range(number, settings.tasks, len(settings.sizes)))
        if task_count:
            tasks += adapter.tasks(TRAIN, task_count, settings.seed + SEED_OFFSET + number)
    return list({task.id: task for task in tasks}.values())


def _log_episodes(finished: int, count: int) -> None:
    if finished % LOG_EPISODES == 0 or finished == count:
        get_run_logger().info("collected %d of %d episodes", finished, count)
