"""What a state contradicts in the states before it: the same thing in two places, a listing that changed by
itself, a full hand that is empty, a goal that would have been reached before anyone acted; and lists that the
engine never writes, with a place among the things or out of order. Nothing hidden is asked, and no rule of
the game: whether an action should have worked is not judged here.
"""

from __future__ import annotations

from components.environments.alfworld.games import PLACES, kind
from components.environments.alfworld.knowledge import Goal, Knowledge, learn, read_goal
from components.environments.alfworld.premise import homes
from components.environments.alfworld.states import Seen, read_state
from components.records import Trajectory


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """What in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    known, seen = learn(trajectory), read_state(next_state)
    if not seen.event or seen.event == "room":
        return "it is no state after an action"
    found = _of_the_hand(known, seen)
    if seen.place and seen.place not in known.receptacles:
        found = found or f"the room has no {seen.place}"
    if seen.event == "at":
        goal, decided = read_goal(trajectory.task.instruction), homes(trajectory.premise)
        found = found or _of_a_listing(known, seen, decided) or _of_the_goal(goal, known, seen)
    return found


def _of_the_hand(known: Knowledge, seen: Seen) -> str:
    before, treated = known.holding, known.treated.get(known.holding, set())
    if seen.event == "took":
        lies = known.contents.get(seen.place)
        missing = lies is not None and seen.thing not in lies
        return (
            "it took with a full hand"
            if before
            else f"no {seen.thing} lay there"
            if missing
            else _differs(seen.holding, seen.thing)
        )
    if seen.event == "moved":
        return _differs(seen.thing, before) or _differs(seen.holding, "")
    if seen.holding == before and seen.event != "treated" and set(seen.treated) != treated:
        return f"{before} was treated by itself"
    return _differs(seen.holding, before)


def _differs(found: str, wanted: str) -> str:
    return "" if found == wanted else f"in the hand is {found or 'nothing'} and was {wanted or 'nothing'}"


def _of_a_listing(known: Knowledge, seen: Seen, decided: dict[str, str]) -> str:
    if len(set(seen.contents)) < len(seen.contents):
        return "a thing is listed twice"
    elsewhere = {
        thing: place for place, things in known.contents.items() if place != seen.place for thing in things
    }
    if seen.place not in known.contents and seen.door != "closed":
        if list(seen.contents) != sorted(seen.contents):
            return "what lies there from the start is listed in the order of its names"
        place = next((thing for thing in seen.contents if kind(thing) in PLACES), "")
        if place:
            return f"{place} is a place and lies in none"
        unseen = {thing: place for thing, place in decided.items() if place not in known.contents}
        absent = next(
            (thing for thing, place in unseen.items() if place == seen.place and thing not in seen.contents),
            "",
        )
        if absent:
            return f"{absent} should be there"
        elsewhere |= {thing: place for thing, place in unseen.items() if place != seen.place}
    twice = next((thing for thing in seen.contents if thing in elsewhere or thing == known.holding), "")
    if twice:
        return f"{twice} is {f'at {elsewhere[twice]}' if twice in elsewhere else 'in the hand'}"
    before = known.contents.get(seen.place)
    return (
        f"{seen.place} changed by itself"
        if seen.door != "closed" and before is not None and before != set(seen.contents)
        else ""
    )


def _of_the_goal(goal: Goal | None, known: Knowledge, seen: Seen) -> str:
    """A place seen for the first time holds from the start what the goal wants there, so nothing would be
    left to do.
    """
    if not goal or kind(seen.place) != goal.parent or seen.place in known.contents or goal.verb:
        return ""
    there = sum(kind(thing) == goal.target for thing in seen.contents)
    return (
        f"{goal.target} is there from the start"
        if there >= (2 if goal.family == "pick_two_obj_and_place" else 1)
        else ""
    )
