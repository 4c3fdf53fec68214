"""The rule-based state mapping: the engine's words -> the compact state that the agent sees, and back to
facts.

The paper's state space is an abstract text (section 4.1), the same in the real world and in the dream. Ours
keeps what the engine says, in fewer words and in an order that stays (what is new in a place stands last),
and adds what a player knows without asking: what is in the hand and what was done to it. Every state names
the place. Grammar (one line each):

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

from components.environments.alfworld.games import natural
from components.environments.protocol import Fact

_TREATED = {"heat": ("Heated", "hot"), "cool": ("Cooled", "cool"), "clean": ("Cleaned", "clean")}
_ENTITY = r"[a-z]+ \d+"
_LISTED = re.compile(rf"an? ({_ENTITY})")


@dataclass
class StateMapper:
    """Maps one episode's observations to states; it remembers the place, the hand, and what was done to each
    object.
    """

    place: str = ""
    holding: str = ""
    treated: dict[str, set[str]] = field(default_factory=dict)
    listed: dict[str, list[str]] = field(default_factory=dict)
    """Of each place: what its last listing held, in that order."""

    def initial(self, observation: str) -> str:
        """The state of a new episode from the engine's introduction."""
        names = sorted(_LISTED.findall(observation.split("Your task is to")[0].lower()), key=natural)
        return f"Room: {', '.join(names) or 'nothing'}. {self._hand()}"

    def __call__(self, observation: str) -> str:
        """The state after one step."""
        return f"{self._event(observation.lower().strip())}. {self._hand()}"

    def _hand(self) -> str:
        if not self.holding:
            return "Holding nothing."
        return "Holding " + " ".join([*sorted(self.treated.get(self.holding, ())), self.holding]) + "."

    def _where(self) -> str:
        return f"at {self.place}" if self.place else "in the room"

    def _event(self, text: str) -> str:
        if text.startswith("nothing happens"):
            return f"Nothing happens {self._where()}"
        if found := re.search(rf"you pick up the ({_ENTITY}) from the ({_ENTITY})", text):
            self.holding, self.place = found.groups()
            return f"Took {self.holding} from {self.place}"
        if found := re.search(rf"you move the ({_ENTITY}) to the ({_ENTITY})", text):
            self.holding, self.place = "", found.group(2)
            return f"Moved {found.group(1)} to {self.place}"
        if found := re.search(rf"you (heat|cool|clean) the ({_ENTITY}) using the ({_ENTITY})", text):
            return self._treat(*found.groups())
        if found := re.search(rf"you turn (on|off) the ({_ENTITY})", text):
            return f"Turned {found.group(1)} {found.group(2)} {self._where()}"
        return self._view(text)

    def _treat(self, verb: str, thing: str, station: str) -> str:
        word, result = _TREATED[verb]
        state = self.treated.setdefault(thing, set())
        state -= {"hot": {"cool"}, "cool": {"hot"}}.get(result, set())
        state.add(result)
        return f"{word} {thing} with {station}"

    def _view(self, text: str) -> str:
        found = re.search(rf"(?:you arrive at|you open the|you close the|^the|^on the) ({_ENTITY})", text)
        if not found:
            return f"Looked around {self._where()}"
        self.place = found.group(1)
        seen = self._in_order(_LISTED.findall(text.split("you see", 1)[1])) if "you see" in text else []
        listing = ", ".join(seen) or "nothing"
        if "is closed" in text or text.startswith("you close"):
            return f"At {self.place}: closed"
        self.listed[self.place] = seen
        return f"At {self.place}: {'open, ' if 'is open' in text else ''}{listing}"

    def _in_order(self, things: list[str]) -> list[str]:
        """What was listed here before keeps its order, what came since stands behind it: a listing that
        changed is the old one, edited.
        """
        before = self.listed.get(self.place, [])
        return [thing for thing in before if thing in things] + sorted(
            (thing for thing in things if thing not in before), key=natural
        )


@dataclass(frozen=True)
class Seen:
    """A parsed state: what happened, where, what is listed, and what is in the hand. `event` is "" if it
    cannot be read.
    """

    event: str
    place: str = ""
    thing: str = ""
    contents: tuple[str, ...] = ()
    door: str = ""
    holding: str = ""
    treated: frozenset[str] = frozenset()


_HAND = re.compile(
    rf"^(?P<event>.+)\. Holding (?:nothing|(?P<how>(?:(?:hot|cool|clean) )*)(?P<what>{_ENTITY}))\.$"
)
_FORMS = (
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


def read_state(state: str) -> Seen:
    """Parse a state text; its `event` is "" when the text does not follow the grammar (a dream may write
    anything).
    """
    hand = _HAND.match(state)
    if not hand:
        return Seen("")
    holding, how = hand["what"] or "", frozenset((hand["how"] or "").split())
    for event, form in _FORMS:
        if found := form.match(hand["event"]):
            groups = found.groupdict()
            listing = groups.get("list") or ""
            contents = tuple(listing.split(", ")) if listing and listing != "nothing" else ()
            door = (groups.get("door") or "").strip(", ")
            if event == "at" and (door == "closed") == bool(listing):
                break
            return Seen(
                event, groups.get("place") or "", groups.get("thing") or "", contents, door, holding, how
            )
    return Seen("")


def state_facts(state: str) -> set[Fact]:
    """What one state asserts by itself; a text outside the grammar asserts only `("unreadable", text)`."""
    seen = read_state(state)
    if not seen.event:
        return {("unreadable", state)}
    facts: set[Fact] = {("holding", seen.holding or "nothing"), ("at", seen.place or "room")}
    facts |= {("treated", seen.holding, how) for how in seen.treated}
    if seen.event == "at":
        facts |= {("in", thing, seen.place) for thing in seen.contents}
        facts |= {("door", seen.place, seen.door)} if seen.door else set()
        facts |= {("empty", seen.place)} if not seen.contents and seen.door != "closed" else set()
    if seen.event == "room":
        facts |= {("receptacle", name) for name in seen.contents}
    if seen.event == "moved":
        facts.add(("in", seen.thing, seen.place))
    if seen.event in ("took", "moved", "treated", "lit", "failed", "looked"):
        facts.add(("event", seen.event, seen.thing))
    return facts


_SINGLE = {"holding": 1, "at": 1, "door": 2, "event": 1}
"""Kind of fact -> length of the part that has one value only."""


def contradicts(claim: Fact, truth: set[Fact]) -> bool:
    """True if `truth`, the facts of a real state, denies `claim`; being silent on it is not a denial."""
    if claim in truth:
        return False
    if claim[0] == "unreadable":
        return True
    if claim[0] in _SINGLE:
        size = _SINGLE[claim[0]]
        return claim[0] == "event" or any(fact[:size] == claim[:size] for fact in truth)
    if claim[0] == "in":
        place = claim[2]
        listed = any(fact[0] == "in" and fact[2] == place for fact in truth) or ("empty", place) in truth
        return listed or ("door", place, "closed") in truth or ("holding", claim[1]) in truth
    if claim[0] == "empty":
        return (
            any(fact[0] == "in" and fact[2] == claim[1] for fact in truth)
            or ("door", claim[1], "closed") in truth
        )
    if claim[0] == "treated":
        return ("holding", claim[1]) in truth
    return claim[0] == "receptacle" and any(fact[0] == "receptacle" for fact in truth)
