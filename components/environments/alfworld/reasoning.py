"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), from what the agent could know.

It tracks what success depends on. First where the agent is and what it holds; then what the action needs, one need after the
other up to the first that does not hold, and the verdict; then whether the place is new or known; and for actions that may
reach the goal, what was got beside what is wanted, up to the first that differs, and the conclusion. A small model judges well
between words that stand side by side and badly over a distance, so the facts are written down before each verdict: the places
of the room, what lies in the place, where the lamp was seen. All comparisons have one form, that of the backbone's exercise
(`language/comparing.py`). Coming back to a place, what was put there or taken from it since stands before its listing. Examples:

    at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, new
    at desk 1, hold mug 2. bed 1 desk 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, known, less mug 2
    at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 2: no. fails
    at desk 1, hold mug 2. hand full. fails
    at cabinet 3, hold nothing. hand free, cabinet 3 want cabinet 3: yes, open, cup 1 pan 2 want mug 1: no. fails
    at bed 3, hold mug 1. mug 1 want mug 1: yes, bed 3 want bed 3: yes, belongs there. works. mug want pen: no. not done
    at desk 1, hold book 2. a switch, desk 1 want desk 1: yes. works. book want book: yes, desklamp want desklamp: yes. done
"""

from __future__ import annotations

from components.environments.alfworld.games import kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, learn, read_goal
from components.environments.alfworld.states import Seen, read_state
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
    text = f"{facts}works{_novelty(known, goal, action, seen)}"
    check = _check(goal, action, after) if goal else ""
    return f"{text}. {check}. {'done' if reward > 0.5 else 'not done'}" if check else text


def _novelty(known: Knowledge, goal: Goal | None, action: str, seen: Seen) -> str:
    """Whether a place shows something new; what lay there changed since, and that what is to be brought there is not there yet."""
    verb, _, rest = action.partition(" ")
    if verb not in ("go", "open"):
        return ""
    place = rest.removeprefix("to ")
    if not (known.known(place) if verb == "go" else place in known.contents):
        there = {kind(thing) for thing in seen.contents}
        lacks = goal and goal.parent == kind(place) and seen.door != "closed" and goal.target not in there
        return f", new, lacks {goal.target}" if goal and lacks else ", new"
    more, less = known.changed(place)
    return ", known" + (f", more {' '.join(more)}" if more else "") + (f", less {' '.join(less)}" if less else "")


def _check(goal: Goal, action: str, after: Knowledge) -> str:
    """What was got beside what is wanted, for actions that may reach the goal; else ""."""
    pairs = _pairs_of_look(goal, action, after) if goal.lamp else _pairs_of_move(goal, action, after)
    differing = next((place for place, (got, wanted) in enumerate(pairs) if got != wanted), len(pairs))
    return ", ".join(f"{got} want {wanted}: {'yes' if got == wanted else 'no'}" for got, wanted in pairs[: differing + 1])


def _pairs_of_move(goal: Goal, action: str, after: Knowledge) -> list[tuple[str, str]]:
    if not action.startswith("move "):
        return []
    thing, _, place = action.removeprefix("move ").partition(" to ")
    pairs = [(kind(thing), goal.target)]
    if goal.verb:
        treated = RESULT[goal.verb] in after.treated.get(thing, set())
        pairs.append((RESULT[goal.verb] if treated else "plain", RESULT[goal.verb]))
    if goal.family == "pick_two_obj_and_place":
        alike = [other for other in after.contents.get(place, ()) if kind(other) == kind(thing)]
        pairs.append(("two" if len(alike) > 1 else "one", "two"))
    return [*pairs, (kind(place), goal.parent)]


def _pairs_of_look(goal: Goal, action: str, after: Knowledge) -> list[tuple[str, str]]:
    if action.split(" ")[0] not in ("use", "take", "go"):
        return []
    held = kind(after.holding) if after.holding else "nothing"
    lit = next((kind(lamp) for lamp in sorted(after.lit) if after.lamps.get(lamp) == after.place), "nothing")
    if action.startswith("go") and "nothing" in (held, lit):
        return []
    return [(held, goal.target), (lit, goal.lamp)]
