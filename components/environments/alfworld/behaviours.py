"""Behaviour policies for offline data: an expert that searches as an agent must, one that errs, near misses,
and random.

None of them sees the game's hidden state: they act on what the trajectory has told (`knowledge.py`) and on
the admissible commands. The near-miss policy does on purpose what an eager agent does by mistake: the wrong
object to the right place, the right object to the wrong place or untreated, one thing brought twice where two
are wanted, moves of what is not held, `nothing` taken for the name of a thing. Its outcomes come from the
engine, so the experience model learns from it when to say no.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.alfworld.games import HOLDS, OPENABLE, STATIONS, kind
from components.environments.alfworld.knowledge import RESULT, Goal, Knowledge, learn, read_goal
from components.environments.alfworld.states import read_state
from components.environments.protocol import NO_ACTION, Behaviour
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")
_IDLE = ("look", "inventory", "help", "examine")
_MALFORMED = (
    *(
        "go cabinet",
        "take",
        "put it down",
        "{thing}",
        "open the door",
        "go to",
        "heat {thing}",
        "<success>",
        "take {thing} please",
    ),
    *(
        "move {thing}",
        "{place} {thing}",
        "go {place}",
        "done",
        "pick up {thing} from {place}",
        "use",
        "cool with {place}",
    ),
    *(NO_ACTION, NO_ACTION, NO_ACTION),
    *(
        "take {kind} from {place}",
        "go to {thing} with {place}",
        "go to with {place}",
        "take {thing} with {place}",
    ),
)


def make_behaviour(name: str, task: Task, seed: int) -> Behaviour:
    """A fresh behaviour policy for one episode of `task`: (trajectory, admissible commands) -> (thought,
    command).

    Raises:
        EnvironmentFailure: the name is unknown, or the expert cannot read the instruction.
    """
    rng = random.Random(f"{name}/{task.id}/{seed}")
    goal = read_goal(task.instruction)
    if name not in NAMES:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(NAMES)}."
        )
    if goal is None:
        raise EnvironmentFailure(
            f"The instruction {task.instruction!r} is none of ALFWorld's templates.",
            "The expert cannot plan for it.",
        )
    expert = _Expert(goal, rng)
    choose = {
        "expert": expert.act,
        "noisy": _Noisy(expert).act,
        "near_miss": _NearMiss(expert).act,
        "random": _Random(expert).act,
    }[name]

    def behave(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        known = learn(trajectory)
        return think(goal, known), choose(known, list(admissible))

    return behave


def think(goal: Goal, known: Knowledge) -> str:
    """What an agent is trained to write before it acts: what it sees beside what it wants, and the sub-goal
    left open.

    The comparisons have the form of the backbone's exercise (`language/comparing.py`): a small model that
    only names its sub-goal walks past the thing that it looks for, or takes another one. Examples:

        find mug, new desk 1 shelf 1
        box cellphone want mug: no. find mug, new shelf 1
        box mug want mug: yes. mug 1 at desk 1
        mug want mug: yes, plain want hot: no. heat mug 1
        bread want mug: no. drop bread 1
        note pen 1 at desk 1 placed. pen want pen: yes. pen 2 to desk 1
        note desklamp 1 at desk 2. bed 1 book 1 want book: yes. book 1 at bed 1

    The notes are repeated from thought to thought, so that what matters later is never far back.
    """
    looks = _looks(goal, known)
    compared = ", ".join(
        f"{' '.join(got) or 'nothing'} want {wanted}: {'yes' if wanted in got else 'no'}"
        for got, wanted in looks
    )
    return ". ".join(part for part in (_notes(goal, known), compared, _sub_goal(goal, known)) if part)


def reflect(trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
    """Why the thought is right and the alternatives are not, by what they really lead to (Early Experience's
    c): `thought`, behind one clause an alternative (action, next state). In the conditional, as one who has
    not acted yet:

        go to desk 9 would fail. open drawer 1 would not help. find mug, new desk 1
    """
    return " ".join(
        [*(f"{action} would {_verdict(trajectory, state)}." for action, state in alternatives), thought]
    )


def _verdict(trajectory: Trajectory, state: str) -> str:
    seen = read_state(state)
    if seen.event == "failed" or state == trajectory.states[-1]:
        return "fail"
    return "lose what is held" if seen.event == "moved" else "not help"


def _notes(goal: Goal, known: Knowledge) -> str:
    """What the sub-goal at hand does not need and a later one will: where the lamp stands, which target is
    placed, where the next lies.
    """
    if goal.lamp:
        lamp = _lamp(goal, known)
        return f"note {lamp}" if lamp and kind(known.holding or "") != goal.target else ""
    if goal.family != "pick_two_obj_and_place":
        return ""
    placed = known.where(goal.target, among=goal.parent)
    other = known.where(goal.target, outside=goal.parent) if kind(known.holding or "") == goal.target else ""
    notes = [f"{placed} placed" if placed else "", f"{other} next" if other else ""]
    return "note " + ", ".join(filter(None, notes)) if any(notes) else ""


def _lamp(goal: Goal, known: Knowledge) -> str:
    """The lamp that the goal asks for and where it stands, if it has been seen."""
    return next((f"{lamp} at {place}" for lamp, place in known.lamps.items() if kind(lamp) == goal.lamp), "")


def _looks(goal: Goal, known: Knowledge) -> list[tuple[list[str], str]]:
    """Kinds at hand and the kind wanted of them: first of what is held, else of what lies here."""
    held, here = known.holding, known.contents.get(known.place)
    seen = list(dict.fromkeys(kind(thing) for thing in known.inside(known.place)))
    if not held:
        return [(seen, goal.target)] if here is not None and kind(known.place) != goal.parent else []
    pairs = [([kind(held)], goal.target)]
    if kind(held) == goal.target and goal.verb:
        pairs.append((["plain" if _untreated(goal, known) else RESULT[goal.verb]], RESULT[goal.verb]))
    if kind(held) == goal.target and goal.lamp and here is not None:
        pairs.append((seen, goal.lamp))
    return pairs


def _sub_goal(goal: Goal, known: Knowledge) -> str:
    """The sub-goal that the knowledge leaves open, such as `heat mug 1`, or what to find and the places not
    looked into yet.
    """
    held = known.holding
    if held and kind(held) != goal.target:
        return f"drop {held}"
    if held and goal.lamp:
        return _lamp(goal, known) or _search(goal.lamp, known)
    if held:
        return f"{goal.verb} {held}" if _untreated(goal, known) else f"{held} to {_destination(goal, known)}"
    return known.where(goal.target, outside=goal.parent) or _search(goal.target, known)


def _destination(goal: Goal, known: Knowledge) -> str:
    """Which of the places of the kind wanted: where a target already lies, else the first."""
    options = [r for r in known.receptacles if kind(r) == goal.parent]
    begun = [r for r in options if any(kind(o) == goal.target for o in known.contents.get(r, ()))]
    return (begun or options or [known.place])[0]


def _search(wanted: str, known: Knowledge) -> str:
    return f"find {wanted}, new {' '.join(known.unseen()) or 'nothing'}"


def _untreated(goal: Goal, known: Knowledge) -> bool:
    return bool(goal.verb) and RESULT[goal.verb] not in known.treated.get(known.holding, set())


@dataclass
class _Expert:
    goal: Goal
    rng: random.Random

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        goal, held = self.goal, known.holding
        if held and kind(held) != goal.target:
            return self.put_away(known, held)
        if not held:
            spot = known.where(goal.target, outside=goal.parent)
            return self.take(known, *spot.split(" at ")) if spot else self.explore(known)
        if goal.lamp:
            spots = [(lamp, place) for lamp, place in known.lamps.items() if kind(lamp) == goal.lamp]
            return self.use(known, *spots[0]) if spots else self.explore(known)
        if _untreated(goal, known):
            station = next((r for r in known.receptacles if kind(r) == STATIONS[goal.verb]), "")
            return f"{goal.verb} {held} with {station}" if known.place == station else f"go to {station}"
        return self.deliver(known, held)

    def take(self, known: Knowledge, thing: str, place: str) -> str:
        if known.place != place:
            return f"go to {place}"
        return f"open {place}" if known.doors.get(place) == "closed" else f"take {thing} from {place}"

    def use(self, known: Knowledge, lamp: str, place: str) -> str:
        return f"use {lamp}" if known.place == place else f"go to {place}"

    def deliver(self, known: Knowledge, held: str) -> str:
        return self.put(known, held, _destination(self.goal, known))

    def put(self, known: Knowledge, held: str, place: str) -> str:
        if known.place != place:
            return f"go to {place}"
        return f"open {place}" if known.doors.get(place) == "closed" else f"move {held} to {place}"

    def put_away(self, known: Knowledge, held: str) -> str:
        fits = [r for r in known.receptacles if kind(held) in HOLDS[kind(r)]]
        here = [r for r in fits if r == known.place]
        opened = [r for r in fits if known.doors.get(r) != "closed" and kind(r) not in OPENABLE]
        return self.put(known, held, (here or opened or fits or known.receptacles)[0])

    def explore(self, known: Knowledge) -> str:
        if known.doors.get(known.place) == "closed" and known.place not in known.contents:
            return f"open {known.place}"
        unseen = known.unseen()
        likely = [r for r in unseen if self.goal.target in HOLDS[kind(r)]]
        pool = (
            (likely if not known.holding else [])
            or unseen
            or [r for r in known.receptacles if r != known.place]
        )
        return f"go to {self.rng.choice(sorted(pool))}" if pool else "look"


@dataclass
class _Noisy:
    """The expert, but one step in four is any other: half of these are admissible, half most likely
    refused.
    """

    expert: _Expert
    error: float = 0.25

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        if rng.random() >= self.error:
            return self.expert.act(known, admissible)
        if rng.random() < 0.5:
            return impossible(known, self.expert.goal, rng)
        return rng.choice([a for a in admissible if not a.startswith(_IDLE)] or admissible)


@dataclass
class _Random:
    expert: _Expert

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng, luck = self.expert.rng, self.expert.rng.random()
        if luck < 0.40:
            return impossible(known, self.expert.goal, rng)
        if luck < 0.45:
            return malformed(known, rng)
        useful = [a for a in admissible if not a.startswith(_IDLE)]
        return rng.choice(admissible if luck < 0.50 or not useful else useful)


@dataclass
class _NearMiss:
    expert: _Expert

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng, goal, held = self.expert.rng, self.expert.goal, known.holding
        luck = rng.random()
        if luck < 0.40:
            return impossible(known, goal, rng)
        if luck < 0.56 and (
            hot := [a for a in admissible if a.split()[0] in ("take", "move", "heat", "cool", "clean", "use")]
        ):
            return rng.choice(hot)
        placed = "" if held else self._placed(known)
        if placed and luck < 0.80:
            return f"take {placed} from {known.place}"
        if held and kind(held) != goal.target and luck < 0.80 and goal.parent:
            return self.expert.deliver(known, held)
        if held and kind(held) == goal.target and luck < 0.70:
            return self._spoil(known, held)
        return self.expert.act(known, admissible)

    def _placed(self, known: Knowledge) -> str:
        """The first of two things where it belongs: taken away and brought again, it is still one."""
        if (
            self.expert.goal.family != "pick_two_obj_and_place"
            or kind(known.place) != self.expert.goal.parent
        ):
            return ""
        return next(
            (thing for thing in sorted(known.inside(known.place)) if kind(thing) == self.expert.goal.target),
            "",
        )

    def _spoil(self, known: Knowledge, held: str) -> str:
        """The right object untreated to the right place, or to a wrong one, or under no lamp."""
        goal, rng = self.expert.goal, self.expert.rng
        if goal.lamp and rng.random() < 0.5:
            return f"use {goal.lamp} 1"
        if _untreated(goal, known):
            return self.expert.deliver(known, held)
        wrong = [r for r in known.receptacles if kind(held) in HOLDS[kind(r)] and kind(r) != goal.parent]
        here = [r for r in wrong if r == known.place]
        return (
            self.expert.put(known, held, rng.choice(here or wrong)) if wrong else self.expert.act(known, [])
        )


def impossible(known: Knowledge, goal: Goal, rng: random.Random) -> str:
    """A well-formed command that the engine will most likely refuse: not held, not here, no such thing.

    Two in three are what an agent is tempted to: the wanted thing or a thing seen elsewhere from where it
    stands, a place of a kind that it needs or that the room lacks.
    """
    things = sorted({thing for box in known.contents.values() for thing in box}) or [f"{goal.target} 1"]
    wanted = f"{goal.target} {rng.randint(1, 3)}"
    thing = rng.choice([*things, wanted, f"{goal.target} 1"])
    stranger = f"{rng.choice(sorted(HOLDS))} {rng.randint(1, 4)}"
    needed = f"{goal.parent or rng.choice(sorted(HOLDS))} {rng.randint(1, 4)}"
    place = rng.choice([*known.receptacles, f"{goal.parent or 'desk'} {rng.randint(1, 9)}", stranger])
    here = known.place or place
    verb = rng.choice(("heat", "cool", "clean"))
    tempting = (
        f"use {goal.lamp} {rng.randint(1, 2)}" if goal.lamp else f"take {goal.target} 1 from {here}",
        f"take {goal.target} {rng.randint(1, 2)} from {here}",
        f"take {wanted} from {here}",
        f"take {thing} from {here}",
        f"go to {needed}",
        f"go to {stranger}",
        f"go to {kind(place)} {rng.randint(1, 9)}",
        rng.choice(
            (
                f"go to {here}",
                "go to nothing",
                f"take nothing from {here}",
                f"move nothing to {here}",
                "use nothing",
            )
        ),
        f"move {thing} to {here}",
        f"{verb} {known.holding or wanted} with {STATIONS[verb]} 1",
        f"{goal.verb or verb} {known.holding or wanted} with {here}",
        f"{goal.verb or verb} {known.holding or wanted} with {rng.choice(sorted(STATIONS.values()))} 1",
    )
    clumsy = (
        f"move {thing} to {place}",
        f"move {goal.target} 1 to {goal.parent or 'desk'} 1",
        f"take {thing} from {place}",
        f"{verb} {thing} with {STATIONS[verb]} 1",
        f"open {place}",
        f"go to {kind(place)} {rng.randint(5, 12)}",
        f"use {goal.lamp or 'desklamp'} {rng.randint(1, 2)}",
        f"close {place}",
    )
    return rng.choice(rng.choice((tempting, tempting, clumsy)))


def malformed(known: Knowledge, rng: random.Random) -> str:
    """Words that are no command at all, reserved markers among them."""
    place = rng.choice(known.receptacles or ["cabinet 1"])
    thing = rng.choice(sorted(known.contents.get(known.place, set())) or ["mug 1"])
    return rng.choice(_MALFORMED).format(thing=thing, place=place, kind=kind(thing))
