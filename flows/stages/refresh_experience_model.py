"""Step 2 of a further round: train the experience model on, on real episodes of the rounds before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.errors import ConfigError, DataError
from components.evaluation.metrics.intervals import exact_value
from components.records import Trajectory
from components.trajectories.recording import with_reasoning
from components.trajectories.replay_log import append_once
from flows.run.pipeline_run import Run
from flows.run.run_data import EXPERIENCE, encoder_input, experience_input, model_episodes, read_experience
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.experience_training import experience_model_config, train_and_measure

SOURCES = ("synthetic_rl", "check_dreamed", "sim_to_real")
"""Stages of the round before that play real episodes of its policy."""


@stage_flow("refresh-experience-model")
def refresh_experience_model(run: Run) -> Stage:
    """Stage: train the experience model of the round before on its real episodes; measure `fidelity/*`.

    As many offline steps are mixed in. The further output `experience` has all real episodes so far.

    Raises:
        ConfigError: the experience model is a prompted one, which is not trained.
    """
    if run.config.experience_model.kind == "prompted":
        raise ConfigError(
            "A further round with experience_model.kind=prompted.",
            "Expected trained: real episodes change the weights, and a prompted model has none here.",
        )
    played = [name for name in SOURCES if name in run.results and EXPERIENCE in run.results[name].outputs]
    return Stage(
        "experience_model",
        work=partial(_refresh, run, played),
        inputs={
            "model": StageOutput("experience_model", "model"),
            "train": StageOutput("validate", "train"),
            "fidelity": StageOutput("validate", "fidelity"),
            **encoder_input(run),
            **experience_input(run),
            **{name: StageOutput(name, EXPERIENCE) for name in played},
        },
        config=experience_model_config(run),
        code=__name__,
    )


def _refresh(run: Run, played: Sequence[str], inputs: Inputs, work: Path) -> Outcome:
    logs = [inputs[name] for name in (EXPERIENCE, *played) if name in inputs]
    real = _with_reasoning(run.config, [episode for log in logs for episode in read_experience(run, log)])
    if not real:
        raise DataError(
            "The rounds before played no real episode.",
            "Expected some, from RL in reality or from a check of the dream.",
            "Raise rl.real.iterations or fidelity.policy_tasks in the first round.",
        )
    recorded = model_episodes(run, inputs["train"])
    outcome = train_and_measure(
        run,
        _refreshing(run.config),
        inputs,
        work,
        start=inputs["model"],
        episodes=real + _as_many_steps(recorded, real, run.round_seed),
        known=recorded + real,
    )
    steps = [step for episode in real for step in episode.steps]
    append_once(work / EXPERIENCE, steps, "rounds")
    outcome.outputs[EXPERIENCE] = EXPERIENCE
    outcome.metrics["experience_model/real_steps"] = exact_value(len(steps))
    return outcome


def _with_reasoning(config: Config, episodes: list[Trajectory]) -> list[Trajectory]:
    """Return the episodes with the adapter's reasoning, where the model learns from that."""
    settings = config.experience_model
    if not settings.reasoning or settings.teacher != "programmatic":
        return episodes
    adapter = make_adapter(config.environment)
    return [with_reasoning(adapter, episode) for episode in episodes]


def _refreshing(config: Config) -> Config:
    """Return the config with `refresh_epochs` passes, and all episodes equally often."""
    passes = {"epochs": config.experience_model.refresh_epochs, "near_miss_weight": 1.0}
    return config.model_copy(update={"experience_model": config.experience_model.model_copy(update=passes)})


def _as_many_steps(
    episodes: Sequence[Trajectory], others: Sequence[Trajectory], seed: int
) -> list[Trajectory]:
    """Return episodes, drawn without repetition, until they have as many steps as `others`."""
    wanted = sum(len(episode.steps) for episode in others)
    drawn: list[Trajectory] = []
    for episode in random.Random(seed).sample(list(episodes), len(episodes)):
        if wanted <= 0:
            break
        drawn.append(episode)
        wanted -= len(episode.steps)
    return drawn
