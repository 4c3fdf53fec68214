"""Builds or updates the stored index of the replay log, and measures its recall.

    dreamgym index --rebuild retrieval.index=chroma

The log is the training trajectories, followed by the transitions that runs have dreamed
(`data/<environment>/replay`). A run's own buffer starts with the trajectories only. They come first in the
log, so one stored index serves both.
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
from components.experience.retrieval.stored_index import stored_size_bytes
from components.records import Transition
from components.trajectories.replay_log import read_log
from components.trajectories.store import DataLayout, held_out, read_tasks, read_transitions, trajectories
from flows.run.run_data import index_directories


@dataclass(frozen=True)
class IndexReport:
    """What `dreamgym index` did; the field names are keys of its JSON.

    Args:
        transitions: in the log.
        dreamed: of these, dreamed by runs.
        held: of these, in the index.
        steps: different (state, action) pairs.
        done: what was built, as a sentence.
        recall: recall@k against exact search, on steps of the fidelity set.
    """

    transitions: int
    dreamed: int
    held: int
    steps: int
    encoder: str
    done: str
    recall: Estimate
    size_bytes: int
    seconds: float


def index_log(config: Config, root: Path, rebuild: bool = False) -> IndexReport:
    """Open the stored index of the whole log and add what is missing; `rebuild` builds all of it.

    Raises:
        ConfigError: retrieval is off.
        DataError: data is missing or damaged.
        ExperienceModelError: the log holds a held-out task, or the encoder cannot be used.
    """
    if not config.retrieval.k:
        raise ConfigError(
            "retrieval.k is 0: nothing is retrieved, so there is no index.", next_step="Set retrieval.k=1."
        )
    began = time.monotonic()
    layout = DataLayout.of(root, config.environment.name)
    directories = index_directories(root)
    log, dreamed = whole_log(layout)
    buffer = ReplayBuffer(config.retrieval, log, hidden=held_out(layout), rebuild=rebuild, **directories)
    fidelity_episodes = trajectories(
        read_tasks(layout.tasks("fidelity")), read_transitions(layout.trajectories("fidelity"))
    )
    report = IndexReport(
        transitions=len(buffer),
        dreamed=dreamed,
        held=buffer.held,
        steps=buffer.steps,
        encoder=buffer.encoder.identity,
        done=buffer.opening_message or _nothing_built(config),
        recall=recall_estimate(buffer, fidelity_episodes),
        size_bytes=stored_size_bytes(directories["stored"]) if buffer.opening_message else 0,
        seconds=time.monotonic() - began,
    )
    buffer.close()
    return report


def whole_log(layout: DataLayout) -> tuple[list[Transition], int]:
    """Return the training transitions followed by the dreamed ones, and the number of dreamed ones.

    Raises:
        DataError: they are missing or damaged.
    """
    dreamed = read_log(layout.replay)
    return read_transitions(layout.trajectories("train")) + dreamed, len(dreamed)


def _nothing_built(config: Config) -> str:
    if config.retrieval.server:
        return f"Nothing to build: every run makes a collection of its own on {config.retrieval.server}."
    return "Nothing to build: with retrieval.index=exact every run keeps the vectors in memory."
