"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), and what an agent thinks.

Both use only what the agent could know. The reasoning tracks what success depends on, in this order:

1. where the agent is and what it holds;
2. what the action needs, one need after the other up to the first that does not hold, and the verdict;
3. whether the place is new or known;
4. for actions that may reach the goal: what was achieved, compared with what is asked, up to the first that
   differs, and the conclusion.

A small model compares words well that stand next to each other, and badly over a distance. So the facts are
written down before each verdict: the places of the room, what lies in the place, where the lamp was seen.
What has changed since a listing is written in full: the last listing, what left, what came, and the result.
All comparisons have one form, that of the backbone's exercises (`language/exercises/comparing.py`). Examples,
one a paragraph:

    at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, new

    at desk 1, hold mug 2. bed 1 shelf 1 want shelf 1: yes, desk 1 want shelf 1: no. works, known cup 1 mug 2,
    less mug 2, now cup 1

    at desk 1, hold nothing. bed 1 desk 1 shelf 1 want shelf 2: no. fails

    at desk 1, hold hot mug 2. hand full. fails

    at cabinet 3, hold nothing. hand free, cabinet 3 want cabinet 3: yes, open, cup 1 pan 2, less cup 1, now
    pan 2 want cup 1: no. fails

    at bed 3, hold mug 1. mug 1 want mug 1: yes, bed 3 want bed 3: yes, mug in bed belongs. works. mug want
    pen: no. not done

    at safe 1, hold cd 2. cd 2 want cd 2: yes, safe 1 want safe 1: yes, open, cd in safe belongs. works. cd
    want cd: yes, there cd 1 pen 1, cd pen want cd: yes, safe want safe: yes. done

    at bed 3, hold hot mug 1. mug 1 want mug 1: yes, bed 3 want bed 3: yes, mug in bed belongs. works. mug
    want mug: yes, hot want cool: no. not done

    at desk 1, hold book 2. a switch, desklamp 1 pen 1 want desklamp 1: yes. works. desklamp want desklamp:
    yes, book want book: yes. done
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from components.environments.alfworld.games import kind
from components.environments.alfworld.goals import RESULT, Goal, read_goal
from components.environments.alfworld.knowledge import (
    Knowledge,
    choose_destination,
    is_untreated,
    read_knowledge,
)
from components.environments.alfworld.premise import read_premise
from components.environments.alfworld.states import ParsedState, read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """Return the reasoning for one transition; its conclusion is always the engine's own outcome."""
    before = read_knowledge(trajectory)
    goal = read_goal(trajectory.task.instruction)
    parsed = read_state(next_state)
    facts = _position(before)
    needs = before.needs_of(action)
    conditions = ", ".join(need.text for need in needs)
    is_possible = all(need.holds for need in needs)
    if parsed.event == "failed":
        return f"{facts}{'no effect' if is_possible else conditions}. fails"
    if conditions and is_possible:
        facts += f"{conditions}. "
    after = read_knowledge(trajectory)
    after.add_state(next_state)
    novelty = _novelty(before, goal, action, parsed, trajectory.premise)
    text = f"{facts}works{novelty}{_treatment(after, action)}"
    check = _goal_check(goal, action, before, after) if goal else ""
    return f"{text}. {check}. {'done' if reward > 0.5 else 'not done'}" if check else text


def _position(knowledge: Knowledge) -> str:
    """Return where the agent is and what it holds."""
    thing = knowledge.holding
    text = " ".join([*sorted(knowledge.treated.get(thing, ())), thing]) if thing else "nothing"
    return f"{'at ' + knowledge.place if knowledge.place else 'in the room'}, hold {text}. "


def _novelty(before: Knowledge, goal: Goal | None, action: str, parsed: ParsedState, premise: str) -> str:
    """Return whether a place shows something new.

    For a known place: what lay there and what changed since. For a new one: whether what is to be brought
    there is not there yet.
    """
    verb, _, rest = action.partition(" ")
    if verb not in ("go", "open"):
        return ""
    place = rest.removeprefix("to ")
    if not (before.is_known(place) if verb == "go" else place in before.contents):
        kinds = {kind(thing) for thing in parsed.contents}
        if not goal or parsed.door == "closed":
            return ", new"
        lacks = f", lacks {goal.target}" if goal.parent == kind(place) and goal.target not in kinds else ""
        return f", new{lacks}{_premise_check(premise, place)}"
    door = before.doors.get(place, "") if verb == "go" else "open"
    return f", known {door if door == 'closed' else f'{door} {before.describe_contents(place)}'.strip()}"


def _premise_check(premise: str, place: str) -> str:
    """Return where the premise of a dream puts what the goal needs, compared with the place looked into.

    Then what must therefore be seen there.
    """
    homes = read_premise(premise)
    comparisons = (
        f", {thing} {home} want {place}: {'yes' if home == place else 'no'}" for thing, home in homes.items()
    )
    here = [thing for thing, home in homes.items() if home == place]
    return "".join(comparisons) + (f", with {' '.join(here)}" if here else "")


def _treatment(after: Knowledge, action: str) -> str:
    """Return what was done to the thing in the hand, after a treatment and after taking it."""
    if action.split(" ")[0] not in ("heat", "cool", "clean", "take"):
        return ""
    treatments = after.treated.get(after.holding)
    return f", now {' '.join(sorted(treatments))} {after.holding}" if treatments else ""


def _goal_check(goal: Goal, action: str, before: Knowledge, after: Knowledge) -> str:
    """Return what was achieved, compared with what is asked, for actions that may reach the goal; else ""."""
    pairs = _pairs_of_look(goal, action, after) if goal.lamp else _pairs_of_move(goal, action, before)
    differing = next((place for place, pair in enumerate(pairs) if not pair.holds), len(pairs))
    return ", ".join(
        f"{pair.evidence}{pair.actual} want {pair.target}: {'yes' if pair.holds else 'no'}"
        for pair in pairs[: differing + 1]
    )


class _Pair(NamedTuple):
    """What there is (a word or several) and the word that is asked for; `evidence` is written before them."""

    actual: str
    target: str
    evidence: str = ""

    @property
    def holds(self) -> bool:
        return self.target == self.actual or self.target in self.actual.split(" ")


def _pairs_of_move(goal: Goal, action: str, before: Knowledge) -> list[_Pair]:
    """Return the comparisons for a thing that is laid down.

    Its kind, what was done to it, what of its kind lies there already if two are asked for, and the place.
    """
    if not action.startswith("move "):
        return []
    thing, _, place = action.removeprefix("move ").partition(" to ")
    pairs = [_Pair(kind(thing), goal.target)]
    if goal.verb:
        result = RESULT[goal.verb]
        treatments = before.treated.get(thing, set())
        actual = result if result in treatments else " ".join(sorted(treatments)) or "plain"
        pairs.append(_Pair(actual, result))
    if goal.target_count == 2:
        kinds = " ".join(dict.fromkeys(kind(other) for other in before.things_in(place))) or "nothing"
        pairs.append(_Pair(kinds, goal.target, f"there {before.describe_contents(place)}, "))
    return [*pairs, _Pair(kind(place), goal.parent)]


def _pairs_of_look(goal: Goal, action: str, after: Knowledge) -> list[_Pair]:
    """Return the comparisons for looking at a thing under a lamp.

    After `use`: the lamp that is turned on now, and what is held. Otherwise: what is held, and whether a lamp
    that was turned on stands here, in the words of the state that showed it. Each begins with what the action
    is about, so that a small model does not begin one and end the other.
    """
    verb, _, lamp = action.partition(" ")
    if verb not in ("use", "take", "go"):
        return []
    hand = _Pair(kind(after.holding) if after.holding else "nothing", goal.target)
    if verb == "use":
        return [_Pair(kind(lamp), goal.lamp), hand]
    lit = next((lamp for lamp in sorted(after.lit) if lamp in after.lamps and kind(lamp) == goal.lamp), "")
    if lit:
        return [hand, _Pair(after.lamps[lit], after.place, f"Turned on {lit} at ")]
    return [hand, _Pair("nothing", after.place, "Turned on ")]


def think(goal: Goal, knowledge: Knowledge) -> str:
    """Return what an agent is trained to write before it acts.

    That is a note of what a later sub-goal needs, what it sees compared with what it wants, and the open
    sub-goal. The comparisons have the form of the backbone's exercises (`language/exercises/comparing.py`): a
    small model that only names its sub-goal walks past the thing that it looks for, or takes another one.
    Examples:

        find mug, new desk 1 shelf 1
        box cellphone want mug: no. find mug, new shelf 1
        box mug want mug: yes. mug 1 at desk 1
        mug want mug: yes, plain want hot: no. heat mug 1
        bread want mug: no. drop bread 1
        note pen 1 at desk 1 placed. pen want pen: yes. pen 2 to desk 1
        note desklamp 1 at desk 2. bed 1 book 1 want book: yes. book 1 at bed 1

    The notes are repeated in each thought, so that what matters later is never far back.
    """
    comparisons = ", ".join(
        f"{' '.join(kinds) or 'nothing'} want {target}: {'yes' if target in kinds else 'no'}"
        for kinds, target in _comparisons(goal, knowledge)
    )
    parts = (_note(goal, knowledge), comparisons, _sub_goal(goal, knowledge))
    return ". ".join(part for part in parts if part)


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Return `thought` behind one clause for each alternative (action, next state) that was executed.

    The text says why the thought is right and the alternatives are not (Early Experience's c). It is in the
    conditional, as by one who has not acted yet:

        go to desk 9 would fail. open drawer 1 would not help. find mug, new desk 1
    """
    clauses = [f"{action} would {_verdict(trajectory, state)}." for action, state in alternatives]
    return " ".join([*clauses, thought])


def _verdict(trajectory: Trajectory, state: str) -> str:
    parsed = read_state(state)
    if parsed.event == "failed" or state == trajectory.states[-1]:
        return "fail"
    return "lose what is held" if parsed.event == "moved" else "not help"


def _note(goal: Goal, knowledge: Knowledge) -> str:
    """Return what the sub-goal at hand does not need and a later one will.

    That is where the lamp stands, which target is placed, or where the next target lies.
    """
    holds_target = kind(knowledge.holding or "") == goal.target
    if goal.lamp:
        lamp = _lamp_with_place(goal, knowledge)
        return f"note {lamp}" if lamp and not holds_target else ""
    if goal.target_count < 2:
        return ""
    placed = knowledge.find_object(goal.target, among=goal.parent)
    other = knowledge.find_object(goal.target, outside=goal.parent) if holds_target else ""
    notes = [f"{placed} placed" if placed else "", f"{other} next" if other else ""]
    return "note " + ", ".join(filter(None, notes)) if any(notes) else ""


def _lamp_with_place(goal: Goal, knowledge: Knowledge) -> str:
    """Return the lamp that the goal asks for and where it stands, if a state has shown it."""
    lamps = knowledge.lamps.items()
    return next((f"{lamp} at {place}" for lamp, place in lamps if kind(lamp) == goal.lamp), "")


def _comparisons(goal: Goal, knowledge: Knowledge) -> list[tuple[list[str], str]]:
    """Return pairs of the kinds at hand and the kind wanted: of what is held, else of what lies here."""
    thing = knowledge.holding
    is_listed = knowledge.contents.get(knowledge.place) is not None
    kinds_here = list(dict.fromkeys(kind(thing) for thing in knowledge.things_in(knowledge.place)))
    if not thing:
        return [(kinds_here, goal.target)] if is_listed and kind(knowledge.place) != goal.parent else []
    pairs = [([kind(thing)], goal.target)]
    if kind(thing) == goal.target and goal.verb:
        result = RESULT[goal.verb]
        pairs.append((["plain" if is_untreated(goal, knowledge) else result], result))
    if kind(thing) == goal.target and goal.lamp and is_listed:
        pairs.append((kinds_here, goal.lamp))
    return pairs


def _sub_goal(goal: Goal, knowledge: Knowledge) -> str:
    """Return the open sub-goal, such as `heat mug 1`, or what to find and the places not searched yet."""
    thing = knowledge.holding
    if thing and kind(thing) != goal.target:
        return f"drop {thing}"
    if thing and goal.lamp:
        return _lamp_with_place(goal, knowledge) or _search(goal.lamp, knowledge)
    if thing and is_untreated(goal, knowledge):
        return f"{goal.verb} {thing}"
    if thing:
        return f"{thing} to {choose_destination(goal, knowledge)}"
    return knowledge.find_object(goal.target, outside=goal.parent) or _search(goal.target, knowledge)


def _search(object_kind: str, knowledge: Knowledge) -> str:
    return f"find {object_kind}, new {' '.join(knowledge.unsearched_places()) or 'nothing'}"
