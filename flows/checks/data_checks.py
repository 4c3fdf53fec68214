"""Checks of a config against the recorded tasks and episodes: it must ask for no more than there is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.config import CloningConfig, Config
from components.environments import make_adapter
from components.errors import ConfigError
from components.trajectories.columns import examine
from components.trajectories.parquet_file import read_table
from components.trajectories.store import TRANSITION_DEFAULTS, TRANSITION_SCHEMA, DataLayout, read_tasks

IMITATED = ("noisy", "random", "policy", "near_miss")
"""Behaviours that may be cloned in place of an expert's, in the order of a config."""
EXPERT = "expert"


@dataclass(frozen=True)
class EpisodeCount:
    """Recorded training episodes of a behaviour, and how many of them succeeded."""

    recorded: int
    won: int


def require_training_tasks(root: Path, config: Config) -> None:
    """Raise ConfigError if fewer training tasks were recorded than a comparison with the dream plays."""
    layout = DataLayout.of(root, config.environment.name)
    count = count_tasks(layout.tasks("train"))
    if config.fidelity.policy_tasks > count:
        raise ConfigError(
            f"This config asks for fidelity.policy_tasks={config.fidelity.policy_tasks}.",
            f"{layout.root.relative_to(root)} has {count} training tasks.",
            "Lower it, or record more: dreamgym collect data.train_tasks=...",
        )


def require_enough_data(root: Path, config: Config, training: bool) -> None:
    """Raise ConfigError if the config asks for more tasks or episodes than were recorded.

    Without this check a run would silently use fewer, play a task twice, or fail at its end. Of imported logs
    a run uses what there is; they must have a success.
    """
    layout = DataLayout.of(root, config.environment.name)
    episodes = count_episodes(layout)
    if not make_adapter(config.environment).is_live:
        _require_logged_success(root, config, episodes)
        return
    exceeded = [
        (key, value, count, name)
        for key, value, count, name in _limits(layout, config, episodes, training)
        if value > count
    ]
    if exceeded:
        advice = [
            f"{key}={count}" if count else _who_can_be_cloned(config, episodes)
            for key, _, count, _ in exceeded
        ]
        raise ConfigError(
            f"This config asks for {', '.join(f'{key}={value}' for key, value, _, _ in exceeded)}.",
            f"{layout.root.relative_to(root)} has "
            f"{', '.join(f'{count} {name}' for _, _, count, name in exceeded)}.",
            f"Give {' '.join(text for text in advice if text)}, or record more with `dreamgym collect`."
            if any(advice)
            else "Record more with `dreamgym collect`.",
        )
    if training:
        _require_demonstrations(root, config, episodes)


def _limits(
    layout: DataLayout, config: Config, episodes: Mapping[str, EpisodeCount] | None, training: bool
) -> list[tuple[str, int, int, str]]:
    """Return (key, its value, the most that the data allows, what that is)."""
    limits = [
        ("evaluation.tasks", config.evaluation.tasks, count_tasks(layout.tasks("test")), "held-out tasks")
    ]
    if training:
        fidelity_tasks = count_tasks(layout.tasks("fidelity"))
        train_tasks = count_tasks(layout.tasks("train"))
        cloned = count_cloned(episodes, config.cloning)
        limits += [
            ("fidelity.tasks", config.fidelity.tasks, fidelity_tasks, "tasks to measure fidelity on"),
            ("fidelity.policy_tasks", config.fidelity.policy_tasks, train_tasks, "training tasks"),
            ("cloning.demonstrations", config.cloning.demonstrations, cloned, "episodes to clone"),
        ]
    return limits


def _who_can_be_cloned(config: Config, episodes: Mapping[str, EpisodeCount] | None) -> str:
    """Return the overrides with which there are episodes to clone; "" if there are none."""
    settings = config.cloning
    behaviours = cloned_in_place_of_expert(episodes, settings.only_successes)
    if not behaviours and settings.only_successes:
        behaviours = cloned_in_place_of_expert(episodes, only_successes=False)
        settings = settings.model_copy(update={"only_successes": False})
    if not behaviours:
        return ""
    settings = settings.model_copy(update={"behaviours": behaviours})
    count = count_cloned(episodes, settings)
    changed = [f"cloning.behaviours=[{','.join(behaviours)}]"]
    changed += (
        ["cloning.only_successes=false"] if config.cloning.only_successes > settings.only_successes else []
    )
    changed += [f"cloning.demonstrations={count}"] if settings.demonstrations > count else []
    return " ".join(changed)


def _require_demonstrations(root: Path, config: Config, episodes: Mapping[str, EpisodeCount] | None) -> None:
    """Raise ConfigError if RL mixes in expert demonstrations and no won expert episode was recorded."""
    keys = [
        f"rl.{name}.demonstration_weight"
        for name, stage in (("dream", config.rl.dream), ("real", config.rl.real))
        if stage.iterations and stage.demonstration_weight
    ]
    if episodes is None or has_won_expert(episodes) or not keys:
        return
    layout = DataLayout.of(root, config.environment.name)
    raise ConfigError(
        f"{' and '.join(keys)} asks for expert demonstrations during RL.",
        f"{layout.root.relative_to(root)} has no expert episode that succeeded.",
        "Set rl.demonstration_weight=0, or record experts: dreamgym collect data.expert=1.",
    )


def _require_logged_success(root: Path, config: Config, episodes: Mapping[str, EpisodeCount] | None) -> None:
    """Raise ConfigError if no episode of the imported logs can be cloned."""
    layout = DataLayout.of(root, config.environment.name)
    if count_cloned(episodes, config.cloning) == 0:
        raise ConfigError(
            f"{layout.root.relative_to(root)} has no episode to clone: none that is known as a success, or "
            f"none of {' or '.join(config.cloning.behaviours)}.",
            "Expected at least one. A dream learns from successes what is rewarded.",
            "Say how a success is told: dreamgym import FILE --outcome field:PATH or --outcome last:PATTERN.",
        )


def count_tasks(path: Path) -> int:
    """Return the number of tasks in a file; no limit if it is missing, which another check reports."""
    return len(read_tasks(path)) if path.is_file() else sys.maxsize


def count_episodes(layout: DataLayout) -> dict[str, EpisodeCount] | None:
    """Return behaviour -> its training episodes.

    None if a file or column is missing, which validation reports.
    """
    path = layout.trajectories("train")
    if not path.exists():
        return None
    columns, problems = examine(read_table(path), TRANSITION_SCHEMA, TRANSITION_DEFAULTS)
    if columns is None or problems:
        return None
    steps = columns.table.select(["episode_id", "behaviour", "reward"]).to_pandas(ignore_metadata=True)
    episodes = steps.groupby("episode_id").agg(behaviour=("behaviour", "first"), reward=("reward", "max"))
    return {
        str(name): EpisodeCount(len(own), int((own["reward"] == 1).sum()))
        for name, own in episodes.groupby("behaviour")
    }


def count_cloned(episodes: Mapping[str, EpisodeCount] | None, settings: CloningConfig) -> int:
    """Return the number of training episodes that can be cloned; no limit where it is unknown."""
    if episodes is None:
        return sys.maxsize
    counts = [(episodes.get(name), settings.needs_success(name)) for name in set(settings.behaviours)]
    return sum((own.won if needs_success else own.recorded) for own, needs_success in counts if own)


def cloned_in_place_of_expert(episodes: Mapping[str, EpisodeCount] | None, only_successes: bool) -> list[str]:
    """Return the recorded behaviours with episodes to clone: near misses only where there are no others."""
    usable = [
        name
        for name in IMITATED
        if (own := (episodes or {}).get(name)) and (own.won if only_successes else own.recorded)
    ]
    return [name for name in usable if name != "near_miss"] or usable


def has_won_expert(episodes: Mapping[str, EpisodeCount]) -> bool:
    """Whether an expert episode was recorded that succeeded."""
    return EXPERT in episodes and episodes[EXPERT].won > 0
