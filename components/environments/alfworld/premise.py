"""The hidden state that decides a task: where the things lie that its goal needs.

A premise is a list of things and places, such as `mug 1 desk 1` or `book 2 shelf 1, desklamp 1 desk 1`. Of a
real episode it is read afterwards, from what the states have shown. A dream samples it before its first step
and keeps to it.
"""

from __future__ import annotations

import re
from collections import Counter

from components.environments.alfworld.games import HOLDS, LAMPS, OPENABLE, kind
from components.environments.alfworld.goals import Goal, read_goal
from components.environments.alfworld.states import read_state
from components.records import Task, Trajectory

_HOME = re.compile(r"^(\w+ \d+) (\w+ \d+)$")


def premise(trajectory: Trajectory) -> str:
    """Return where the things that the goal needs lay before anyone acted.

    Empty where the states have not shown all of them.
    """
    goal = read_goal(trajectory.task.instruction)
    if goal is None:
        return ""
    homes: dict[str, str] = {}
    mentioned: set[str] = set()
    for state in trajectory.states[1:]:
        parsed = read_state(state)
        for thing in parsed.contents if parsed.event == "at" else ():
            if thing not in mentioned:
                homes.setdefault(thing, parsed.place)
        mentioned |= {thing for thing in (parsed.thing, *parsed.contents) if thing}
    return ", ".join(f"{thing} {place}" for thing, place in _first_needed(goal, homes).items())


def _first_needed(goal: Goal, homes: dict[str, str]) -> dict[str, str]:
    """Return the first things of the kinds that the goal needs, with their places; empty if too few."""
    needed_homes: dict[str, str] = {}
    for name, count in needed_kinds(goal).items():
        things = [thing for thing in homes if kind(thing) == name][:count]
        if len(things) < count:
            return {}
        needed_homes |= {thing: homes[thing] for thing in things}
    return needed_homes


def needed_kinds(goal: Goal) -> dict[str, int]:
    """Return the kinds of things that `goal` needs, and how many of each."""
    return {goal.target: goal.target_count} | ({goal.lamp: 1} if goal.lamp else {})


def read_premise(text: str) -> dict[str, str]:
    """Return thing -> place of a premise, without the parts that cannot be parsed."""
    matches = (_HOME.match(part.strip()) for part in text.split(","))
    return {match[1]: match[2] for match in matches if match}


def objection(task: Task, text: str) -> str:
    """Return why `text` cannot be the premise of `task`, judged by the task's text and room; "" if it can."""
    goal = read_goal(task.instruction)
    room = set(read_state(task.initial_state).contents)
    homes = read_premise(text)
    if goal is None or len(homes) != len(text.split(",")) or not homes:
        return "malformed"
    if dict(Counter(kind(thing) for thing in homes)) != needed_kinds(goal):
        return "not what the goal needs"
    if set(homes.values()) - room:
        return "no such place"
    if not all(_can_hold(place, thing) for thing, place in homes.items()):
        return "does not belong there"
    delivered = sum(
        kind(thing) == goal.target and kind(place) == goal.parent for thing, place in homes.items()
    )
    is_done = not goal.verb and not goal.lamp and delivered >= goal.target_count
    return "done from the start" if is_done else ""


def _can_hold(place: str, thing: str) -> bool:
    if kind(thing) in LAMPS:
        return kind(place) not in OPENABLE
    return kind(thing) in HOLDS.get(kind(place), ())
