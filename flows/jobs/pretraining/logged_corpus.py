"""The corpus of a pretraining from logs alone: the recorded training episodes, and no game that is played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.records import Trajectory
from components.tracking.stage_store.hashes import file_hash
from components.trajectories.store import DataLayout, iter_episodes, read_tasks
from flows.jobs.pretraining.corpus import SETTINGS_FILE


def read_logged_corpus(layout: DataLayout, work: Path, behaviours: Sequence[str] = ()) -> list[Trajectory]:
    """Return the recorded episodes of the training tasks.

    The settings file in `work`, from which the phases' keys come, gets the hashes of the files.

    Args:
        behaviours: whose episodes are read; empty: all.

    Raises:
        DataError: a file is missing or damaged, or has no episode of `behaviours`.
    """
    tasks, transitions = layout.tasks("train"), layout.trajectories("train")
    recorded: set[str] = set()
    episodes = []
    for episode in iter_episodes(read_tasks(tasks), transitions):
        behaviour = episode.steps[0].behaviour
        recorded.add(behaviour)
        if not behaviours or behaviour in behaviours:
            episodes.append(episode)
    if not episodes:
        raise DataError(
            f"{transitions} has no episode of {', '.join(behaviours)}.",
            f"It has episodes of {', '.join(sorted(recorded))}.",
            "Change experience_model.behaviours.",
        )
    work.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"logs": {path.parent.name: file_hash(path) for path in (tasks, transitions)}}
    if behaviours:
        settings["behaviours"] = list(behaviours)
    (work / SETTINGS_FILE).write_text(json.dumps(settings))
    return episodes
