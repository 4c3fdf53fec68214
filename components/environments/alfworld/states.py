"""The rule-based state mapping: from the engine's text to the compact state of the agent, and on to facts.

The paper's state space is an abstract text (section 4.1), the same in the real world and in the dream. Ours
keeps what the engine says, in fewer words and in a stable order (what is new in a place stands last). It adds
what a player knows without asking: what is in the hand and what was done to it. Every state names the place.
Grammar, one line each:

    Room: cabinet 1, fridge 1. Holding nothing.
    At shelf 2: plate 1, vase 2. Holding nothing.            (open surface; `nothing` when empty)
    At fridge 1: closed. Holding mug 1.
    At fridge 1: open, egg 1, mug 2. Holding hot mug 1.      (`open, nothing` when empty)
    Took mug 1 from desk 1. Holding mug 1.
    Moved mug 1 to desk 1. Holding nothing.
    Heated mug 1 with microwave 1. Holding hot mug 1.        (Cooled, Cleaned likewise)
    Turned on desklamp 1 at desk 1. Holding book 1.
    Looked around at desk 1. Holding nothing.                (look, help, inventory, examine an object)
    Nothing happens at desk 1. Holding nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from components.environments.alfworld.games import natural_order
from components.environments.protocol import Fact

_TREATMENT_WORDS = {"heat": ("Heated", "hot"), "cool": ("Cooled", "cool"), "clean": ("Cleaned", "clean")}
_ENTITY = r"[a-z]+ \d+"
_LISTED = re.compile(rf"an? ({_ENTITY})")
_VIEW = re.compile(rf"(?:you arrive at|you open the|you close the|^the|^on the) ({_ENTITY})")


@dataclass
class StateMapper:
    """Maps one episode's observations to states; it remembers place, hand, treatments and listings."""

    place: str = ""
    holding: str = ""
    treated: dict[str, set[str]] = field(default_factory=dict)
    """Object -> what was done to it."""
    listed: dict[str, list[str]] = field(default_factory=dict)
    """Place -> what its last listing held, in that order."""

    def initial(self, observation: str) -> str:
        """Return the state of a new episode, from the engine's introduction."""
        introduction = observation.split("Your task is to")[0].lower()
        names = sorted(_LISTED.findall(introduction), key=natural_order)
        return f"Room: {', '.join(names) or 'nothing'}. {self._hand()}"

    def __call__(self, observation: str) -> str:
        """Return the state after one step."""
        return f"{self._event(observation.lower().strip())}. {self._hand()}"

    def _hand(self) -> str:
        if not self.holding:
            return "Holding nothing."
        return "Holding " + " ".join([*sorted(self.treated.get(self.holding, ())), self.holding]) + "."

    def _position(self) -> str:
        return f"at {self.place}" if self.place else "in the room"

    def _event(self, text: str) -> str:
        if text.startswith("nothing happens"):
            return f"Nothing happens {self._position()}"
        if match := re.search(rf"you pick up the ({_ENTITY}) from the ({_ENTITY})", text):
            self.holding, self.place = match.groups()
            return f"Took {self.holding} from {self.place}"
        if match := re.search(rf"you move the ({_ENTITY}) to the ({_ENTITY})", text):
            self.holding = ""
            self.place = match.group(2)
            return f"Moved {match.group(1)} to {self.place}"
        if match := re.search(rf"you (heat|cool|clean) the ({_ENTITY}) using the ({_ENTITY})", text):
            return self._treat(*match.groups())
        if match := re.search(rf"you turn (on|off) the ({_ENTITY})", text):
            return f"Turned {match.group(1)} {match.group(2)} {self._position()}"
        return self._view(text)

    def _treat(self, verb: str, thing: str, station: str) -> str:
        word, result = _TREATMENT_WORDS[verb]
        treatments = self.treated.setdefault(thing, set())
        treatments -= {"hot": {"cool"}, "cool": {"hot"}}.get(result, set())
        treatments.add(result)
        return f"{word} {thing} with {station}"

    def _view(self, text: str) -> str:
        match = _VIEW.search(text)
        if not match:
            return f"Looked around {self._position()}"
        self.place = match.group(1)
        things = _LISTED.findall(text.split("you see", 1)[1]) if "you see" in text else []
        contents = self._in_stable_order(things)
        if "is closed" in text or text.startswith("you close"):
            return f"At {self.place}: closed"
        self.listed[self.place] = contents
        door = "open, " if "is open" in text else ""
        return f"At {self.place}: {door}{', '.join(contents) or 'nothing'}"

    def _in_stable_order(self, things: list[str]) -> list[str]:
        """Return `things` in the order of the last listing of this place, new ones behind the others.

        So a listing that changed is the old one, edited.
        """
        before = self.listed.get(self.place, [])
        new_things = sorted((thing for thing in things if thing not in before), key=natural_order)
        return [thing for thing in before if thing in things] + new_things


@dataclass(frozen=True)
class ParsedState:
    """A state: what happened, where, what is listed, and what is in the hand.

    `event` is "" if the text does not follow the grammar.
    """

    event: str
    place: str = ""
    thing: str = ""
    contents: tuple[str, ...] = ()
    door: str = ""
    holding: str = ""
    treated: frozenset[str] = frozenset()
    """What was done to the thing in the hand."""


_HAND = re.compile(
    rf"^(?P<event>.+)\. Holding (?:nothing|(?P<how>(?:(?:hot|cool|clean) )*)(?P<what>{_ENTITY}))\.$"
)
_EVENTS = (
    ("room", re.compile(rf"^Room: (?P<list>nothing|{_ENTITY}(?:, {_ENTITY})*)$")),
    (
        "at",
        re.compile(
            rf"^At (?P<place>{_ENTITY}): (?P<door>closed|open, |)(?P<list>nothing|{_ENTITY}(?:, "
            rf"{_ENTITY})*|)$"
        ),
    ),
    ("took", re.compile(rf"^Took (?P<thing>{_ENTITY}) from (?P<place>{_ENTITY})$")),
    ("moved", re.compile(rf"^Moved (?P<thing>{_ENTITY}) to (?P<place>{_ENTITY})$")),
    (
        "treated",
        re.compile(rf"^(?P<how>Heated|Cooled|Cleaned) (?P<thing>{_ENTITY}) with (?P<place>{_ENTITY})$"),
    ),
    ("lit", re.compile(rf"^Turned (?:on|off) (?P<thing>{_ENTITY}) (?:at (?P<place>{_ENTITY})|in the room)$")),
    ("looked", re.compile(rf"^Looked around (?:at (?P<place>{_ENTITY})|in the room)$")),
    ("failed", re.compile(rf"^Nothing happens (?:at (?P<place>{_ENTITY})|in the room)$")),
)


def read_state(state: str) -> ParsedState:
    """Parse a state. A dream may write anything: `event` is "" if the text does not follow the grammar."""
    hand = _HAND.match(state)
    if not hand:
        return ParsedState("")
    holding = hand["what"] or ""
    treated = frozenset((hand["how"] or "").split())
    for event, pattern in _EVENTS:
        if match := pattern.match(hand["event"]):
            groups = match.groupdict()
            listing = groups.get("list") or ""
            contents = tuple(listing.split(", ")) if listing and listing != "nothing" else ()
            door = (groups.get("door") or "").strip(", ")
            if event == "at" and (door == "closed") == bool(listing):
                break
            place = groups.get("place") or ""
            return ParsedState(event, place, groups.get("thing") or "", contents, door, holding, treated)
    return ParsedState("")


def state_facts(state: str) -> set[Fact]:
    """Return what one state asserts by itself.

    A text that does not follow the grammar asserts only `("unreadable", text)`.
    """
    parsed = read_state(state)
    if not parsed.event:
        return {("unreadable", state)}
    facts: set[Fact] = {("holding", parsed.holding or "nothing"), ("at", parsed.place or "room")}
    facts |= {("treated", parsed.holding, how) for how in parsed.treated}
    if parsed.event == "at":
        facts |= {("in", thing, parsed.place) for thing in parsed.contents}
        facts |= {("door", parsed.place, parsed.door)} if parsed.door else set()
        facts |= {("empty", parsed.place)} if not parsed.contents and parsed.door != "closed" else set()
    if parsed.event == "room":
        facts |= {("receptacle", name) for name in parsed.contents}
    if parsed.event == "moved":
        facts.add(("in", parsed.thing, parsed.place))
    if parsed.event in ("took", "moved", "treated", "lit", "failed", "looked"):
        facts.add(("event", parsed.event, parsed.thing))
    return facts


_SINGLE_VALUED = {"holding": 1, "at": 1, "door": 2, "event": 1}
"""Kind of fact that has one value only -> length of the part that names it."""


def contradicts(claim: Fact, truth: set[Fact]) -> bool:
    """Return True if `truth`, the facts of a real state, denies `claim`. Silence is no denial."""
    if claim in truth:
        return False
    if claim[0] == "unreadable":
        return True
    if claim[0] in _SINGLE_VALUED:
        size = _SINGLE_VALUED[claim[0]]
        return claim[0] == "event" or any(fact[:size] == claim[:size] for fact in truth)
    if claim[0] == "in":
        return _denies_content(claim[1], claim[2], truth)
    if claim[0] == "empty":
        place = claim[1]
        return _lists_content(place, truth) or ("door", place, "closed") in truth
    if claim[0] == "treated":
        return ("holding", claim[1]) in truth
    return claim[0] == "receptacle" and any(fact[0] == "receptacle" for fact in truth)


def _denies_content(thing: str, place: str, truth: set[Fact]) -> bool:
    is_listed = _lists_content(place, truth) or ("empty", place) in truth
    return is_listed or ("door", place, "closed") in truth or ("holding", thing) in truth


def _lists_content(place: str, truth: set[Fact]) -> bool:
    return any(fact[0] == "in" and fact[2] == place for fact in truth)
