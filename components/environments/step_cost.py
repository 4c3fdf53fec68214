"""Measure what a step costs in a real environment, by replaying recorded episodes one at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from components.environments.protocol import Environment
from components.environments.retry import RETRY_ADVICE
from components.errors import EnvironmentFailure
from components.records import Trajectory


@dataclass(frozen=True)
class Replay:
    """The cost of one episode: its steps, the seconds to load and start its game, and those of the steps."""

    steps: int
    reset_seconds: float
    step_seconds: float


def replay(world: Environment, episode: Trajectory) -> Replay:
    """Play the recorded actions of `episode` and return what they cost.

    Raises:
        EnvironmentFailure: the environment breaks, or answers otherwise than it was recorded.
    """
    started = time.perf_counter()
    states = world.reset([episode.task])
    ready = time.perf_counter()
    for step in episode.steps:
        answer = world.step([step.action])[0]
        if answer and "failed" in answer.info:
            raise EnvironmentFailure(
                f"{episode.steps[0].episode_id} broke: {answer.info['failed']}",
                "Expected a step.",
                RETRY_ADVICE,
            )
        states.append(answer.state if answer else "")
    ended = time.perf_counter()
    for number, (state, recorded) in enumerate(zip(states, episode.states, strict=True)):
        if state != recorded:
            raise EnvironmentFailure(
                f"State {number} of {episode.steps[0].episode_id} is {state!r}, recorded was {recorded!r}.",
                "Expected the same: the same actions are to be compared.",
                "Record the data anew with this version: dreamgym collect.",
            )
    return Replay(len(episode.steps), ready - started, ended - ready)
