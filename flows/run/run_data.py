"""The data that stages read: episodes, tasks, backbone, encoder and replay buffer of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from prefect import get_run_logger

from components.environments import make_adapter
from components.errors import ConfigError, TrainingError
from components.experience.dataset import episodes_of_families, select_episodes
from components.experience.retrieval.encoders import encoder_identity
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.pretrained.model_directory import find_model
from components.records import Task, Trajectory
from components.trajectories.recording import BEHAVIOURS
from components.trajectories.replay_log import read_log
from components.trajectories.store import held_out, iter_episodes, read_tasks, trajectories
from flows.run.pipeline_run import Run
from flows.run.stage import Fingerprint, Inputs, StageOutput

EXPERIENCE = "experience"
"""Input and output of stages: real episodes of the policy, a log of transitions."""


def has_live_world(run: Run) -> bool:
    """Return True if the run's environment can be played; False if there are only its logs."""
    return make_adapter(run.config.environment).is_live


def policy_backbone(run: Run) -> Path:
    """Return the directory of the pretrained model that the policy starts from."""
    name = run.config.backbone.path
    return find_model(name).directory if name else run.data.backbone


def experience_model_backbone(run: Run) -> Path:
    """Return the directory of the pretrained model that the experience model starts from."""
    name = run.config.experience_model.path
    return find_model(name).directory if name else policy_backbone(run)


def stream_episodes(run: Run, name: str, transitions: Path) -> Iterator[Trajectory]:
    """Yield the validated episodes of `train` or `fidelity`; one at a time is in memory.

    Args:
        name: `train` or `fidelity`.
        transitions: Parquet file of the stage `validate`.
    """
    return iter_episodes(read_tasks(run.logs.tasks(name)), transitions)


def read_episodes(run: Run, name: str, transitions: Path) -> list[Trajectory]:
    """Return the episodes of `stream_episodes`."""
    return list(stream_episodes(run, name, transitions))


def stream_training_episodes(run: Run, train: Path) -> Iterator[Trajectory]:
    """Yield validated training episodes of the task families in `data.families` (empty: of all).

    With `cloning.thoughts: false` they have no thoughts, which only policies read. With
    `environment.knowledge: false` they have none of those that an adapter wrote, but those of a policy.
    """
    episodes = episodes_of_families(stream_episodes(run, "train", train), run.config.data.families)
    if not run.config.cloning.thoughts:
        return (one.without_thoughts() for one in episodes)
    if not run.config.environment.knowledge and has_live_world(run):
        return (one.without_thoughts(BEHAVIOURS) for one in episodes)
    return episodes


def training_episodes(run: Run, train: Path) -> list[Trajectory]:
    """Return the episodes of `stream_training_episodes`."""
    return list(stream_training_episodes(run, train))


def model_episodes(run: Run, train: Path) -> list[Trajectory]:
    """Return the training episodes that the experience model is trained on and retrieves from."""
    return select_episodes(training_episodes(run, train), run.config.experience_model, run.config.seed)


def experience_input(run: Run) -> dict[str, StageOutput]:
    """Return the real episodes of earlier rounds as input of a stage; empty in the first round."""
    model = run.results.get("experience_model")
    return (
        {EXPERIENCE: StageOutput("experience_model", EXPERIENCE)}
        if model and EXPERIENCE in model.outputs
        else {}
    )


def known_episodes(run: Run, inputs: Inputs) -> list[Trajectory]:
    """Return the episodes that the dream retrieves from: the offline ones, then those of earlier rounds.

    Args:
        inputs: of a stage, with `train` and those of `experience_input`.
    """
    recorded = model_episodes(run, inputs["train"])
    return recorded + (read_experience(run, inputs[EXPERIENCE]) if EXPERIENCE in inputs else [])


def read_experience(run: Run, log: Path) -> list[Trajectory]:
    """Return the real episodes of a stage's log of transitions."""
    steps = read_log(log)
    return trajectories(read_tasks(run.data.tasks("train")), steps) if steps else []


def cloned_behaviours(run: Run, train: Path) -> list[Trajectory]:
    """Return the training episodes of `cloning.behaviours`, won and lost: the logs a policy learns from."""
    behaviours = run.config.cloning.behaviours
    return [one for one in stream_training_episodes(run, train) if one.steps[0].behaviour in behaviours]


def episodes_to_clone(run: Run, train: Path, behaviours: Sequence[str]) -> list[Trajectory]:
    """Return the first `cloning.demonstrations` episodes of `behaviours`.

    Of an expert, or with `cloning.only_successes`, only successful ones.

    Raises:
        TrainingError: there is no such episode.
    """
    settings = run.config.cloning
    episodes = [
        episode
        for episode in stream_training_episodes(run, train)
        if episode.steps[0].behaviour in behaviours
        and (episode.success or not settings.needs_success(episode.steps[0].behaviour))
    ]
    if not episodes:
        raise TrainingError(
            f"The offline data has no episode of {' or '.join(behaviours)} (of an expert, or with "
            "cloning.only_successes: no successful one).",
            "Cloning needs at least one.",
            "Set data.expert=1 and run `dreamgym collect`.",
        )
    return episodes[: settings.demonstrations]


def training_tasks(run: Run) -> list[Task]:
    """Return the training tasks of the task families in `data.families` (empty: of all).

    Raises:
        ConfigError: no training task belongs to a named family.
    """
    tasks = read_tasks(run.data.tasks("train"))
    families = run.config.data.families
    existing = sorted({task.family for task in tasks})
    missing = [family for family in families if family not in existing]
    if missing:
        raise ConfigError(
            f"No training task is of the family {missing[0]!r}.",
            f"data.families may name {', '.join(existing)}.",
        )
    return [task for task in tasks if not families or task.family in families]


def families_config(run: Run) -> dict[str, list[str]]:
    """Return `data.families` as part of a stage's config; empty if all families are used."""
    return {"families": sorted(run.config.data.families)} if run.config.data.families else {}


def encoder_input(run: Run) -> dict[str, Fingerprint]:
    """Return the encoder as input of a stage: the content of its model; empty for hashed n-grams."""
    if run.config.retrieval.encoder == "hashing":
        return {}
    return {"encoder": Fingerprint(encoder_identity(run.config.retrieval))}


def open_buffer(run: Run, episodes: Sequence[Trajectory]) -> ReplayBuffer:
    """Open a replay buffer with the transitions of `episodes`; held-out tasks are refused."""
    transitions = [step for episode in episodes for step in episode.steps]
    directories = index_directories(run.root)
    buffer = ReplayBuffer(
        run.config.retrieval, transitions, hidden=held_out(run.data) | held_out(run.logs), **directories
    )
    if buffer.opening_message:
        get_run_logger().info(buffer.opening_message)
    return buffer


class IndexDirectories(TypedDict):
    """Directories of the stored index of the replay log, and of the embeddings of slow encoders."""

    stored: Path
    embeddings: Path


def index_directories(root: Path) -> IndexDirectories:
    """Return both directories below the repository `root`; they can be rebuilt, so they are not in data/."""
    return {"stored": root / ".dreamgym" / "index", "embeddings": root / ".dreamgym" / "embeddings"}
