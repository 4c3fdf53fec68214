"""Recorded episodes played once more in a real environment, one at a time: what a step costs there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from components.environments.protocol import Environment
from components.environments.retry import AGAIN
from components.errors import EnvironmentFailure
from components.records import Trajectory


@dataclass(frozen=True)
class Replay:
    """One episode: its steps, and the seconds for loading and starting its game and for the steps."""

    steps: int
    reset_seconds: float
    step_seconds: float


def replay(world: Environment, episode: Trajectory) -> Replay:
    """Play the recorded actions of `episode`.

    Raises:
        EnvironmentFailure: the environment breaks, or answers otherwise than it was recorded.
    """
    began = time.perf_counter()
    states = world.reset([episode.task])
    started = time.perf_counter()
    for step in episode.steps:
        answer = world.step([step.action])[0]
        if answer and "failed" in answer.info:
            raise EnvironmentFailure(
                f"{episode.steps[0].episode_id} broke: {answer.info['failed']}", "Expected a step.", AGAIN
            )
        states.append(answer.state if answer else "")
    ended = time.perf_counter()
    for number, (found, recorded) in enumerate(zip(states, episode.states, strict=True)):
        if found != recorded:
            raise EnvironmentFailure(
                f"State {number} of {episode.steps[0].episode_id} is {found!r}, recorded was {recorded!r}.",
                "Expected the same: the same actions are to be compared.",
                "Record the data anew with this version: dreamgym collect.",
            )
    return Replay(len(episode.steps), started - began, ended - started)
