"""From a dream to the real world that it described: the objects where the dream said they were.

A dream may rightly invent what no one has seen yet. So a dreamed episode is judged in the game in which
everything it revealed is true from the start: replaying the dreamed actions there tells whether the dream
drew the right conclusions. Of an object that the dream shows in two places without anyone having moved it,
the first mention counts; what it said later is then a state that the real engine does not confirm, and an
action that relied on it fails there. What the goal needs and an episode without success never came across
lies where it never looked.
"""

from __future__ import annotations

from dataclasses import replace

from components.environments.alfworld.games import (
    AFFORDS,
    HOLDS,
    LAMPS,
    OPENABLE,
    PORTABLE,
    TREATMENTS,
    World,
    kind,
    natural,
)
from components.environments.alfworld.knowledge import Goal, read_goal
from components.environments.alfworld.states import read_state
from components.errors import EnvironmentFailure
from components.records import TRAIN, Task, Trajectory


def embody(dreamed: Trajectory) -> Task:
    """The task of the real game that `dreamed` described.

    Raises:
        EnvironmentFailure: no such game exists: the dream has looked everywhere and not shown what its goal
            needs (the engine
            loads no game whose goal is out of reach from the start), or starts with its goal reached.
    """
    goal = read_goal(dreamed.task.instruction)
    if goal is None:
        raise EnvironmentFailure(
            f"The dreamed task {dreamed.task.instruction!r} follows no template of ALFWorld."
        )
    if goal.target not in PORTABLE or (goal.lamp not in LAMPS if goal.lamp else goal.parent not in HOLDS):
        raise EnvironmentFailure(f"The dreamed task {dreamed.task.instruction!r} asks for what no game has.")
    room = read_state(dreamed.task.initial_state)
    placement = _initial_placement(dreamed, set(room.contents))
    if not dreamed.success:
        _hide(goal, dreamed, room.contents, placement)
    if lacking := _lacking(
        goal, {kind(name) for name in room.contents}, [kind(thing) for thing in placement]
    ):
        raise EnvironmentFailure(f"The dream's world has no {lacking} for {dreamed.task.instruction!r}.")
    if _solved(goal, placement):
        raise EnvironmentFailure(
            f"In the dream's world {dreamed.task.instruction!r} is done before anyone acts."
        )
    world = World(
        goal.family,
        goal.target,
        goal.parent,
        goal.lamp,
        dreamed.task.instruction,
        tuple(sorted(room.contents, key=natural)),
        dict(sorted(placement.items(), key=lambda item: natural(item[0]))),
    )
    return replace(
        dreamed.task, id=f"{dreamed.task.id}/embodied", split=TRAIN, spec=world.to_json(), parent=""
    )


def _hide(goal: Goal, dreamed: Trajectory, receptacles: tuple[str, ...], placement: dict[str, str]) -> None:
    """Put what the goal needs and the dream never showed where it never looked, so that an episode without
    success has a world too.
    """
    looked = {
        seen.place for seen in map(read_state, dreamed.states) if seen.event == "at" and seen.door != "closed"
    }
    for wanted, count in (
        (goal.target, 2 if goal.family == "pick_two_obj_and_place" else 1),
        (goal.lamp, 1 if goal.lamp else 0),
    ):
        number = 0
        while sum(kind(thing) == wanted for thing in placement) < count:
            number += 1
            holds = [
                r for r in receptacles if r not in looked and _keeps(r, wanted) and kind(r) != goal.parent
            ]
            if not holds or number > 9:
                return
            placement.setdefault(f"{wanted} {number}", holds[0])


def _keeps(receptacle: str, wanted: str) -> bool:
    return kind(receptacle) not in OPENABLE if wanted in LAMPS else wanted in HOLDS[kind(receptacle)]


def _lacking(goal: Goal, places: set[str], things: list[str]) -> str:
    """What the goal needs and the world does not have; "" if nothing."""
    verb, station = TREATMENTS.get(goal.family, ("", ""))
    if things.count(goal.target) < (2 if goal.family == "pick_two_obj_and_place" else 1):
        return goal.target
    if goal.lamp:
        return "" if goal.lamp in things else goal.lamp
    if verb and (station not in places or goal.target not in AFFORDS[f"{verb}able"]):
        return f"way to {verb} {goal.target}"
    return (
        ""
        if goal.parent in places and goal.target in HOLDS[goal.parent]
        else f"{goal.parent} that holds {goal.target}"
    )


def _solved(goal: Goal, placement: dict[str, str]) -> bool:
    """True if the targets lie from the start where the goal wants them; a treated or lit one cannot."""
    there = [
        place
        for thing, place in placement.items()
        if kind(thing) == goal.target and kind(place) == goal.parent
    ]
    if goal.family == "pick_two_obj_and_place":
        return len(there) > len(set(there))
    return goal.family == "pick_and_place_simple" and bool(there)


def _initial_placement(dreamed: Trajectory, receptacles: set[str]) -> dict[str, str]:
    """Object -> where it lies at the start: where the dream first mentions it, if that is a place of the room
    and the engine knows it.
    """
    start: dict[str, str] = {}
    mentioned: set[str] = set()
    for state in dreamed.states[1:]:
        seen = read_state(state)
        for thing in (
            seen.contents
            if seen.event == "at"
            else (seen.thing,)
            if seen.event in ("took", "lit", "moved")
            else ()
        ):
            known = kind(thing) in PORTABLE or kind(thing) in LAMPS
            if thing not in mentioned and known and seen.place in receptacles and seen.event != "moved":
                start[thing] = seen.place
            mentioned.add(thing)
    return start
