"""From a dream to the real world that it described: the objects where the dream said they were.

A dream may rightly invent what no one has seen yet. So a dreamed episode is judged in the game in which everything it
revealed is true from the start: replaying the dreamed actions there tells whether the dream drew the right conclusions.
"""

from __future__ import annotations

from dataclasses import replace

from components.environments.alfworld.games import World, natural
from components.environments.alfworld.knowledge import read_goal
from components.environments.alfworld.states import read_state
from components.errors import EnvironmentFailure
from components.records import TRAIN, Task, Trajectory


def embody(dreamed: Trajectory) -> Task:
    """The task of the real game that `dreamed` described.

    Raises:
        EnvironmentFailure: no such game exists: the dream contradicts itself, or names things that no game has.
    """
    goal = read_goal(dreamed.task.instruction)
    if goal is None:
        raise EnvironmentFailure(f"The dreamed task {dreamed.task.instruction!r} follows no template of ALFWorld.")
    room = read_state(dreamed.task.initial_state)
    placement = _initial_placement(dreamed, set(room.contents))
    world = World(
        goal.family, goal.target, goal.parent, goal.lamp, dreamed.task.instruction,
        tuple(sorted(room.contents, key=natural)), dict(sorted(placement.items(), key=lambda item: natural(item[0]))),
    )  # fmt: skip
    return replace(dreamed.task, id=f"{dreamed.task.id}/embodied", split=TRAIN, spec=world.to_json(), parent="")


def _initial_placement(dreamed: Trajectory, receptacles: set[str]) -> dict[str, str]:
    """Object -> where it must have been at the start, from every listing and every take of the dream."""
    start: dict[str, str] = {}
    now: dict[str, str] = {}
    for state in dreamed.states[1:]:
        seen = read_state(state)
        listed = seen.contents if seen.event == "at" else (seen.thing,) if seen.event == "took" else ()
        for thing in listed:
            if seen.place not in receptacles:
                raise EnvironmentFailure(f"The dream names {seen.place}, which its room does not have.")
            if thing not in now:
                start[thing] = now[thing] = seen.place
            elif now[thing] != seen.place:
                raise EnvironmentFailure(f"The dream shows {thing} at {seen.place}, though it was at {now[thing]}.")
        if seen.event == "took":
            now[seen.thing] = "hand"
        if seen.event == "moved":
            now[seen.thing] = seen.place
    return start
