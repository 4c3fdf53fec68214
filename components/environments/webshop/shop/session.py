"""One shopper's session: which page is open, what can be clicked on it, and what an action leads to.

Actions are the original's. `search[words]` works on every page, `click[value]` on what the page shows, in
lower case. The short names of our states work in addition to the original ones: `click[item 3]` for the third
result, `click[3 4 inch]` for `3 | 4 inch`. An impossible action changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from components.environments.webshop.shop.products import Goal, Product
from components.environments.webshop.shop.reward import Score, score_purchase
from components.environments.webshop.wording import option_names, short_query

RESULTS_PER_PAGE = 10
"""Results per page."""
SEARCH = "search"
RESULTS = "results"
ITEM = "item"
DONE = "done"
SUB_PAGES = ("description", "features", "reviews")
BACK_TO_SEARCH = "back to search"
NEXT = "next >"
PREV = "< prev"
BUY = "buy now"
_ACTION_FORM = re.compile(r"(.+)\[(.+)\]")
_ITEM_NAME = re.compile(r"item (\d{1,4})")


class Shop(Protocol):
    """What a session needs of a shop: a catalogue, or the shop that a dream described."""

    def search(self, query: str) -> list[Product]:
        """Return the products found, the best first."""
        ...


def parse_action(action: str) -> tuple[str, str]:
    """Return (`search` or `click`, argument in lower case).

    ("", "") where the action has another form.
    """
    match = _ACTION_FORM.match(action.strip())
    return (match[1], match[2].lower()) if match and match[1] in ("search", "click") else ("", "")


@dataclass
class Session:
    """The state of one episode.

    `opened_sub_pages` are the sub-pages of results that were opened, as (query, rank, page).
    """

    shop: Shop
    goal: Goal
    page: str = SEARCH
    query: str = ""
    number: int = 1
    results: Sequence[Product] = ()
    rank: int = 0
    chosen: dict[str, str] = field(default_factory=dict)
    opened_sub_pages: frozenset[tuple[str, int, str]] = frozenset()
    score: Score | None = None

    @property
    def product(self) -> Product:
        """The product whose page is open."""
        return self.results[self.rank - 1]

    @property
    def pages(self) -> int:
        """The number of pages of results."""
        return max(1, -(-len(self.results) // RESULTS_PER_PAGE))

    @property
    def shown_ranks(self) -> range:
        """The ranks of the results that the page shows, from 1."""
        return range(
            (self.number - 1) * RESULTS_PER_PAGE + 1,
            min(self.number * RESULTS_PER_PAGE, len(self.results)) + 1,
        )

    def fork(self) -> Session:
        """Return a copy that can be played on without a change of this session."""
        return replace(self, chosen=dict(self.chosen))

    def clickables(self) -> list[str]:
        """Return what `click[...]` takes on this page, in the order of the page, by our states' names."""
        if self.page in (SEARCH, DONE):
            return []
        if self.page == RESULTS:
            more = [NEXT] if self.number < self.pages else []
            return [
                BACK_TO_SEARCH,
                *([PREV] if self.number > 1 else []),
                *more,
                *(f"item {rank}" for rank in self.shown_ranks),
            ]
        if self.page in SUB_PAGES:
            return [BACK_TO_SEARCH, PREV]
        options = [name for values in self.product.options.values() for name in option_names(values).values()]
        return [BACK_TO_SEARCH, PREV, *options, *SUB_PAGES, BUY]

    def act(self, action: str) -> bool:
        """Take one action. Return False if it is impossible here; then nothing has changed."""
        verb, argument = parse_action(action)
        if self.page == DONE or not verb:
            return False
        if verb == "search":
            self._search(short_query(argument))
            return True
        return self._click(argument)

    def _search(self, query: str) -> None:
        self._leave_item()
        self.page = RESULTS
        self.query = query
        self.number = 1
        self.results = self.shop.search(query)

    def _leave_item(self) -> None:
        self.rank = 0
        self.chosen = {}

    def _click(self, name: str) -> bool:
        if self.page == SEARCH:
            return False
        if name == BACK_TO_SEARCH:
            self._leave_item()
            self.page = SEARCH
            self.query = ""
            self.results = ()
            return True
        if self.page == RESULTS:
            return self._click_result(name)
        if self.page in SUB_PAGES:
            self.page = ITEM if name == PREV else self.page
            return name == PREV
        return self._click_item(name)

    def _click_result(self, name: str) -> bool:
        if name in (NEXT, PREV):
            number = self.number + (1 if name == NEXT else -1)
            exists = 1 <= number <= self.pages
            self.number = number if exists else self.number
            return exists
        match = _ITEM_NAME.fullmatch(name)
        rank = (
            int(match[1])
            if match
            else next((r for r in self.shown_ranks if self.results[r - 1].asin.lower() == name), 0)
        )
        if rank not in self.shown_ranks:
            return False
        self.page = ITEM
        self.rank = rank
        return True

    def _click_item(self, name: str) -> bool:
        if name == PREV:
            self._leave_item()
            self.page = RESULTS
        elif name == BUY:
            self.score = score_purchase(self.product, self.goal, list(self.chosen.values()))
            self.page = DONE
        elif name in SUB_PAGES:
            self.page = name
            self.opened_sub_pages |= {(self.query, self.rank, name)}
        else:
            return self._choose(name)
        return True

    def _choose(self, name: str) -> bool:
        """Choose an option, by its own words or by the states' short name.

        Of two groups with a value of that name the last one has it, as in the original.
        """
        groups = [*self.product.options.items()]
        choices = {
            short: (group, value) for group, values in groups for value, short in option_names(values).items()
        }
        choices |= {value: (group, value) for group, values in groups for value in values}
        if name not in choices:
            return False
        group, value = choices[name]
        self.chosen[group] = value
        return True
