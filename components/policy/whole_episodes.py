"""Rollouts for measurements: episodes that infrastructure ended are played again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from components.environments import retry
from components.environments.protocol import Environment
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play
from components.records import Task


def play_whole(
    policy: Policy,
    world: Environment,
    tasks: Sequence[Task],
    *,
    max_steps: int,
    temperature: float,
    seed: int,
    stamp: Stamp = Stamp(),
) -> list[Rollout]:
    """Return rollouts as `play` does, and play episodes again that infrastructure ended.

    For measurements: such an episode says nothing about the policy. The try's number is added to `seed`.

    Raises:
        EnvironmentFailure: an episode broke in each of several tries (`retry.TRIES`).
    """

    def play_tasks(places: list[int], attempt: int) -> tuple[dict[int, Rollout], dict[int, str]]:
        pending_tasks = [tasks[place] for place in places]
        rollouts = play(
            policy,
            world,
            pending_tasks,
            max_steps=max_steps,
            temperature=temperature,
            seed=seed + attempt,
            stamp=stamp,
        )
        by_place = {
            place: replace(rollout, tries=attempt + 1)
            for place, rollout in zip(places, rollouts, strict=True)
        }
        failures = {place: rollout.failure for place, rollout in by_place.items() if rollout.broken}
        return {place: rollout for place, rollout in by_place.items() if place not in failures}, failures

    names = {place: task.id for place, task in enumerate(tasks)}
    return list(
        retry.play_whole(
            names,
            play_tasks,
            "episodes",
            "An episode that was not played is neither a success nor a failure.",
        ).values()
    )
