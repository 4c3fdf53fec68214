"""What a state contradicts in the states before it.

Objected to are: the same thing in two places, a listing that changed by itself, a full hand that is suddenly
empty, a goal that would have been reached before anyone acted; and listings that the engine never writes,
with a place among the things or out of order. Neither hidden state nor a rule of the game is used: whether an
action should have worked is not judged here.
"""

from __future__ import annotations

from components.environments.alfworld.games import PLACES, kind
from components.environments.alfworld.goals import Goal, read_goal
from components.environments.alfworld.knowledge import Knowledge, read_knowledge
from components.environments.alfworld.premise import read_premise
from components.environments.alfworld.states import ParsedState, read_state
from components.records import Trajectory


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """Return what in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    knowledge = read_knowledge(trajectory)
    parsed = read_state(next_state)
    if not parsed.event or parsed.event == "room":
        return "it is no state after an action"
    problem = _problem_of_hand(knowledge, parsed)
    if parsed.place and parsed.place not in knowledge.receptacles:
        problem = problem or f"the room has no {parsed.place}"
    if parsed.event == "at":
        goal = read_goal(trajectory.task.instruction)
        homes = read_premise(trajectory.premise)
        problem = (
            problem
            or _problem_of_listing(knowledge, parsed, homes)
            or _problem_of_goal(goal, knowledge, parsed)
        )
    return problem


def _problem_of_hand(knowledge: Knowledge, parsed: ParsedState) -> str:
    before = knowledge.holding
    if parsed.event == "took":
        contents = knowledge.contents.get(parsed.place)
        if before:
            return "it took with a full hand"
        if contents is not None and parsed.thing not in contents:
            return f"no {parsed.thing} lay there"
        return _difference(parsed.holding, parsed.thing)
    if parsed.event == "moved":
        return _difference(parsed.thing, before) or _difference(parsed.holding, "")
    treatments = knowledge.treated.get(before, set())
    if parsed.holding == before and parsed.event != "treated" and set(parsed.treated) != treatments:
        return f"{before} was treated by itself"
    return _difference(parsed.holding, before)


def _difference(actual: str, expected: str) -> str:
    if actual == expected:
        return ""
    return f"in the hand is {actual or 'nothing'} and was {expected or 'nothing'}"


def _problem_of_listing(knowledge: Knowledge, parsed: ParsedState, homes: dict[str, str]) -> str:
    """Return what is wrong with a listing, given the `homes` of a premise."""
    if len(set(parsed.contents)) < len(parsed.contents):
        return "a thing is listed twice"
    elsewhere = {
        thing: place
        for place, things in knowledge.contents.items()
        if place != parsed.place
        for thing in things
    }
    if parsed.place not in knowledge.contents and parsed.door != "closed":
        open_homes = {thing: place for thing, place in homes.items() if place not in knowledge.contents}
        if problem := _problem_of_first_listing(parsed, open_homes):
            return problem
        elsewhere |= {thing: place for thing, place in open_homes.items() if place != parsed.place}
    twice = next((thing for thing in parsed.contents if thing in elsewhere or thing == knowledge.holding), "")
    if twice:
        return f"{twice} is {f'at {elsewhere[twice]}' if twice in elsewhere else 'in the hand'}"
    before = knowledge.contents.get(parsed.place)
    has_changed = parsed.door != "closed" and before is not None and before != set(parsed.contents)
    return f"{parsed.place} changed by itself" if has_changed else ""


def _problem_of_first_listing(parsed: ParsedState, open_homes: dict[str, str]) -> str:
    """Return what is wrong with a place that is seen for the first time.

    Args:
        open_homes: thing -> place of the premise, for the places that were not seen yet.
    """
    if list(parsed.contents) != sorted(parsed.contents):
        return "what lies there from the start is listed in the order of its names"
    inner_place = next((thing for thing in parsed.contents if kind(thing) in PLACES), "")
    if inner_place:
        return f"{inner_place} is a place and lies in none"
    things = (thing for thing, place in open_homes.items() if place == parsed.place)
    missing = next((thing for thing in things if thing not in parsed.contents), "")
    return f"{missing} should be there" if missing else ""


def _problem_of_goal(goal: Goal | None, knowledge: Knowledge, parsed: ParsedState) -> str:
    """Return an objection to a place, seen for the first time, that holds what the goal wants there.

    Nothing would be left to do.
    """
    if not goal or kind(parsed.place) != goal.parent or parsed.place in knowledge.contents or goal.verb:
        return ""
    count = sum(kind(thing) == goal.target for thing in parsed.contents)
    return f"{goal.target} is there from the start" if count >= goal.target_count else ""
