"""From a dream to the real game that it described: the objects where the dream said they were.

A dream may rightly invent what nobody has seen yet. So a dreamed episode is judged in the game in which
everything that it revealed is true from the start. Replaying the dreamed actions there tells whether the
dream concluded correctly. If the dream shows an object in two places and nobody moved it, the first mention
counts. What it said later is then a state that the real engine does not confirm, and an action that relied on
it fails there. What the goal needs and an episode without success never showed lies where the dream never
looked.
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
    GameSpec,
    kind,
    natural_order,
)
from components.environments.alfworld.goals import Goal, read_goal
from components.environments.alfworld.states import ParsedState, read_state
from components.errors import EnvironmentFailure
from components.records import TRAIN, Task, Trajectory

_HIGHEST_NUMBER = 9
"""Number of the last object of a kind that is tried when one is hidden."""


def embody(dreamed: Trajectory) -> Task:
    """Return the task of the real game that `dreamed` described.

    Raises:
        EnvironmentFailure: there is no such game. Either the dream has looked everywhere and not shown what
            its goal needs (the engine loads no game whose goal is out of reach from the start), or it begins
            with its goal reached.
    """
    instruction = dreamed.task.instruction
    goal = read_goal(instruction)
    if goal is None:
        raise EnvironmentFailure(f"The dreamed task {instruction!r} follows no template of ALFWorld.")
    if goal.target not in PORTABLE or (goal.lamp not in LAMPS if goal.lamp else goal.parent not in HOLDS):
        raise EnvironmentFailure(f"The dreamed task {instruction!r} asks for what no game has.")
    room = read_state(dreamed.task.initial_state).contents
    placement = _initial_placement(dreamed, set(room))
    if not dreamed.success:
        _hide_needed_objects(goal, dreamed, room, placement)
    missing = _missing(goal, {kind(name) for name in room}, [kind(thing) for thing in placement])
    if missing:
        raise EnvironmentFailure(f"The dream's world has no {missing} for {instruction!r}.")
    if _is_solved(goal, placement):
        raise EnvironmentFailure(f"In the dream's world {instruction!r} is done before anyone acts.")
    game = GameSpec(
        goal.family,
        goal.target,
        goal.parent,
        goal.lamp,
        instruction,
        tuple(sorted(room, key=natural_order)),
        dict(sorted(placement.items(), key=lambda item: natural_order(item[0]))),
    )
    return replace(
        dreamed.task, id=f"{dreamed.task.id}/embodied", split=TRAIN, spec=game.to_json(), parent=""
    )


def _hide_needed_objects(
    goal: Goal, dreamed: Trajectory, receptacles: tuple[str, ...], placement: dict[str, str]
) -> None:
    """Add to `placement` what the goal needs and the dream never showed, where the dream never looked.

    So an episode without success has a world as well.
    """
    searched = {
        parsed.place
        for parsed in map(read_state, dreamed.states)
        if parsed.event == "at" and parsed.door != "closed"
    }
    for needed_kind, count in ((goal.target, goal.target_count), (goal.lamp, 1 if goal.lamp else 0)):
        number = 0
        while sum(kind(thing) == needed_kind for thing in placement) < count:
            number += 1
            places = [
                place
                for place in receptacles
                if place not in searched and _can_hold(place, needed_kind) and kind(place) != goal.parent
            ]
            if not places or number > _HIGHEST_NUMBER:
                return
            placement.setdefault(f"{needed_kind} {number}", places[0])


def _can_hold(place: str, object_kind: str) -> bool:
    return kind(place) not in OPENABLE if object_kind in LAMPS else object_kind in HOLDS[kind(place)]


def _missing(goal: Goal, places: set[str], things: list[str]) -> str:
    """Return what the goal needs and the world does not have, given the kinds in it; "" if nothing."""
    verb, station = TREATMENTS.get(goal.family, ("", ""))
    if things.count(goal.target) < goal.target_count:
        return goal.target
    if goal.lamp:
        return "" if goal.lamp in things else goal.lamp
    if verb and (station not in places or goal.target not in AFFORDS[f"{verb}able"]):
        return f"way to {verb} {goal.target}"
    is_possible = goal.parent in places and goal.target in HOLDS[goal.parent]
    return "" if is_possible else f"{goal.parent} that holds {goal.target}"


def _is_solved(goal: Goal, placement: dict[str, str]) -> bool:
    """Return True if the targets lie from the start where the goal wants them.

    A goal that asks for a treatment or a lamp cannot be solved from the start.
    """
    delivered = [
        place
        for thing, place in placement.items()
        if kind(thing) == goal.target and kind(place) == goal.parent
    ]
    if goal.target_count == 2:
        return len(delivered) > len(set(delivered))
    return goal.family == "pick_and_place_simple" and bool(delivered)


def _initial_placement(dreamed: Trajectory, receptacles: set[str]) -> dict[str, str]:
    """Return object -> where the dream first mentions it.

    Only objects that the engine knows, in places of the room.
    """
    placement: dict[str, str] = {}
    mentioned: set[str] = set()
    for state in dreamed.states[1:]:
        parsed = read_state(state)
        for thing in _mentioned_things(parsed):
            is_object = kind(thing) in PORTABLE or kind(thing) in LAMPS
            is_first = thing not in mentioned and parsed.event != "moved"
            if is_first and is_object and parsed.place in receptacles:
                placement[thing] = parsed.place
            mentioned.add(thing)
    return placement


def _mentioned_things(parsed: ParsedState) -> tuple[str, ...]:
    if parsed.event == "at":
        return parsed.contents
    return (parsed.thing,) if parsed.event in ("took", "lit", "moved") else ()
