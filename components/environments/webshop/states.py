"""The compact states that the agent sees of the shop's pages: their grammar, parser and facts.

`shop/state_text.py` writes them.

The paper's state space is an abstract text (section 4.1), the same in the real world and in the dream. A
state keeps of a page what a shopper chooses by. A result is named by its rank, which is short and the same in
the state and in the action. Prices are whole dollars. An item page keeps the features once they have been
read in this search. Everything is in lower case, and every state names the page. Grammar, one line each:

    search page.
    results 1 of 5 for cotton oxford shirt: item 1 halden cotton slim oxford shirt for 25, item 2 merrow
        oxford shirt for 31.
    item 2: merrow oxford shirt for 31. color: navy, red. size: small, large. chosen: nothing.
    features of item 2: merrow oxford shirt for 31. color: navy, red. size: small, large. features: cotton,
        slim. chosen: navy.
    item 2: merrow oxford shirt for 31. color: navy, red. size: small, large. features: cotton, slim. chosen:
        navy, large.
    description of item 2: merrow oxford shirt for 31. color: navy, red. description: an oxford shirt by
        merrow. chosen: nothing.
    reviews of item 2: merrow oxford shirt for 31. color: navy, red. reviews: nothing. chosen: nothing.
    bought item 2. chosen: navy, large.
    nothing happens on results 1.          (also: on search page, on item 2, on features of item 2, with what
        is chosen there)
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from components.environments.protocol import Fact
from components.environments.webshop.shop.session import SUB_PAGES

INITIAL_STATE = "search page."
"""The initial state of every task."""
NO_WORDS = "?"
"""The query of a search without a word, which finds nothing."""


@dataclass(frozen=True)
class ParsedState:
    """A parsed state.

    `event` is `search`, `results`, `item`, `description`, `features`, `reviews`, `bought` or `failed`, and ""
    if the text cannot be read. `place` is where the next action is taken: `results 1`, `item 2`, `features of
    item 2`. `features` is None where none are shown.
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
_ITEM_PAGE = re.compile(rf"^(?:({'|'.join(SUB_PAGES)}) of )?item (\d{{1,4}}): (.+) for ({_PRICE})$")
_BOUGHT = re.compile(r"^bought item (\d{1,4})$")
_FAILED = re.compile(
    rf"^nothing happens on (search page|results \d{{1,4}}|(?:(?:{'|'.join(SUB_PAGES)}) of )?item "
    rf"(\d{{1,4}}))$"
)
_UNREADABLE = ParsedState("")


@functools.lru_cache(maxsize=50_000)
def read_state(state: str) -> ParsedState:
    """Parse a state text.

    `event` is "" when the text does not follow the grammar; a dream may write anything.
    """
    if state == INITIAL_STATE:
        return ParsedState("search", "search page")
    if not state.endswith("."):
        return _UNREADABLE
    if state.startswith("results "):
        return _read_results(state)
    head, *parts = state[:-1].split(". ")
    if match := _FAILED.match(head):
        return _read_failed(match[1], int(match[2] or 0), parts)
    if match := _BOUGHT.match(head):
        chosen = _values_after("chosen", parts[0]) if len(parts) == 1 else None
        return (
            _UNREADABLE
            if chosen is None
            else ParsedState("bought", f"item {match[1]}", rank=int(match[1]), chosen=chosen)
        )
    return _read_item_page(head, parts)


def _read_results(state: str) -> ParsedState:
    match = _RESULTS.match(state)
    if not match:
        return _UNREADABLE
    number = int(match[1])
    pages = int(match[2])
    listing = match[4]
    lines = [] if listing == "nothing" else [_RESULT.match(line) for line in listing.split(", ")]
    if not all(lines):
        return _UNREADABLE
    items = tuple((int(line[1]), line[2], line[3]) for line in lines if line)
    return ParsedState("results", f"results {number}", match[3], number, pages, items)


def _read_failed(place: str, rank: int, parts: list[str]) -> ParsedState:
    chosen = _values_after("chosen", parts[0]) if len(parts) == 1 else ()
    if chosen is None or len(parts) != (1 if rank else 0):
        return _UNREADABLE
    return ParsedState("failed", place, rank=rank, chosen=chosen)


def _read_item_page(head: str, parts: list[str]) -> ParsedState:
    match = _ITEM_PAGE.match(head)
    pairs = [part.partition(": ") for part in parts]
    if (
        not match
        or not pairs
        or not all(colon and values for _, colon, values in pairs)
        or pairs[-1][0] != "chosen"
    ):
        return _UNREADABLE
    event = match[1] or "item"
    rank = int(match[2])
    place = f"item {rank}" if event == "item" else f"{event} of item {rank}"
    parts_by_name = {name: values for name, _, values in pairs}
    reserved = [name for name in parts_by_name if name in ("features", "description", "reviews", "chosen")]
    if (
        len(parts_by_name) != len(pairs)
        or (event != "item" and event not in parts_by_name)
        or any(n in parts_by_name for n in SUB_PAGES[::2] if n != event)
    ):
        return _UNREADABLE
    groups = tuple(
        (name, tuple(values.split(", "))) for name, values in parts_by_name.items() if name not in reserved
    )
    features = _split_values(parts_by_name["features"]) if "features" in parts_by_name else None
    text = parts_by_name.get(event, "") if event in SUB_PAGES[::2] else ""
    return ParsedState(
        event,
        place,
        rank=rank,
        title=match[3],
        price=match[4],
        groups=groups,
        features=features,
        text=text,
        chosen=_split_values(parts_by_name["chosen"]),
    )


def _values_after(name: str, part: str) -> tuple[str, ...] | None:
    part_name, colon, values = part.partition(": ")
    return _split_values(values) if colon and part_name == name and values else None


def _split_values(values: str) -> tuple[str, ...]:
    return () if values == "nothing" else tuple(values.split(", "))


def state_facts(state: str) -> set[Fact]:
    """Return what one state asserts by itself; `("unreadable", text)` alone if it cannot be read."""
    page = read_state(state)
    if not page.event:
        return {("unreadable", state)}
    facts: set[Fact] = {("at", page.place)}
    if page.event in ("failed", "bought"):
        facts.add(("event", page.event))
    if page.event == "results":
        facts |= {("query", page.query), ("pages", str(page.pages))}
        facts |= {
            fact
            for rank, title, price in page.items
            for fact in (("title", str(rank), title), ("price", str(rank), price))
        }
        facts |= set() if page.items else {("found", "nothing")}
    if page.rank:
        facts |= {("chosen", str(page.rank), value) for value in page.chosen or ("nothing",)}
    if page.title:
        rank = str(page.rank)
        facts |= {("title", rank, page.title), ("price", rank, page.price)}
        facts |= {("option", rank, name, value) for name, values in page.groups for value in values}
        facts |= {
            ("feature", rank, text)
            for text in (() if page.features is None else page.features or ("nothing",))
        }
        facts |= {(page.event, rank, page.text)} if page.text else set()
    return facts


_SINGLE_VALUED = {"at": 1, "query": 1, "pages": 1, "title": 2, "price": 2, "description": 2, "reviews": 2}
"""Kind of fact that has a single value -> length of the part that identifies it."""
_MULTI_VALUED = {"option": 2, "feature": 2, "chosen": 2}
"""Kind of fact whose values a state names all or none of -> length of the part that identifies it."""


def contradicts(claim: Fact, truth: set[Fact]) -> bool:
    """Return whether `truth`, the facts of a real state, denies `claim`. Silence on it is no denial."""
    if claim in truth:
        return False
    if claim[0] in ("unreadable", "event"):
        return True
    if claim[0] == "found":
        return any(fact[0] == "title" for fact in truth)
    size = _SINGLE_VALUED.get(claim[0]) or _MULTI_VALUED.get(claim[0], 0)
    if any(fact[:size] == claim[:size] for fact in truth):
        return True
    # A results page lists all its results, so a result that it does not list does not exist.
    return claim[0] in ("title", "price") and any(fact[0] in ("pages", "found") for fact in truth)
