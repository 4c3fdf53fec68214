"""Sets what a config leaves open from imported logs: the world's description and the limits of lengths.

    dreamgym retrain --logs agent.jsonl
    dreamgym retrain --config configs/logs.yaml    # after dreamgym import

A value that an override sets is not changed. The run's `config.json` has the values that were set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from components.config import Config, with_values
from components.files import read_text
from components.trajectories.store import DataLayout, iter_transitions
from flows.checks.model_checks import recorded_answer_lengths
from flows.checks.token_limits import cuts_too_much, limit_of, sufficient_limit


def fit_to_logs(
    root: Path, config: Config, set_by_user: Collection[str] = ()
) -> tuple[Config, dict[str, Any]]:
    """Return the config with what the logs of its environment need, and the values that were set, by key.

    Args:
        set_by_user: keys that stay as they are, such as `rl.max_new_tokens`.
    """
    values: dict[str, Any] = {}
    file = DataLayout.of(root, config.environment.name).description
    description = read_text(file) if file.is_file() else ""
    if description and not config.environment.description:
        values["environment.description"] = description
    steps = longest_episode(root, config)
    if steps > config.environment.max_steps:
        values["environment.max_steps"] = steps
    for key, lengths in recorded_answer_lengths(root, config).items():
        if cuts_too_much(limit_of(config, key), lengths):
            values[key] = sufficient_limit(lengths)
    values = {key: value for key, value in values.items() if not _is_set(key, set_by_user)}
    return with_values(config, values), values


def longest_episode(root: Path, config: Config) -> int:
    """Return the number of steps of the longest training episode; 0 if there is none."""
    steps = iter_transitions(DataLayout.of(root, config.environment.name).trajectories("train"))
    return max(Counter(step.episode_id for step in steps).values(), default=0)


def _is_set(key: str, set_by_user: Collection[str]) -> bool:
    """Whether an override sets the key, `rl.max_new_tokens` being one for all three of its stages."""
    section, *_, name = key.split(".")
    return key in set_by_user or f"{section}.{name}" in set_by_user
