"""What an agent can know from its own trajectory: nothing hidden, only what the states said.

Experts search with it and the programmatic teacher reasons with it. It works on real and dreamed trajectories
alike; a state that cannot be parsed changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from components.environments.alfworld.games import (
    ABILITIES,
    AFFORDS,
    HOLDS,
    LAMPS,
    OPENABLE,
    STATIONS,
    kind,
    natural_order,
)
from components.environments.alfworld.goals import RESULT, Goal
from components.environments.alfworld.states import ParsedState, read_state
from components.records import Trajectory


@dataclass
class Knowledge:
    """What the states of a trajectory have shown so far."""

    receptacles: list[str] = field(default_factory=list)
    place: str = ""
    holding: str = ""
    treated: dict[str, set[str]] = field(default_factory=dict)
    """Object -> `hot`, `cool`, `clean`: what was done to it."""
    contents: dict[str, set[str]] = field(default_factory=dict)
    """Receptacle whose inside was shown -> what is in it now, as far as the states tell."""
    listed: dict[str, list[str]] = field(default_factory=dict)
    """Receptacle -> what its last listing held, in that order."""
    doors: dict[str, str] = field(default_factory=dict)
    """Receptacle -> `open` or `closed`."""
    visited: set[str] = field(default_factory=set)
    lit: set[str] = field(default_factory=set)
    """Lamps that were turned on or off."""
    lamps: dict[str, str] = field(default_factory=dict)
    """Lamp -> the place where it was listed."""

    def add_state(self, state: str) -> None:
        """Take in one state."""
        parsed = read_state(state)
        if not parsed.event:
            return
        if parsed.event == "room":
            self.receptacles = list(parsed.contents)
        self.place = parsed.place or self.place
        self.holding = parsed.holding
        if parsed.holding:
            self.treated[parsed.holding] = set(parsed.treated)
        if parsed.event == "at":
            self._add_listing(parsed)
        if parsed.event == "moved":
            self.contents.setdefault(parsed.place, set()).add(parsed.thing)
        if parsed.event == "took" and parsed.place in self.contents:
            self.contents[parsed.place].discard(parsed.thing)
        if parsed.event == "lit":
            self.lit.add(parsed.thing)

    def _add_listing(self, parsed: ParsedState) -> None:
        self.visited.add(parsed.place)
        if parsed.door:
            self.doors[parsed.place] = parsed.door
        if parsed.door != "closed":
            self.contents[parsed.place] = set(parsed.contents)
            self.listed[parsed.place] = list(parsed.contents)
            self.lamps |= {thing: parsed.place for thing in parsed.contents if kind(thing) in LAMPS}

    def is_known(self, place: str) -> bool:
        """Return True if an arrival at `place` shows nothing new.

        Its contents are known, or it is known to be closed.
        """
        if kind(place) in OPENABLE:
            return place in self.doors and (self.doors[place] == "closed" or place in self.contents)
        return place in self.contents

    def unsearched_places(self) -> list[str]:
        """Return the places whose inside was never shown, without the place where the agent is."""
        return [place for place in self.receptacles if place not in self.contents and place != self.place]

    def changes_at(self, place: str) -> tuple[list[str], list[str]]:
        """Return what was put to `place` and what was taken from it since its last listing."""
        now = self.contents.get(place, set())
        listed = self.listed.get(place, [])
        added = sorted(now - set(listed), key=natural_order)
        return added, [thing for thing in listed if thing not in now]

    def things_in(self, place: str) -> list[str]:
        """Return what lies in `place`, as far as known, in the order in which the next listing shows it."""
        added, removed = self.changes_at(place)
        return [thing for thing in self.listed.get(place, []) if thing not in removed] + added

    def describe_contents(self, place: str) -> str:
        """Return what lies in `place` in words: its last listing, what left and what came, and the result.

        Examples: `cup 1 pan 2`; `cup 1 pan 2, less cup 1, now pan 2`; `nothing, more mug 1, now mug 1`.
        """
        added, removed = self.changes_at(place)
        less = f", less {' '.join(removed)}" if removed else ""
        more = f", more {' '.join(added)}" if added else ""
        now = f", now {_joined(self.things_in(place))}" if less or more else ""
        return f"{_joined(self.listed.get(place, []))}{less}{more}{now}"

    def find_object(self, object_kind: str, *, outside: str = "", among: str = "") -> str:
        """Return `mug 1 at desk 1` for an object of the kind that is known to lie somewhere; else "".

        Args:
            outside: the kind of place where it must not lie.
            among: the kind of place where it must lie; "": any.
        """
        for place, things in self.contents.items():
            for thing in sorted(things):
                if kind(thing) == object_kind and kind(place) != outside and among in ("", kind(place)):
                    return f"{thing} at {place}"
        return ""

    def needs_of(self, action: str) -> list[Need]:
        """Return what `action` needs, one need after the other, up to the first that does not hold."""
        needs = _NeedsOfAction(self).of(action)
        failed = next((place for place, need in enumerate(needs) if not need.holds), len(needs))
        return needs[: failed + 1]


def _joined(things: Iterable[str]) -> str:
    return " ".join(things) or "nothing"


def read_knowledge(trajectory: Trajectory) -> Knowledge:
    """Return the knowledge after all states of `trajectory`."""
    knowledge = Knowledge()
    for state in trajectory.states:
        knowledge.add_state(state)
    return knowledge


def choose_destination(goal: Goal, knowledge: Knowledge) -> str:
    """Return the place to bring a target to: one where a target lies already, else the first of the kind."""
    options = [place for place in knowledge.receptacles if kind(place) == goal.parent]
    started = [
        place
        for place in options
        if any(kind(thing) == goal.target for thing in knowledge.contents.get(place, ()))
    ]
    return (started or options or [knowledge.place])[0]


def is_untreated(goal: Goal, knowledge: Knowledge) -> bool:
    """Return True if the goal asks for a treatment that the thing in the hand has not had."""
    return bool(goal.verb) and RESULT[goal.verb] not in knowledge.treated.get(knowledge.holding, set())


_ACTIONS = re.compile(
    r"^(?:(?P<go>go to) (?P<go_r>\w+ \d+)|(?P<door>open|close) (?P<door_r>\w+ \d+)|take (?P<take>\w+ \d+) "
    r"from (?P<take_r>\w+ \d+)"
    r"|move (?P<move>\w+ \d+) to (?P<move_r>\w+ \d+)|(?P<verb>heat|cool|clean) (?P<treat>\w+ \d+) with "
    r"(?P<treat_r>\w+ \d+)"
    r"|use (?P<use>\w+ \d+)|examine (?P<examine>\w+ \d+)|(?P<plain>look|inventory|help))$"
)


def well_formed(action: str) -> bool:
    """Return True if `action` has the form of one of the engine's commands."""
    return bool(_ACTIONS.match(action.strip()))


class Need(NamedTuple):
    """One condition of an action: whether it holds, and how to say so."""

    holds: bool
    yes: str
    no: str
    evidence: str = ""
    """The comparison that shows it; "" if `yes` or `no` says enough."""
    is_negated: bool = False
    """The comparison must not hold: one cannot go to where one is."""

    @property
    def text(self) -> str:
        """The conclusion, or comparison and answer, such as `cup 1 pan 2 want mug 1: no`."""
        if self.evidence:
            return f"{self.evidence}: {'yes' if self.holds != self.is_negated else 'no'}"
        return self.yes if self.holds else self.no


@dataclass
class _NeedsOfAction:
    """The rules of the game: what each kind of action needs, in the order in which a reader checks it."""

    knowledge: Knowledge

    def of(self, action: str) -> list[Need]:
        match = _ACTIONS.match(action.strip())
        if not match:
            return [Need(False, "", "no such command")]
        part = {name: value for name, value in match.groupdict().items() if value}
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
        knowledge = self.knowledge
        room = f"{_joined(knowledge.receptacles)} want {place}"
        return [
            Need(place in knowledge.receptacles, "a place", "no such place", room),
            Need(
                place != knowledge.place,
                "elsewhere",
                "already there",
                self._from_here(place),
                is_negated=True,
            ),
        ]

    def _there(self, place: str) -> Need:
        return Need(place == self.knowledge.place, "there", "not there", self._from_here(place))

    def _from_here(self, place: str) -> str:
        return f"{self.knowledge.place or 'room'} want {place}"

    def _door(self, verb: str, place: str) -> list[Need]:
        door = self.knowledge.doors.get(place, "open")
        required = "closed" if verb == "open" else "open"
        return [
            Need(kind(place) in OPENABLE, "a door", "no door"),
            Need(door == required, door, f"{door} already", f"{door} want {required}"),
        ]

    def _reach(self, place: str) -> list[Need]:
        needs = [self._there(place)]
        if kind(place) in OPENABLE:
            needs.append(Need(self.knowledge.doors.get(place) != "closed", "open", "closed"))
        return needs

    def _take(self, thing: str, place: str) -> list[Need]:
        knowledge = self.knowledge
        evidence = f"{knowledge.describe_contents(place)} want {thing}"
        needs = [
            Need(not knowledge.holding, "hand free", "hand full"),
            *self._reach(place),
            Need(thing in knowledge.contents.get(place, ()), "in it", "not in it", evidence),
        ]
        return [*needs, Need(False, "", "too heavy")] if kind(thing) in LAMPS else needs

    def _move(self, thing: str, place: str) -> list[Need]:
        pair = f"{kind(thing)} in {kind(place)}"
        fits = Need(kind(thing) in HOLDS.get(kind(place), ()), f"{pair} belongs", f"{pair} does not belong")
        return [self._in_hand(thing), *self._reach(place), fits]

    def _in_hand(self, thing: str) -> Need:
        holding = self.knowledge.holding
        return Need(holding == thing, "held", "not held", f"{holding or 'nothing'} want {thing}")

    def _treat(self, verb: str, thing: str, station: str) -> list[Need]:
        evidence = f"to {verb} {STATIONS[verb]} want {kind(station)}"
        can_be_treated = kind(thing) in AFFORDS[ABILITIES[verb]]
        return [
            self._in_hand(thing),
            Need(kind(station) == STATIONS[verb], "right station", "wrong station", evidence),
            self._there(station),
            Need(can_be_treated, f"{verb} {kind(thing)} can be", f"{verb} {kind(thing)} cannot be"),
        ]

    def _use(self, thing: str) -> list[Need]:
        knowledge = self.knowledge
        here = knowledge.contents.get(knowledge.place, set())
        evidence = f"{knowledge.describe_contents(knowledge.place)} want {thing}"
        return [
            Need(kind(thing) in LAMPS, "a switch", "no switch"),
            Need(thing in here, "here", "not here", evidence),
        ]

    def _examine(self, thing: str) -> list[Need]:
        # The engine shows a place or what is held; what lies in a place it refuses to show.
        is_held = thing == self.knowledge.holding
        is_here = is_held or thing == self.knowledge.place
        return [Need(is_here, "in the hand" if is_held else "here", "not here")]
