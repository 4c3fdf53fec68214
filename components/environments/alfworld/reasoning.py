"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), from what the agent could know.

It tracks what success depends on. First where the agent is and what it holds; then what the action needs, one
need after the other up to the first that does not hold, and the verdict; then whether the place is new or
known; and for actions that may reach the goal, what was got beside what is wanted, up to the first that
differs, and the conclusion. A small model judges well between words that stand side by side and badly over a
distance, so the facts are written down before each verdict: the places of the room, what lies in the place,
where the lamp was seen. What has changed since it was seen is put together in the open: the last listing,
what left, what came, and the result. All comparisons have one form, that of the backbone's exercise
(`language/comparing.py`). Examples:

    at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, new
    at desk 1, hold mug 2. bed 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, known cup 1 mug 2,
    less mug 2, now cup 1 at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 2: no. fails at desk 1,
    hold hot mug 2. hand full. fails at cabinet 3, hold nothing. hand free, cabinet 3 want cabinet 3: yes,
    open, cup 1 pan 2, less cup 1, now pan 2 want cup 1: no. fails at bed 3, hold mug 1. mug 1 want mug 1:
    yes, bed 3 want bed 3: yes, mug in bed belongs. works. mug want pen: no. not done at safe 1, hold cd 2. cd
    2 want cd 2: yes, safe 1 want safe 1: yes, open, cd in safe belongs. works. cd want cd: yes, there cd 1
    pen 1,
        cd pen want cd: yes, safe want safe: yes. done
    at bed 3, hold hot mug 1. mug 1 want mug 1: yes, bed 3 want bed 3: yes, mug in bed belongs. works. mug
    want mug: yes, hot want cool: no.
        not done
    at desk 1, hold book 2. a switch, desklamp 1 pen 1 want desklamp 1: yes. works. desklamp want desklamp:
    yes, book want book: yes. done
"""

from __future__ import annotations

from typing import NamedTuple

from components.environments.alfworld.games import kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, learn, read_goal
from components.environments.alfworld.premise import homes
from components.environments.alfworld.states import Seen, read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """The reasoning for one transition; its conclusion is always the engine's own outcome."""
    known, goal, seen = learn(trajectory), read_goal(trajectory.task.instruction), read_state(next_state)
    held = (
        " ".join([*sorted(known.treated.get(known.holding, ())), known.holding])
        if known.holding
        else "nothing"
    )
    facts = f"{'at ' + known.place if known.place else 'in the room'}, hold {held}. "
    needs = known.needs(action)
    said, met = ", ".join(need.words for need in needs), all(need.holds for need in needs)
    if seen.event == "failed":
        return f"{facts}{'no effect' if met else said}. fails"
    if said and met:
        facts += f"{said}. "
    after = learn(trajectory)
    after.see(next_state)
    text = f"{facts}works{_novelty(known, goal, action, seen, trajectory.premise)}{_result(after, action)}"
    check = _check(goal, action, known, after) if goal else ""
    return f"{text}. {check}. {'done' if reward > 0.5 else 'not done'}" if check else text


def _novelty(known: Knowledge, goal: Goal | None, action: str, seen: Seen, premise: str) -> str:
    """Whether a place shows something new; what lay there and what changed since, or that what is to be
    brought there is not there yet.
    """
    verb, _, rest = action.partition(" ")
    if verb not in ("go", "open"):
        return ""
    place = rest.removeprefix("to ")
    if not (known.known(place) if verb == "go" else place in known.contents):
        there = {kind(thing) for thing in seen.contents}
        if not goal or seen.door == "closed":
            return ", new"
        lacks = f", lacks {goal.target}" if goal.parent == kind(place) and goal.target not in there else ""
        return f", new{lacks}{_decided(premise, place)}"
    door = known.doors.get(place, "") if verb == "go" else "open"
    return f", known {door if door == 'closed' else f'{door} {known.recounted(place)}'.strip()}"


def _decided(premise: str, place: str) -> str:
    """Where the dream has put what the goal needs, beside the place looked into, and what must therefore be
    seen there.
    """
    decided = homes(premise)
    pairs = (
        f", {thing} {home} want {place}: {'yes' if home == place else 'no'}"
        for thing, home in decided.items()
    )
    here = [thing for thing, home in decided.items() if home == place]
    return "".join(pairs) + (f", with {' '.join(here)}" if here else "")


def _result(after: Knowledge, action: str) -> str:
    """What the thing in the hand is like now that it has been treated, or was before it was laid down."""
    treated = (
        after.treated.get(after.holding)
        if action.split(" ")[0] in ("heat", "cool", "clean", "take")
        else None
    )
    return f", now {' '.join(sorted(treated))} {after.holding}" if treated else ""


def _check(goal: Goal, action: str, known: Knowledge, after: Knowledge) -> str:
    """What was got beside what is wanted, for actions that may reach the goal; else ""."""
    pairs = _pairs_of_look(goal, action, after) if goal.lamp else _pairs_of_move(goal, action, known)
    differing = next((place for place, pair in enumerate(pairs) if not pair.holds), len(pairs))
    return ", ".join(
        f"{p.evidence}{p.got} want {p.wanted}: {'yes' if p.holds else 'no'}" for p in pairs[: differing + 1]
    )


class _Pair(NamedTuple):
    """What was got, a word or several, and the one that is wanted; `evidence` stands before them."""

    got: str
    wanted: str
    evidence: str = ""

    @property
    def holds(self) -> bool:
        return self.wanted == self.got or self.wanted in self.got.split(" ")


def _pairs_of_move(goal: Goal, action: str, known: Knowledge) -> list[_Pair]:
    """What is laid down, what it is like, what of its kind lies there already if two are wanted, and
    where.
    """
    if not action.startswith("move "):
        return []
    thing, _, place = action.removeprefix("move ").partition(" to ")
    pairs = [_Pair(kind(thing), goal.target)]
    if goal.verb:
        wanted, treated = RESULT[goal.verb], known.treated.get(thing, set())
        pairs.append(_Pair(wanted if wanted in treated else " ".join(sorted(treated)) or "plain", wanted))
    if goal.family == "pick_two_obj_and_place":
        there = " ".join(dict.fromkeys(kind(other) for other in known.inside(place))) or "nothing"
        pairs.append(_Pair(there, goal.target, f"there {known.recounted(place)}, "))
    return [*pairs, _Pair(kind(place), goal.parent)]


def _pairs_of_look(goal: Goal, action: str, after: Knowledge) -> list[_Pair]:
    """The lamp that is turned on now, and what is held; or what is held, and whether a lamp that was turned
    on stands here, in the words of the state that told it. Each begins with what the action is about, so that
    a small model does not begin one and end the other.
    """
    verb, _, lamp = action.partition(" ")
    if verb not in ("use", "take", "go"):
        return []
    held = _Pair(kind(after.holding) if after.holding else "nothing", goal.target)
    if verb == "use":
        return [_Pair(kind(lamp), goal.lamp), held]
    lit = next((lamp for lamp in sorted(after.lit) if lamp in after.lamps and kind(lamp) == goal.lamp), "")
    return [
        held,
        _Pair(after.lamps[lit], after.place, f"Turned on {lit} at ")
        if lit
        else _Pair("nothing", after.place, "Turned on "),
    ]
