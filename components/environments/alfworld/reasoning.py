"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), from what the agent could know.

It tracks what success depends on. First where the agent is and what it holds, then whether the action can work, with the
obstacle if not; then whether the place is new or known; and for actions that may reach the goal, each condition by itself
and the conclusion. A small model judges well between two words that stand side by side ("at desk 1", "take ... from shelf
2") and badly over a distance, so the facts are written down before the verdict. Examples:

    at desk 1, hold nothing. works, new
    at desk 1, hold mug 2. fails, hand full
    at cabinet 3, hold mug 1. works. want hot mug in cabinet: mug yes, hot no, cabinet yes. not done
    at shelf 1, hold mug 1. works. want two mug in cabinet: mug yes, cabinet yes, second yes. done
    at desk 1, hold book 2. works. want book under desklamp: held yes, lit yes. done
"""

from __future__ import annotations

from components.environments.alfworld.games import kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, learn, read_goal
from components.environments.alfworld.states import read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """The reasoning for one transition; its conclusion is always the engine's own outcome."""
    known, goal, seen = learn(trajectory), read_goal(trajectory.task.instruction), read_state(next_state)
    facts = f"at {known.place or 'room'}, hold {known.holding or 'nothing'}. "
    if seen.event == "failed":
        return f"{facts}fails, {known.obstacle(action) or 'no effect'}"
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
    if goal.lamp:
        return _check_look(goal, action, after)
    if not action.startswith("move "):
        return ""
    thing, _, place = action.removeprefix("move ").partition(" to ")
    parts = [f"{goal.target} {_yes(kind(thing) == goal.target)}"]
    if goal.verb:
        parts.append(f"{RESULT[goal.verb]} {_yes(RESULT[goal.verb] in after.treated.get(thing, set()))}")
    parts.append(f"{goal.parent} {_yes(kind(place) == goal.parent)}")
    if goal.family == "pick_two_obj_and_place":
        inside = [o for o in after.contents.get(place, ()) if kind(o) == goal.target]
        parts.append(f"second {_yes(len(inside) > 1)}")
    return f"want {_wanted(goal)}: {', '.join(parts)}"


def _check_look(goal: Goal, action: str, after: Knowledge) -> str:
    if action.split(" ")[0] not in ("use", "take", "go"):
        return ""
    held = kind(after.holding) == goal.target if after.holding else False
    lit = any(kind(lamp) == goal.lamp and after.lamps.get(lamp) == after.place for lamp in after.lit)
    if action.startswith("go") and not (held and after.lit):
        return ""
    return f"want {goal.target} under {goal.lamp}: held {_yes(held)}, lit {_yes(lit)}"


def _wanted(goal: Goal) -> str:
    how = "two " if goal.family == "pick_two_obj_and_place" else f"{RESULT[goal.verb]} " if goal.verb else ""
    return f"{how}{goal.target} in {goal.parent}"


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"
