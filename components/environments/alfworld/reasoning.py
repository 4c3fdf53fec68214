"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), from what the agent could know.

It tracks what success depends on. First where the agent is and what it holds; then what the action needs, one need after the
other up to the first that does not hold, and the verdict; then whether the place is new or known; and for actions that may
reach the goal, what is wanted beside what was got, in the same form, and the conclusion. A small model judges well between
two phrases that stand side by side and badly over a distance, so the facts are written down before each verdict: the places of
the asked kind, what lies in the place, where the lamp was seen. Examples:

    at desk 1, hold nothing. shelf 1 shelf 2: a place, elsewhere. works, new
    at desk 1, hold nothing. none: no such place. fails
    at desk 1, hold mug 2. hand full. fails
    at cabinet 3, hold nothing. hand free, there, open, cup 1 pan 2: not in it. fails
    at cabinet 3, hold mug 1. held, there, open, belongs there. works. want hot mug in cabinet, got plain mug in cabinet. not done
    at shelf 1, hold mug 1. held, there, belongs there. works. want two mug in cabinet, got one mug in shelf. not done
    at desk 1, hold book 2. a switch, desk 1: here. works. want book under desklamp, got book under desklamp. done
"""

from __future__ import annotations

from components.environments.alfworld.games import kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, learn, read_goal
from components.environments.alfworld.states import read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """The reasoning for one transition; its conclusion is always the engine's own outcome."""
    known, goal, seen = learn(trajectory), read_goal(trajectory.task.instruction), read_state(next_state)
    facts = f"{'at ' + known.place if known.place else 'in the room'}, hold {known.holding or 'nothing'}. "
    needs = known.needs(action)
    said, met = ", ".join(need.words for need in needs), all(need.holds for need in needs)
    if seen.event == "failed":
        return f"{facts}{'no effect' if met else said}. fails"
    if said and met:
        facts += f"{said}. "
    after = learn(trajectory)
    after.see(next_state)
    text = f"{facts}works{_novelty(known, action)}"
    check = _check(goal, action, after) if goal else ""
    return f"{text}. {check}. {'done' if reward > 0.5 else 'not done'}" if check else text


def _novelty(known: Knowledge, action: str) -> str:
    verb, _, rest = action.partition(" ")
    if verb not in ("go", "open"):
        return ""
    place = rest.removeprefix("to ")
    seen = known.known(place) if verb == "go" else place in known.contents
    return ", known" if seen else ", new"


def _check(goal: Goal, action: str, after: Knowledge) -> str:
    """What is wanted beside what was got, for actions that may reach the goal; else ""."""
    if goal.lamp:
        return _check_look(goal, action, after)
    if not action.startswith("move "):
        return ""
    thing, _, place = action.removeprefix("move ").partition(" to ")
    wanted = got = ""
    if goal.verb:
        wanted = f"{RESULT[goal.verb]} "
        got = wanted if RESULT[goal.verb] in after.treated.get(thing, set()) else "plain "
    if goal.family == "pick_two_obj_and_place":
        alike = [other for other in after.contents.get(place, ()) if kind(other) == kind(thing)]
        wanted, got = "two ", "two " if len(alike) > 1 else "one "
    return f"want {wanted}{goal.target} in {goal.parent}, got {got}{kind(thing)} in {kind(place)}"


def _check_look(goal: Goal, action: str, after: Knowledge) -> str:
    if action.split(" ")[0] not in ("use", "take", "go"):
        return ""
    held = kind(after.holding) if after.holding else "nothing"
    lit = next((kind(lamp) for lamp in sorted(after.lit) if after.lamps.get(lamp) == after.place), "nothing")
    if action.startswith("go") and "nothing" in (held, lit):
        return ""
    return f"want {goal.target} under {goal.lamp}, got {held} under {lit}"
