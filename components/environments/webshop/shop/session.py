"""One shopper's session: which page is open, what can be clicked on it, and what an action leads to.

Actions are the original's: `search[words]` works on every page, `click[value]` on what the page shows, in
lower case. The short names that our states give to things work beside the original ones: `click[item 3]` for
the third result, `click[3 4 inch]` for `3 | 4 inch`. What cannot be done changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from components.environments.webshop.shop.products import Goal, Product
from components.environments.webshop.shop.reward import Score, score
from components.environments.webshop.wording import option_names, short_query

PAGE = 10
"""Results a page."""
SEARCH, RESULTS, ITEM, DONE = "search", "results", "item", "done"
SUB_PAGES = ("description", "features", "reviews")
BACK_TO_SEARCH, NEXT, PREV, BUY = "back to search", "next >", "< prev", "buy now"
_ACTION = re.compile(r"(.+)\[(.+)\]")
_ITEM = re.compile(r"item (\d{1,4})")


class Shop(Protocol):
    """What a session needs of a shop: a catalogue, or the one that a dream described."""

    def search(self, query: str) -> list[Product]:
        """The products found, the best first."""
        ...


def parse(action: str) -> tuple[str, str]:
    """(`search` or `click`, argument in lower case); ("", "") where the action has not that form."""
    found = _ACTION.match(action.strip())
    return (found[1], found[2].lower()) if found and found[1] in ("search", "click") else ("", "")


@dataclass
class Session:
    """The state of one episode. `read` holds which sub-pages were opened of which result, as (query, rank,
    page).
    """

    shop: Shop
    goal: Goal
    page: str = SEARCH
    query: str = ""
    number: int = 1
    found: Sequence[Product] = ()
    rank: int = 0
    chosen: dict[str, str] = field(default_factory=dict)
    read: frozenset[tuple[str, int, str]] = frozenset()
    score: Score | None = None

    @property
    def product(self) -> Product:
        """The product that is looked at."""
        return self.found[self.rank - 1]

    @property
    def pages(self) -> int:
        """How many pages the results have."""
        return max(1, -(-len(self.found) // PAGE))

    @property
    def shown(self) -> range:
        """The ranks of the results that the page shows, from 1."""
        return range((self.number - 1) * PAGE + 1, min(self.number * PAGE, len(self.found)) + 1)

    def fork(self) -> Session:
        """A copy that can be played on without touching this one."""
        return replace(self, chosen=dict(self.chosen))

    def clickables(self) -> list[str]:
        """What `click[...]` takes on this page, in the order of the page, by our states' names."""
        if self.page in (SEARCH, DONE):
            return []
        if self.page == RESULTS:
            more = [NEXT] if self.number < self.pages else []
            return [
                BACK_TO_SEARCH,
                *([PREV] if self.number > 1 else []),
                *more,
                *(f"item {rank}" for rank in self.shown),
            ]
        if self.page in SUB_PAGES:
            return [BACK_TO_SEARCH, PREV]
        options = [name for values in self.product.options.values() for name in option_names(values).values()]
        return [BACK_TO_SEARCH, PREV, *options, *SUB_PAGES, BUY]

    def act(self, action: str) -> bool:
        """Take one action; False if it cannot be done here, and nothing has changed."""
        verb, argument = parse(action)
        if self.page == DONE or not verb:
            return False
        if verb == "search":
            self._search(short_query(argument))
            return True
        return self._click(argument)

    def _search(self, query: str) -> None:
        self._leave()
        self.page, self.query, self.number, self.found = RESULTS, query, 1, self.shop.search(query)

    def _leave(self) -> None:
        self.rank, self.chosen = 0, {}

    def _click(self, name: str) -> bool:
        if self.page == SEARCH:
            return False
        if name == BACK_TO_SEARCH:
            self._leave()
            self.page, self.query, self.found = SEARCH, "", ()
            return True
        if self.page == RESULTS:
            return self._click_result(name)
        if self.page in SUB_PAGES:
            self.page = ITEM if name == PREV else self.page
            return name == PREV
        return self._click_item(name)

    def _click_result(self, name: str) -> bool:
        if name in (NEXT, PREV):
            to = self.number + (1 if name == NEXT else -1)
            self.number, moved = (to, True) if 1 <= to <= self.pages else (self.number, False)
            return moved
        item = _ITEM.fullmatch(name)
        rank = (
            int(item[1])
            if item
            else next((r for r in self.shown if self.found[r - 1].asin.lower() == name), 0)
        )
        if rank not in self.shown:
            return False
        self.page, self.rank = ITEM, rank
        return True

    def _click_item(self, name: str) -> bool:
        if name == PREV:
            self._leave()
            self.page = RESULTS
        elif name == BUY:
            self.score = score(self.product, self.goal, list(self.chosen.values()))
            self.page = DONE
        elif name in SUB_PAGES:
            self.page = name
            self.read |= {(self.query, self.rank, name)}
        else:
            return self._choose(name)
        return True

    def _choose(self, name: str) -> bool:
        """Choose an option, by its own words or by the states'; of two groups with a value of that name the
        last one has it, as in the original.
        """
        groups = [*self.product.options.items()]
        meant = {
            short: (group, value) for group, values in groups for value, short in option_names(values).items()
        }
        meant |= {value: (group, value) for group, values in groups for value in values}
        if name not in meant:
            return False
        group, value = meant[name]
        self.chosen[group] = value
        return True
