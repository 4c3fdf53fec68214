"""How far an episode has come: the share of the steps towards its goal that its states show as done.

The steps are those that every solution takes: find the target, take it, treat it if the goal asks for it,
find the lamp and turn it on, or bring the target to its place. With two targets each counts twice. A target
that was put down elsewhere counts as found and taken.
"""

from __future__ import annotations

from components.environments.alfworld.games import kind
from components.environments.alfworld.goals import RESULT, Goal, read_goal
from components.environments.alfworld.knowledge import Knowledge
from components.environments.alfworld.states import read_state
from components.records import Trajectory


def progress(trajectory: Trajectory) -> float:
    """Return the progress from 0.0 to 1.0: 1.0 for a success, below 1.0 for all else.

    It is 0.0 where the instruction cannot be parsed.
    """
    goal = read_goal(trajectory.task.instruction)
    if trajectory.success or goal is None:
        return float(trajectory.success)
    knowledge = Knowledge()
    listed_targets: set[str] = set()
    taken_targets: set[str] = set()
    for state in trajectory.states:
        knowledge.add_state(state)
        parsed = read_state(state)
        if parsed.event == "at":
            listed_targets |= {thing for thing in parsed.contents if kind(thing) == goal.target}
        if parsed.event == "took" and kind(parsed.thing) == goal.target:
            taken_targets.add(parsed.thing)
    done, total = _steps(goal, knowledge, listed_targets, taken_targets)
    return done / (total + 1)  # all steps without success is still not the whole way


def _steps(
    goal: Goal, knowledge: Knowledge, listed_targets: set[str], taken_targets: set[str]
) -> tuple[int, int]:
    """Return how many steps are done, and how many there are."""
    count = goal.target_count
    done = min(count, len(listed_targets)) + min(count, len(taken_targets))
    total = 2 * count
    if goal.verb:
        done += any(
            RESULT[goal.verb] in treatments
            for thing, treatments in knowledge.treated.items()
            if kind(thing) == goal.target
        )
        total += 1
    if goal.lamp:
        is_lit = any(kind(lamp) == goal.lamp for lamp in knowledge.lit)
        is_listed = is_lit or any(kind(lamp) == goal.lamp for lamp in knowledge.lamps)
        return done + is_lit + is_listed, total + 2
    delivered = [
        thing
        for place, things in knowledge.contents.items()
        if kind(place) == goal.parent
        for thing in things & taken_targets
    ]
    return done + min(count, len(delivered)), total + count
