"""What of the hidden world decides a task: where the things lie that its goal needs.

A premise is a list of things and places, such as `mug 1 desk 1` or `book 2 shelf 1, desklamp 1 desk 1`. Of a
real episode it is read afterwards, from what the states have shown; a dream decides it before its first step
and keeps to it.
"""

from __future__ import annotations

import re

from components.environments.alfworld.games import HOLDS, LAMPS, OPENABLE, kind
from components.environments.alfworld.knowledge import Goal, read_goal
from components.environments.alfworld.states import read_state
from components.records import Task, Trajectory

_HOME = re.compile(r"^(\w+ \d+) (\w+ \d+)$")


def premise(trajectory: Trajectory) -> str:
    """Where what the goal needs lay before anyone acted; "" where the states have not shown all of it."""
    goal = read_goal(trajectory.task.instruction)
    if goal is None:
        return ""
    found: dict[str, str] = {}
    touched: set[str] = set()
    for state in trajectory.states[1:]:
        seen = read_state(state)
        for thing in seen.contents if seen.event == "at" else ():
            if thing not in touched:
                found.setdefault(thing, seen.place)
        touched |= {thing for thing in (seen.thing, *seen.contents) if thing}
    chosen = _chosen(goal, found)
    return ", ".join(f"{thing} {place}" for thing, place in chosen.items())


def _chosen(goal: Goal, found: dict[str, str]) -> dict[str, str]:
    """The first things found of the kinds needed, and their places; empty if there are not enough."""
    chosen: dict[str, str] = {}
    for name, count in needed(goal).items():
        things = [thing for thing in found if kind(thing) == name][:count]
        if len(things) < count:
            return {}
        chosen |= {thing: found[thing] for thing in things}
    return chosen


def needed(goal: Goal) -> dict[str, int]:
    """The kinds of things that `goal` needs, and how many of each."""
    return {goal.target: 2 if goal.family == "pick_two_obj_and_place" else 1} | (
        {goal.lamp: 1} if goal.lamp else {}
    )


def homes(text: str) -> dict[str, str]:
    """Thing -> place of a premise; parts that cannot be read are left out."""
    pairs = (_HOME.match(part.strip()) for part in text.split(","))
    return {pair[1]: pair[2] for pair in pairs if pair}


def objection(task: Task, text: str) -> str:
    """Why `text` cannot be the premise of `task`, judged by the task's text and room; "" if it can."""
    goal, room, places = (
        read_goal(task.instruction),
        set(read_state(task.initial_state).contents),
        homes(text),
    )
    if goal is None or len(places) != len(text.split(",")) or not places:
        return "malformed"
    if {
        name: [kind(thing) for thing in places].count(name) for name in {kind(thing) for thing in places}
    } != needed(goal):
        return "not what the goal needs"
    if set(places.values()) - room:
        return "no such place"
    if any(place not in _able(thing, room) for thing, place in places.items()):
        return "does not belong there"
    there = [
        place for thing, place in places.items() if kind(thing) == goal.target and kind(place) == goal.parent
    ]
    done = (
        not goal.verb and not goal.lamp and len(there) > (1 if goal.family == "pick_two_obj_and_place" else 0)
    )
    return "done from the start" if done else ""


def _able(thing: str, room: set[str]) -> set[str]:
    lamp = kind(thing) in LAMPS
    return {
        place
        for place in room
        if (kind(place) not in OPENABLE if lamp else kind(thing) in HOLDS.get(kind(place), ()))
    }
