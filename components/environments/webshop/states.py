"""The rule-based state mapping: a page of the shop -> the compact state that the agent sees, and back to
facts.

The paper's state space is an abstract text (section 4.1), the same in the real world and in the dream. Ours
keeps of a page what a shopper chooses by. A result has its rank for a name, which is short and stands in the
same words in the state and in the action; prices are whole dollars; an item page keeps the features once they
have been read in this search, as a shopper would. Everything is in lower case and every state names the page.
Grammar (one line each):

    search page.
    results 1 of 5 for cotton oxford shirt: item 1 halden cotton slim oxford shirt for 25, item 2 merrow
    oxford shirt for 31. item 2: merrow oxford shirt for 31. color: navy, red. size: small, large. chosen:
    nothing. features of item 2: merrow oxford shirt for 31. color: navy, red. size: small, large. features:
    cotton, slim. chosen: navy. item 2: merrow oxford shirt for 31. color: navy, red. size: small, large.
    features: cotton, slim. chosen: navy, large. description of item 2: merrow oxford shirt for 31. color:
    navy, red. description: an oxford shirt by merrow. chosen: nothing. reviews of item 2: merrow oxford shirt
    for 31. color: navy, red. reviews: nothing. chosen: nothing. bought item 2. chosen: navy, large. nothing
    happens on results 1.                  (on search page, on item 2, on features of item 2 ... with what is
    chosen there)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.protocol import Fact
from components.environments.webshop.shop.products import Product
from components.environments.webshop.shop.session import DONE, ITEM, RESULTS, SEARCH, SUB_PAGES, Session
from components.environments.webshop.wording import (
    LONGEST_DESCRIPTION,
    MOST_FEATURES,
    MOST_GROUPS,
    MOST_OPTIONS,
    option_names,
    plain,
    short_feature,
    short_group,
    short_price,
    short_title,
)

FIRST = "search page."
"""The initial state of every task."""
NO_WORDS = "?"
"""The query of a search without a word, which finds nothing."""


def describe(session: Session) -> str:
    """The state of the page that is open."""
    if session.page == SEARCH:
        return FIRST
    if session.page == RESULTS:
        listed = ", ".join(f"item {rank} {_line(session.found[rank - 1])}" for rank in session.shown)
        return (
            f"results {session.number} of {session.pages} for {session.query or NO_WORDS}: "
            f"{listed or 'nothing'}."
        )
    if session.page == DONE:
        return f"bought item {session.rank}. {_chosen(session)}"
    return f"{_place(session)}: {_line(session.product)}. {_details(session)}{_chosen(session)}"


def failed(session: Session) -> str:
    """The state after an action that could not be done on the page that is open."""
    chosen = f" {_chosen(session)}" if session.rank else ""
    return f"nothing happens on {_place(session)}.{chosen}"


def _place(session: Session) -> str:
    if session.page == SEARCH:
        return "search page"
    if session.page == RESULTS:
        return f"results {session.number}"
    return (
        f"item {session.rank}" if session.page in (ITEM, DONE) else f"{session.page} of item {session.rank}"
    )


def _line(product: Product) -> str:
    return f"{short_title(product.name)} for {short_price(product)}"


def _details(session: Session) -> str:
    """Options, features if they were read in this search, and what the sub-page shows."""
    product = session.product
    parts = [f"{name}: {', '.join(_values(session, values))}" for name, values in _groups(product).items()]
    if (session.query, session.rank, "features") in session.read:
        parts.append(
            f"features: {', '.join(map(short_feature, product.bullets[:MOST_FEATURES])) or 'nothing'}"
        )
    if session.page in ("description", "reviews"):
        shown = (
            plain(product.description, LONGEST_DESCRIPTION)
            if session.page == "description" and product.description
            else "nothing"
        )
        parts.append(f"{session.page}: {shown}")
    return "".join(f"{part}. " for part in parts)


def _groups(product: Product) -> dict[str, Sequence[str]]:
    """Short name -> values of the groups that are shown; of two with one short name the second has a number
    behind it.
    """
    found: dict[str, Sequence[str]] = {}
    for number, (name, values) in enumerate([*product.options.items()][:MOST_GROUPS], 1):
        short = short_group(name)
        found[f"{short} {number}" if short in found else short] = values
    return found


def _values(session: Session, values: Sequence[str]) -> list[str]:
    """The values of a group; of a long one those whose words the instruction has come first, and the rest is
    cut off.
    """
    shown = list(option_names(tuple(values)).values())
    if len(shown) <= MOST_OPTIONS:
        return shown
    said = set(session.goal.instruction.lower().replace(",", " ").replace(".", " ").split())
    return sorted(shown, key=lambda value: not set(value.split()) <= said)[:MOST_OPTIONS]


def _chosen(session: Session) -> str:
    return f"chosen: {', '.join(_in_order(session)) or 'nothing'}."


def _in_order(session: Session) -> list[str]:
    """The chosen values in the order of their groups."""
    return [
        option_names(values)[session.chosen[name]]
        for name, values in session.product.options.items()
        if name in session.chosen
    ]


@dataclass(frozen=True)
class Seen:
    """A parsed state. `event` is `search`, `results`, `item`, `description`, `features`, `reviews`, `bought`
    or `failed`, and "" if it cannot be read. `place` is what an action finds itself on: `results 1`, `item
    2`, `features of item 2`. `features` is None where none are shown.
    """

    event: str
    place: str = ""
    query: str = ""
    number: int = 0
    pages: int = 0
    items: tuple[tuple[int, str, str], ...] = ()
    rank: int = 0
    title: str = ""
    price: str = ""
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    features: tuple[str, ...] | None = None
    text: str = ""
    chosen: tuple[str, ...] = ()


_PRICE = r"\d{1,7}(?: to \d{1,7})?"
_RESULTS = re.compile(r"^results (\d{1,4}) of (\d{1,4}) for ([\w ]+|\?): (.+)\.$")
_RESULT = re.compile(rf"^item (\d{{1,4}}) (.+) for ({_PRICE})$")
_LOOK = re.compile(rf"^(?:({'|'.join(SUB_PAGES)}) of )?item (\d{{1,4}}): (.+) for ({_PRICE})$")
_BOUGHT = re.compile(r"^bought item (\d{1,4})$")
_FAILED = re.compile(
    rf"^nothing happens on (search page|results \d{{1,4}}|(?:(?:{'|'.join(SUB_PAGES)}) of )?item "
    rf"(\d{{1,4}}))$"
)
_NOTHING = Seen("")


@functools.lru_cache(maxsize=50_000)
def read_state(state: str) -> Seen:
    """Parse a state text; its `event` is "" when the text does not follow the grammar (a dream may write
    anything).
    """
    if state == FIRST:
        return Seen("search", "search page")
    if not state.endswith("."):
        return _NOTHING
    if state.startswith("results "):
        return _read_results(state)
    head, *parts = state[:-1].split(". ")
    if found := _FAILED.match(head):
        return _read_failed(found[1], int(found[2] or 0), parts)
    if found := _BOUGHT.match(head):
        chosen = _after("chosen", parts[0]) if len(parts) == 1 else None
        return (
            _NOTHING
            if chosen is None
            else Seen("bought", f"item {found[1]}", rank=int(found[1]), chosen=chosen)
        )
    return _read_look(head, parts)


def _read_results(state: str) -> Seen:
    found = _RESULTS.match(state)
    if not found:
        return _NOTHING
    number, pages, listing = int(found[1]), int(found[2]), found[4]
    lines = [] if listing == "nothing" else [_RESULT.match(line) for line in listing.split(", ")]
    if not all(lines):
        return _NOTHING
    items = tuple((int(line[1]), line[2], line[3]) for line in lines if line)
    return Seen("results", f"results {number}", found[3], number, pages, items)


def _read_failed(place: str, rank: int, parts: list[str]) -> Seen:
    chosen = _after("chosen", parts[0]) if len(parts) == 1 else ()
    if chosen is None or len(parts) != (1 if rank else 0):
        return _NOTHING
    return Seen("failed", place, rank=rank, chosen=chosen)


def _read_look(head: str, parts: list[str]) -> Seen:
    found, pairs = _LOOK.match(head), [part.partition(": ") for part in parts]
    if (
        not found
        or not pairs
        or not all(colon and values for _, colon, values in pairs)
        or pairs[-1][0] != "chosen"
    ):
        return _NOTHING
    event, rank = found[1] or "item", int(found[2])
    place = f"item {rank}" if event == "item" else f"{event} of item {rank}"
    named = {name: values for name, _, values in pairs}
    told = [name for name in named if name in ("features", "description", "reviews", "chosen")]
    if (
        len(named) != len(pairs)
        or (event != "item" and event not in named)
        or any(n in named for n in SUB_PAGES[::2] if n != event)
    ):
        return _NOTHING
    groups = tuple((name, tuple(values.split(", "))) for name, values in named.items() if name not in told)
    features = _list(named["features"]) if "features" in named else None
    text = named.get(event, "") if event in SUB_PAGES[::2] else ""
    return Seen(
        event,
        place,
        rank=rank,
        title=found[3],
        price=found[4],
        groups=groups,
        features=features,
        text=text,
        chosen=_list(named["chosen"]),
    )


def _after(name: str, part: str) -> tuple[str, ...] | None:
    found, colon, values = part.partition(": ")
    return _list(values) if colon and found == name and values else None


def _list(values: str) -> tuple[str, ...]:
    return () if values == "nothing" else tuple(values.split(", "))


def state_facts(state: str) -> set[Fact]:
    """What one state asserts by itself; a text outside the grammar asserts only `("unreadable", text)`."""
    seen = read_state(state)
    if not seen.event:
        return {("unreadable", state)}
    facts: set[Fact] = {("at", seen.place)}
    if seen.event in ("failed", "bought"):
        facts.add(("event", seen.event))
    if seen.event == "results":
        facts |= {("query", seen.query), ("pages", str(seen.pages))}
        facts |= {
            fact
            for rank, title, price in seen.items
            for fact in (("title", str(rank), title), ("price", str(rank), price))
        }
        facts |= set() if seen.items else {("found", "nothing")}
    if seen.rank:
        facts |= {("chosen", str(seen.rank), value) for value in seen.chosen or ("nothing",)}
    if seen.title:
        rank = str(seen.rank)
        facts |= {("title", rank, seen.title), ("price", rank, seen.price)}
        facts |= {("option", rank, name, value) for name, values in seen.groups for value in values}
        facts |= {
            ("feature", rank, text)
            for text in (() if seen.features is None else seen.features or ("nothing",))
        }
        facts |= {(seen.event, rank, seen.text)} if seen.text else set()
    return facts


_SINGLE = {"at": 1, "query": 1, "pages": 1, "title": 2, "price": 2, "description": 2, "reviews": 2}
"""Kind of fact -> length of the part that has one value only."""
_LISTED = {"option": 2, "feature": 2, "chosen": 2}
"""Kind of fact -> length of the part whose values a state names all or none of."""


def contradicts(claim: Fact, truth: set[Fact]) -> bool:
    """True if `truth`, the facts of a real state, denies `claim`; being silent on it is not a denial."""
    if claim in truth:
        return False
    if claim[0] in ("unreadable", "event"):
        return True
    if claim[0] == "found":
        return any(fact[0] == "title" for fact in truth)
    size = _SINGLE.get(claim[0]) or _LISTED.get(claim[0], 0)
    if any(fact[:size] == claim[:size] for fact in truth):
        return True
    # A results page lists what it found: a result that is not on it is none.
    return claim[0] in ("title", "price") and any(fact[0] in ("pages", "found") for fact in truth)
