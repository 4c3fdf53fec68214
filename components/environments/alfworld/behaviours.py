"""Behaviour policies for offline data: an expert, one that errs, near misses, and random actions.

None of them sees the game's hidden state. They act on what the trajectory has shown (`knowledge.py`) and on
the admissible commands, so the expert searches as an agent must. The near-miss policy does on purpose what an
eager agent does by mistake: the wrong object to the right place, the right object to the wrong place or
untreated, one thing brought twice where two are asked for, moves of what is not held, `nothing` taken for the
name of a thing. Its outcomes come from the engine, so the experience model learns from it when an action
fails.

A step that the expert decided has the expert's thought; a mistake or a random action has none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from components.environments.alfworld.games import HOLDS, OPENABLE, STATIONS, kind
from components.environments.alfworld.goals import Goal, read_goal
from components.environments.alfworld.knowledge import (
    Knowledge,
    choose_destination,
    is_untreated,
    read_knowledge,
)
from components.environments.alfworld.reasoning import think
from components.environments.protocol import NO_ACTION, Behaviour
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")
_IDLE = ("look", "inventory", "help", "examine")
_MALFORMED = (
    "go cabinet",
    "take",
    "put it down",
    "{thing}",
    "open the door",
    "go to",
    "heat {thing}",
    "<success>",
    "take {thing} please",
    "move {thing}",
    "{place} {thing}",
    "go {place}",
    "done",
    "pick up {thing} from {place}",
    "use",
    "cool with {place}",
    NO_ACTION,
    NO_ACTION,
    NO_ACTION,
    "take {kind} from {place}",
    "go to {thing} with {place}",
    "go to with {place}",
    "take {thing} with {place}",
)


def make_behaviour(name: str, task: Task, seed: int) -> Behaviour:
    """Return a behaviour policy for one episode of `task`.

    Raises:
        EnvironmentFailure: the name is unknown, or the instruction cannot be parsed.
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
        knowledge = read_knowledge(trajectory)
        expert.decided = False
        action = choose(knowledge, list(admissible))
        return think(goal, knowledge) if expert.decided else "", action

    return behave


@dataclass
class _Expert:
    """Searches for the target, treats it, and brings it where the goal asks."""

    goal: Goal
    rng: random.Random
    decided: bool = field(default=False, init=False)
    """Whether the expert has decided a step since this was last set to False."""

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        self.decided = True
        goal = self.goal
        thing = knowledge.holding
        if thing and kind(thing) != goal.target:
            return self.put_away(knowledge, thing)
        if not thing:
            spot = knowledge.find_object(goal.target, outside=goal.parent)
            return self.take(knowledge, *spot.split(" at ")) if spot else self.explore(knowledge)
        if goal.lamp:
            spots = [(lamp, place) for lamp, place in knowledge.lamps.items() if kind(lamp) == goal.lamp]
            return self.use(knowledge, *spots[0]) if spots else self.explore(knowledge)
        if is_untreated(goal, knowledge):
            stations = (place for place in knowledge.receptacles if kind(place) == STATIONS[goal.verb])
            station = next(stations, "")
            is_there = knowledge.place == station
            return f"{goal.verb} {thing} with {station}" if is_there else f"go to {station}"
        return self.deliver(knowledge, thing)

    def take(self, knowledge: Knowledge, thing: str, place: str) -> str:
        if knowledge.place != place:
            return f"go to {place}"
        return f"open {place}" if knowledge.doors.get(place) == "closed" else f"take {thing} from {place}"

    def use(self, knowledge: Knowledge, lamp: str, place: str) -> str:
        return f"use {lamp}" if knowledge.place == place else f"go to {place}"

    def deliver(self, knowledge: Knowledge, thing: str) -> str:
        return self.put(knowledge, thing, choose_destination(self.goal, knowledge))

    def put(self, knowledge: Knowledge, thing: str, place: str) -> str:
        if knowledge.place != place:
            return f"go to {place}"
        return f"open {place}" if knowledge.doors.get(place) == "closed" else f"move {thing} to {place}"

    def put_away(self, knowledge: Knowledge, thing: str) -> str:
        fits = [place for place in knowledge.receptacles if kind(thing) in HOLDS[kind(place)]]
        here = [place for place in fits if place == knowledge.place]
        surfaces = [
            place for place in fits if knowledge.doors.get(place) != "closed" and kind(place) not in OPENABLE
        ]
        return self.put(knowledge, thing, (here or surfaces or fits or knowledge.receptacles)[0])

    def explore(self, knowledge: Knowledge) -> str:
        if knowledge.doors.get(knowledge.place) == "closed" and knowledge.place not in knowledge.contents:
            return f"open {knowledge.place}"
        unsearched = knowledge.unsearched_places()
        likely = [place for place in unsearched if self.goal.target in HOLDS[kind(place)]]
        pool = (
            (likely if not knowledge.holding else [])
            or unsearched
            or [place for place in knowledge.receptacles if place != knowledge.place]
        )
        return f"go to {self.rng.choice(sorted(pool))}" if pool else "look"


@dataclass
class _Noisy:
    """The expert, with another action in one step of four: half of these admissible, half likely refused."""

    expert: _Expert
    error: float = 0.25

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        if rng.random() >= self.error:
            return self.expert.act(knowledge, admissible)
        if rng.random() < 0.5:
            return impossible(knowledge, self.expert.goal, rng)
        return rng.choice([action for action in admissible if not action.startswith(_IDLE)] or admissible)


@dataclass
class _Random:
    """Random commands: admissible, impossible and malformed ones."""

    expert: _Expert

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        chance = rng.random()
        if chance < 0.40:
            return impossible(knowledge, self.expert.goal, rng)
        if chance < 0.45:
            return malformed(knowledge, rng)
        useful = [action for action in admissible if not action.startswith(_IDLE)]
        return rng.choice(admissible if chance < 0.50 or not useful else useful)


@dataclass
class _NearMiss:
    """The mistakes of an eager agent: see the module's docstring."""

    expert: _Expert

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        goal = self.expert.goal
        thing = knowledge.holding
        chance = rng.random()
        if chance < 0.40:
            return impossible(knowledge, goal, rng)
        verbs = ("take", "move", "heat", "cool", "clean", "use")
        if chance < 0.56 and (moves := [action for action in admissible if action.split()[0] in verbs]):
            return rng.choice(moves)
        delivered = "" if thing else self._delivered_target(knowledge)
        if delivered and chance < 0.80:
            return f"take {delivered} from {knowledge.place}"
        if thing and kind(thing) != goal.target and chance < 0.80 and goal.parent:
            return self.expert.deliver(knowledge, thing)
        if thing and kind(thing) == goal.target and chance < 0.70:
            return self._spoil(knowledge, thing)
        return self.expert.act(knowledge, admissible)

    def _delivered_target(self, knowledge: Knowledge) -> str:
        """Return the first of two targets where it belongs: taken away and brought again, it is still one."""
        goal = self.expert.goal
        if goal.target_count < 2 or kind(knowledge.place) != goal.parent:
            return ""
        things = sorted(knowledge.things_in(knowledge.place))
        return next((thing for thing in things if kind(thing) == goal.target), "")

    def _spoil(self, knowledge: Knowledge, thing: str) -> str:
        """Return a move of the right object: untreated to the right place, to a wrong one, or to no lamp."""
        goal = self.expert.goal
        rng = self.expert.rng
        if goal.lamp and rng.random() < 0.5:
            return f"use {goal.lamp} 1"
        if is_untreated(goal, knowledge):
            return self.expert.deliver(knowledge, thing)
        wrong = [
            place
            for place in knowledge.receptacles
            if kind(thing) in HOLDS[kind(place)] and kind(place) != goal.parent
        ]
        here = [place for place in wrong if place == knowledge.place]
        if not wrong:
            return self.expert.act(knowledge, [])
        return self.expert.put(knowledge, thing, rng.choice(here or wrong))


def impossible(knowledge: Knowledge, goal: Goal, rng: random.Random) -> str:
    """Return a well-formed command that the engine will most likely refuse.

    Two in three are what an agent is tempted to: the target, or a thing seen elsewhere, from where the agent
    stands; a place of a kind that it needs or that the room lacks. The third is a command at random.
    """
    things = sorted({thing for box in knowledge.contents.values() for thing in box}) or [f"{goal.target} 1"]
    target = f"{goal.target} {rng.randint(1, 3)}"
    thing = rng.choice([*things, target, f"{goal.target} 1"])
    any_place = f"{rng.choice(sorted(HOLDS))} {rng.randint(1, 4)}"
    needed_place = f"{goal.parent or rng.choice(sorted(HOLDS))} {rng.randint(1, 4)}"
    place = rng.choice([*knowledge.receptacles, f"{goal.parent or 'desk'} {rng.randint(1, 9)}", any_place])
    here = knowledge.place or place
    verb = rng.choice(("heat", "cool", "clean"))
    tempting = (
        f"use {goal.lamp} {rng.randint(1, 2)}" if goal.lamp else f"take {goal.target} 1 from {here}",
        f"take {goal.target} {rng.randint(1, 2)} from {here}",
        f"take {target} from {here}",
        f"take {thing} from {here}",
        f"go to {needed_place}",
        f"go to {any_place}",
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
        f"{verb} {knowledge.holding or target} with {STATIONS[verb]} 1",
        f"{goal.verb or verb} {knowledge.holding or target} with {here}",
        f"{goal.verb or verb} {knowledge.holding or target} with {rng.choice(sorted(STATIONS.values()))} 1",
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


def malformed(knowledge: Knowledge, rng: random.Random) -> str:
    """Return words that are no command at all, reserved markers among them."""
    place = rng.choice(knowledge.receptacles or ["cabinet 1"])
    thing = rng.choice(sorted(knowledge.contents.get(knowledge.place, set())) or ["mug 1"])
    return rng.choice(_MALFORMED).format(thing=thing, place=place, kind=kind(thing))
