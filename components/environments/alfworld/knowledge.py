"""What an agent can know from its own trajectory: nothing hidden, only what the states said.

Experts search with it, the programmatic teacher reasons with it, and `embody` reads the world that a dream
described from it. Works on real and dreamed trajectories alike; a state that cannot be read changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from components.environments.alfworld.games import (
    AFFORDS,
    HOLDS,
    OPENABLE,
    STATIONS,
    TREATMENTS,
    kind,
    natural,
)
from components.environments.alfworld.states import read_state
from components.records import Trajectory

_FORMS = (
    (
        "pick_two_obj_and_place",
        re.compile(r"^(?:put two (\w+) in (\w+)|find two (\w+) and put them in (\w+))$"),
    ),
    (
        "pick_clean_then_place_in_recep",
        re.compile(r"^(?:put a clean (\w+) in (\w+)|clean some (\w+) and put it in (\w+))$"),
    ),
    (
        "pick_heat_then_place_in_recep",
        re.compile(r"^(?:put a hot (\w+) in (\w+)|heat some (\w+) and put it in (\w+))$"),
    ),
    (
        "pick_cool_then_place_in_recep",
        re.compile(r"^(?:put a cool (\w+) in (\w+)|cool some (\w+) and put it in (\w+))$"),
    ),
    (
        "look_at_obj_in_light",
        re.compile(r"^(?:look at (\w+) under the (\w+)|examine the (\w+) with the (\w+))$"),
    ),
    ("pick_and_place_simple", re.compile(r"^(?:put a (\w+) in (\w+)|put some (\w+) on (\w+))$")),
)
RESULT = {"heat": "hot", "cool": "cool", "clean": "clean"}


@dataclass(frozen=True)
class Goal:
    """A parsed instruction. `parent` is "" and `lamp` is set for look_at_obj_in_light, the other way round
    elsewhere.
    """

    family: str
    target: str
    parent: str
    lamp: str

    @property
    def verb(self) -> str:
        """`heat`, `cool` or `clean` where the target must be treated, else ""."""
        return TREATMENTS.get(self.family, ("", ""))[0]


def read_goal(instruction: str) -> Goal | None:
    """The goal of an instruction that follows one of the package's templates, else None."""
    for family, form in _FORMS:
        if found := form.match(instruction.strip().rstrip(".").lower()):
            target, place = (part for part in found.groups() if part)
            look = family == "look_at_obj_in_light"
            return Goal(family, target, "" if look else place, place if look else "")
    return None


@dataclass
class Knowledge:
    """What the states of a trajectory have told so far."""

    receptacles: list[str] = field(default_factory=list)
    place: str = ""
    holding: str = ""
    treated: dict[str, set[str]] = field(default_factory=dict)
    contents: dict[str, set[str]] = field(default_factory=dict)
    """Of each receptacle seen inside: what is in it now, as far as known."""
    listed: dict[str, list[str]] = field(default_factory=dict)
    """Of each receptacle: what its last listing held, in that order."""
    doors: dict[str, str] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    lit: set[str] = field(default_factory=set)
    lamps: dict[str, str] = field(default_factory=dict)

    def see(self, state: str) -> None:
        """Take in one state."""
        seen = read_state(state)
        if not seen.event:
            return
        if seen.event == "room":
            self.receptacles = list(seen.contents)
        self.place = seen.place or self.place
        self.holding = seen.holding
        if seen.holding:
            self.treated[seen.holding] = set(seen.treated)
        if seen.event == "at":
            self._arrive(seen.place, seen.door, seen.contents)
        if seen.event in ("took", "moved"):
            box = (
                self.contents.setdefault(seen.place, set())
                if seen.place in self.contents or seen.event == "moved"
                else set()
            )
            (box.add if seen.event == "moved" else box.discard)(seen.thing)
        if seen.event == "lit":
            self.lit.add(seen.thing)

    def _arrive(self, place: str, door: str, contents: tuple[str, ...]) -> None:
        self.visited.add(place)
        if door:
            self.doors[place] = door
        if door != "closed":
            self.contents[place] = set(contents)
            self.listed[place] = list(contents)
            self.lamps |= {thing: place for thing in contents if kind(thing) in ("desklamp", "floorlamp")}

    def known(self, place: str) -> bool:
        """True if an arrival at `place` shows nothing new: its contents are known, or it is known to be
        closed.
        """
        if kind(place) in OPENABLE:
            return place in self.doors and (self.doors[place] == "closed" or place in self.contents)
        return place in self.contents

    def unseen(self) -> list[str]:
        """The places whose inside was never shown, the present one left out."""
        return [place for place in self.receptacles if place not in self.contents and place != self.place]

    def changed(self, place: str) -> tuple[list[str], list[str]]:
        """What was put to `place` and what was taken from it since its last listing."""
        now, before = self.contents.get(place, set()), self.listed.get(place, [])
        return sorted(now - set(before), key=natural), [thing for thing in before if thing not in now]

    def inside(self, place: str) -> list[str]:
        """What lies in `place`, as far as known, in the order in which the next listing will show it."""
        more, less = self.changed(place)
        return [thing for thing in self.listed.get(place, []) if thing not in less] + more

    def recounted(self, place: str) -> str:
        """What lies in `place` as one puts it together: its last listing, what left and what came since, and
        the result.

        Examples: `cup 1 pan 2`; `cup 1 pan 2, less cup 1, now pan 2`; `nothing, more mug 1, now mug 1`.
        """
        more, less = self.changed(place)
        changes = (f", less {' '.join(less)}" if less else "") + (f", more {' '.join(more)}" if more else "")
        return (
            _named(self.listed.get(place, []))
            + changes
            + (f", now {_named(self.inside(place))}" if changes else "")
        )

    def where(self, wanted: str, *, outside: str = "", among: str = "") -> str:
        """An object of kind `wanted` that is known to lie in a place not of the kind `outside`, or of the
        kind `among`; else "".
        """
        for place, things in self.contents.items():
            for thing in sorted(things):
                if kind(thing) == wanted and kind(place) != outside and among in ("", kind(place)):
                    return f"{thing} at {place}"
        return ""

    def needs(self, action: str) -> list[Need]:
        """What `action` needs, one need after the other, up to the first that does not hold."""
        found = _Needs(self).of(action)
        failed = next((place for place, need in enumerate(found) if not need.holds), len(found))
        return found[: failed + 1]


def _named(things: Iterable[str]) -> str:
    return " ".join(things) or "nothing"


def learn(trajectory: Trajectory) -> Knowledge:
    """The knowledge after all states of `trajectory`."""
    knowledge = Knowledge()
    for state in trajectory.states:
        knowledge.see(state)
    return knowledge


_ACTIONS = re.compile(
    r"^(?:(?P<go>go to) (?P<go_r>\w+ \d+)|(?P<door>open|close) (?P<door_r>\w+ \d+)|take (?P<take>\w+ \d+) "
    r"from (?P<take_r>\w+ \d+)"
    r"|move (?P<move>\w+ \d+) to (?P<move_r>\w+ \d+)|(?P<verb>heat|cool|clean) (?P<treat>\w+ \d+) with "
    r"(?P<treat_r>\w+ \d+)"
    r"|use (?P<use>\w+ \d+)|examine (?P<examine>\w+ \d+)|(?P<plain>look|inventory|help))$"
)


def well_formed(action: str) -> bool:
    """True if `action` has the form of one of the engine's commands."""
    return bool(_ACTIONS.match(action.strip()))


class Need(NamedTuple):
    """Whether it holds, how one says that it does or does not, and the comparison that shows it ("" if that
    stands beside it anyway).
    """

    holds: bool
    yes: str
    no: str
    evidence: str = ""
    apart: bool = False
    """The comparison must not hold: one cannot go to where one is."""

    @property
    def words(self) -> str:
        """The conclusion, or comparison and answer, such as `cup 1 pan 2 want mug 1: no`."""
        if self.evidence:
            return f"{self.evidence}: {'yes' if self.holds != self.apart else 'no'}"
        return self.yes if self.holds else self.no


@dataclass
class _Needs:
    known: Knowledge

    def of(self, action: str) -> list[Need]:
        found = _ACTIONS.match(action.strip())
        if not found:
            return [Need(False, "", "no such command")]
        part = {name: value for name, value in found.groupdict().items() if value}
        if "go" in part:
            return self._go(part["go_r"])
        if "door" in part:
            return [self._there(part["door_r"]), *self._door(part["door"], part["door_r"])]
        if "take" in part:
            return self._take(part["take"], part["take_r"])
        if "move" in part:
            return self._move(part["move"], part["move_r"])
        if "verb" in part:
            return self._treat(part["verb"], part["treat"], part["treat_r"])
        if "use" in part:
            return self._use(part["use"])
        return self._examine(part["examine"]) if "examine" in part else []

    def _go(self, place: str) -> list[Need]:
        room = " ".join(self.known.receptacles) or "nothing"
        listed = Need(place in self.known.receptacles, "a place", "no such place", f"{room} want {place}")
        return [
            listed,
            Need(place != self.known.place, "elsewhere", "already there", self._from_here(place), apart=True),
        ]

    def _there(self, place: str) -> Need:
        return Need(place == self.known.place, "there", "not there", self._from_here(place))

    def _from_here(self, place: str) -> str:
        return f"{self.known.place or 'room'} want {place}"

    def _door(self, verb: str, place: str) -> list[Need]:
        door, wanted = self.known.doors.get(place, "open"), "closed" if verb == "open" else "open"
        return [
            Need(kind(place) in OPENABLE, "a door", "no door"),
            Need(door == wanted, door, f"{door} already", f"{door} want {wanted}"),
        ]

    def _reach(self, place: str) -> list[Need]:
        door = (
            [Need(self.known.doors.get(place) != "closed", "open", "closed")]
            if kind(place) in OPENABLE
            else []
        )
        return [self._there(place), *door]

    def _take(self, thing: str, place: str) -> list[Need]:
        inside = Need(
            thing in self.known.contents.get(place, ()),
            "in it",
            "not in it",
            f"{self.known.recounted(place)} want {thing}",
        )
        weight = [Need(False, "", "too heavy")] if kind(thing) in ("desklamp", "floorlamp") else []
        return [Need(not self.known.holding, "hand free", "hand full"), *self._reach(place), inside, *weight]

    def _move(self, thing: str, place: str) -> list[Need]:
        pair = f"{kind(thing)} in {kind(place)}"
        fits = Need(kind(thing) in HOLDS.get(kind(place), ()), f"{pair} belongs", f"{pair} does not belong")
        return [self._held(thing), *self._reach(place), fits]

    def _held(self, thing: str) -> Need:
        return Need(
            self.known.holding == thing, "held", "not held", f"{self.known.holding or 'nothing'} want {thing}"
        )

    def _treat(self, verb: str, thing: str, station: str) -> list[Need]:
        able = kind(thing) in AFFORDS[{"heat": "heatable", "cool": "coolable", "clean": "cleanable"}[verb]]
        return [
            self._held(thing),
            Need(
                kind(station) == STATIONS[verb],
                "right station",
                "wrong station",
                f"to {verb} {STATIONS[verb]} want {kind(station)}",
            ),
            self._there(station),
            Need(able, f"{verb} {kind(thing)} can be", f"{verb} {kind(thing)} cannot be"),
        ]

    def _use(self, thing: str) -> list[Need]:
        lamp = kind(thing) in ("desklamp", "floorlamp")
        here = self.known.contents.get(self.known.place, set())
        evidence = f"{self.known.recounted(self.known.place)} want {thing}"
        return [Need(lamp, "a switch", "no switch"), Need(thing in here, "here", "not here", evidence)]

    def _examine(self, what: str) -> list[Need]:
        # The engine shows a place or what is held; what lies in a place it refuses to show.
        held = what == self.known.holding
        return [Need(held or what == self.known.place, "in the hand" if held else "here", "not here")]
