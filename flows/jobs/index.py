"""The stored index of the replay log, made or brought up to date, and how well it finds.

    dreamgym index --rebuild retrieval.index=chroma

The log is the training trajectories and what runs have dreamed since (`data/<environment>/replay`). A run's
own buffer begins with the trajectories alone, which come first, so one stored index serves both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from components.config import Config
from components.errors import ConfigError
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.retrieval_recall import recall_estimate
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.retrieval.stored_index import size_of
from components.records import Transition
from components.trajectories.store import (
    DataLayout,
    held_out,
    read_log,
    read_tasks,
    read_transitions,
    trajectories,
)
from flows.run.run_data import index_directories


@dataclass(frozen=True)
class Indexed:
    """What the log holds, what was done, and recall@k against exact search on steps of the fidelity set."""

    transitions: int
    dreamed: int
    held: int
    steps: int
    encoder: str
    done: str
    recall: Estimate
    size_bytes: int
    seconds: float


def index_log(config: Config, root: Path, rebuild: bool = False) -> Indexed:
    """Open the stored index on the whole log, building what is missing; `rebuild` builds it anew whatever is
    there.

    Raises:
        ConfigError: retrieval is off.
        DataError: data is missing or damaged.
        ExperienceModelError: the log holds a held-out task, or the encoder cannot be used.
    """
    if not config.retrieval.k:
        raise ConfigError(
            "retrieval.k is 0: nothing is retrieved, so there is no index.", next_step="Set retrieval.k=1."
        )
    layout, places, began = (
        DataLayout.of(root, config.environment.name),
        index_directories(root),
        time.monotonic(),
    )
    log, dreamed = whole_log(layout)
    buffer = ReplayBuffer(config.retrieval, log, hidden=held_out(layout), rebuild=rebuild, **places)
    measured = trajectories(
        read_tasks(layout.tasks("fidelity")), read_transitions(layout.trajectories("fidelity"))
    )
    found = Indexed(
        transitions=len(buffer),
        dreamed=dreamed,
        held=buffer.held,
        steps=buffer.steps,
        encoder=buffer.encoder.identity,
        done=buffer.opened or _nothing_to_build(config),
        recall=recall_estimate(buffer, measured),
        size_bytes=size_of(places["stored"]) if buffer.opened else 0,
        seconds=time.monotonic() - began,
    )
    buffer.close()
    return found


def whole_log(layout: DataLayout) -> tuple[list[Transition], int]:
    """The training transitions and then the dreamed ones, and how many are dreamed. Raises DataError if they
    are missing or damaged.
    """
    dreamed = read_log(layout.replay)
    return read_transitions(layout.trajectories("train")) + dreamed, len(dreamed)


def _nothing_to_build(config: Config) -> str:
    if config.retrieval.server:
        return f"Nothing to keep here: every run makes a collection of its own on {config.retrieval.server}."
    return "Nothing to build: with retrieval.index=exact every run keeps the vectors in memory."
