"""Play ALFWorld with any commands at all, and look at every step of what was played."""

from __future__ import annotations

import random

from components.environments.alfworld.games import STATIONS, kind
from components.environments.alfworld.knowledge import Knowledge, read_knowledge
from components.records import Trajectory, Transition


def moments(episodes):
    """(trajectory before, step) of every step."""
    return [(episode.up_to(step.step), step) for episode in episodes for step in episode.steps]


def everything(played):
    return [moment for episodes in played.values() for moment in moments(episodes)]


def any_action(knowledge: Knowledge, rng: random.Random) -> str:
    """Return a command of the engine's forms, with names that are mostly at hand.

    So every kind of refusal occurs.
    """
    things = sorted(
        {o for box in knowledge.contents.values() for o in box}
        | {"mug 1", "desklamp 1", knowledge.holding or "egg 1"}
    )
    thing = knowledge.holding if knowledge.holding and rng.random() < 0.7 else rng.choice(things)
    place = (
        knowledge.place
        if knowledge.place and rng.random() < 0.75
        else rng.choice([*knowledge.receptacles, "desk 9"])
    )
    verb = rng.choice(list(STATIONS))
    stations = [r for r in knowledge.receptacles if kind(r) in STATIONS.values()] or knowledge.receptacles
    forms = (
        [f"take {thing} from {place}"] * 4
        + [f"{verb} {thing} with {place}"] * 2
        + [f"go to {rng.choice(stations)}"] * 3
        + [
            f"go to {place}",
            f"go to {rng.choice(knowledge.receptacles)}",
            f"move {thing} to {place}",
            f"open {place}",
            f"open {place}",
            f"close {place}",
            f"use {thing}",
            f"examine {thing}",
            f"examine {place}",
            f"{verb} {thing} with {STATIONS[verb]} 1",
            "look",
            "inventory",
            f"take {place} from {thing}",
            f"put {thing} in {place}",
            "help",
            f"slice {thing} with knife 1",
        ]
    )
    return rng.choice(forms)


def play_anything(world, tasks, steps, seed):
    """Episodes of `any_action`."""
    rng, played = random.Random(seed), [Trajectory(task) for task in tasks]
    world.reset(tasks)
    for step in range(steps):
        actions = [None if e.success else any_action(read_knowledge(e), rng) for e in played]
        for row, answer in enumerate(world.step(actions)):
            if answer is not None:
                transition = Transition(
                    tasks[row].id,
                    f"e{row}",
                    step,
                    played[row].states[-1],
                    actions[row],
                    answer.state,
                    answer.reward,
                    answer.done,
                )
                played[row] = played[row].with_step(transition)
    return played


def obstacle_of(knowledge: Knowledge, action: str) -> str:
    """Return why `action` cannot work, by the knowledge; "" if nothing forbids it."""
    return next((need.no for need in knowledge.needs_of(action) if not need.holds), "")
