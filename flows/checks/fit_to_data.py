"""Sets what a config leaves open from the recorded data of a world of the user's: counts, whom to imitate.

The defaults suit the worlds of the repository, which have hundreds of tasks and an expert. A value that the
config's file or an override sets is not changed: where it does not fit, `data_checks.py` refuses it. The
run's `config.json` has the values that were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.config import Config, source_of, with_values
from components.trajectories.store import DataLayout
from flows.checks.data_checks import (
    EpisodeCount,
    cloned_in_place_of_expert,
    count_cloned,
    count_episodes,
    count_tasks,
    has_won_expert,
)


def fit_to_data(root: Path, config: Config) -> tuple[Config, dict[str, Any]]:
    """Return the config with the values that the recorded data allows, and the values that were set, by key.

    Other worlds than the user's keep their config. So does a world without recorded data.
    """
    if not config.environment.is_users_world:
        return config, {}
    layout = DataLayout.of(root, config.environment.name)
    values = _fit_counts(layout, config)
    episodes = count_episodes(layout)
    if episodes is not None:
        values |= _fit_imitation(config, episodes)
    return with_values(config, values), values


def _fit_counts(layout: DataLayout, config: Config) -> dict[str, Any]:
    """Return key -> number of tasks, for the keys that ask for more tasks than there are."""
    limits = {
        "evaluation.tasks": (config.evaluation.tasks, "test"),
        "fidelity.tasks": (config.fidelity.tasks, "fidelity"),
        "fidelity.policy_tasks": (config.fidelity.policy_tasks, "train"),
    }
    counts = {key: (value, count_tasks(layout.tasks(split))) for key, (value, split) in limits.items()}
    is_set = source_of(config).sets
    return {key: count for key, (value, count) in counts.items() if 0 < count < value and not is_set(key)}


def _fit_imitation(config: Config, episodes: Mapping[str, EpisodeCount]) -> dict[str, Any]:
    """Return whom to clone and how many of their episodes; no demonstrations in RL without an expert."""
    is_set = source_of(config).sets
    settings = config.cloning
    values: dict[str, Any] = {}
    if count_cloned(episodes, settings) == 0 and not is_set("cloning.behaviours"):
        behaviours = cloned_in_place_of_expert(episodes, settings.only_successes)
        if behaviours:
            values["cloning.behaviours"] = behaviours
            settings = settings.model_copy(update={"behaviours": behaviours})
    count = count_cloned(episodes, settings)
    if 0 < count < settings.demonstrations and not is_set("cloning.demonstrations"):
        values["cloning.demonstrations"] = count
    if not has_won_expert(episodes):
        for stage in ("dream", "real", "baseline"):
            key = f"rl.{stage}.demonstration_weight"
            if getattr(config.rl, stage).demonstration_weight and not is_set(key):
                values[key] = 0.0
    return values
