"""How far an episode has come: the share of the steps towards its goal that its states show as done.

The steps are those that every solution takes: find what is wanted, take it, treat it if it is to be treated,
find the lamp and turn it on, or bring the thing to its place; with two things wanted, twice. A thing that was
put down elsewhere counts as found and taken.
"""

from __future__ import annotations

from components.environments.alfworld.games import kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, read_goal
from components.environments.alfworld.states import read_state
from components.records import Trajectory


def progress(trajectory: Trajectory) -> float:
    """Between 0.0 and 1.0; 1.0 of a success, below 1.0 of all else; 0.0 where the instruction cannot be
    read.
    """
    goal = read_goal(trajectory.task.instruction)
    if trajectory.success or goal is None:
        return float(trajectory.success)
    known, found, taken = Knowledge(), set(), set()
    for state in trajectory.states:
        known.see(state)
        seen = read_state(state)
        found |= {thing for thing in seen.contents if seen.event == "at" and kind(thing) == goal.target}
        taken |= {seen.thing} if seen.event == "took" and kind(seen.thing) == goal.target else set()
    done, wanted = _steps(goal, known, found, taken)
    return done / (wanted + 1)  # all steps done and no success: still not the whole way


def _steps(goal: Goal, known: Knowledge, found: set[str], taken: set[str]) -> tuple[int, int]:
    """How many steps are done, and how many there are."""
    count = 2 if goal.family == "pick_two_obj_and_place" else 1
    done, wanted = min(count, len(found)) + min(count, len(taken)), 2 * count
    if goal.verb:
        treated = any(
            RESULT[goal.verb] in how for thing, how in known.treated.items() if kind(thing) == goal.target
        )
        done, wanted = done + treated, wanted + 1
    if goal.lamp:
        lit = any(kind(lamp) == goal.lamp for lamp in known.lit)
        return done + lit + (lit or any(kind(lamp) == goal.lamp for lamp in known.lamps)), wanted + 2
    placed = [
        thing
        for place, things in known.contents.items()
        if kind(place) == goal.parent
        for thing in things & taken
    ]
    return done + min(count, len(placed)), wanted + count
