"""The corpus of a pretraining from logs alone: the recorded training episodes, and no game that is played."""

from __future__ import annotations

import json
from pathlib import Path

from components.records import Trajectory
from components.tracking.stage_store.hashes import file_hash
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories
from flows.jobs.pretraining.corpus import SETTINGS_FILE


def read_logged_corpus(layout: DataLayout, work: Path) -> list[Trajectory]:
    """Return the recorded episodes of the training tasks.

    The settings file in `work`, from which the phases' keys come, gets the hashes of the files.

    Raises:
        DataError: a file is missing or damaged.
    """
    tasks, transitions = layout.tasks("train"), layout.trajectories("train")
    episodes = trajectories(read_tasks(tasks), read_transitions(transitions))
    work.mkdir(parents=True, exist_ok=True)
    settings = {"logs": {path.parent.name: file_hash(path) for path in (tasks, transitions)}}
    (work / SETTINGS_FILE).write_text(json.dumps(settings))
    return episodes
