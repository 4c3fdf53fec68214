"""What a shopper can know from a trajectory: nothing hidden, only what its states have said.

Experts shop with it, the programmatic teacher reasons with it, and `embody` reads the shop that a dream
described from it. It works on real and dreamed trajectories alike. An unreadable state changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from components.environments.webshop.goals import Requirements
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.reward import has_attribute, same_option
from components.environments.webshop.shop.session import RESULTS_PER_PAGE
from components.environments.webshop.states import ParsedState, read_state
from components.records import Trajectory

YES = "yes"
NO = "no"
UNSEEN = "unseen"


@dataclass(frozen=True)
class Item:
    """What is known of one result.

    `groups` is None until its page was open, `features` is None until they were read.
    """

    rank: int
    title: str
    price: str
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    features: tuple[str, ...] | None = None
    description: str = ""

    @property
    def values(self) -> list[str]:
        """All option values, in the order of the page."""
        return [value for _, values in self.groups or () for value in values]

    @property
    def dollars(self) -> int:
        """The lowest price that it may have."""
        return int(self.price.split(" ")[0])

    def attribute(self, required: str, kind: str = "") -> str:
        """Return whether the item has an attribute: `yes`, `no` or `unseen`.

        `no` where its features were read, or where its title names another attribute of the same group.
        """
        if has_attribute(required, self.features or (), (self.title, self.description)):
            return YES
        return (
            NO
            if self.features is not None
            or any(f" {other} " in f" {self.title} " for other in exclusive_attributes(kind, required))
            else UNSEEN
        )

    def option(self, required: str) -> str:
        """Return the option value that counts as the required one; "" if there is none."""
        equal = [value for value in self.values if value == required]
        return next(iter(equal or [value for value in self.values if same_option(required, value)]), "")


@functools.lru_cache(maxsize=5000)
def exclusive_attributes(kind: str, required: str) -> tuple[str, ...]:
    """Return the attributes that `required` excludes in a product of `kind`, such as `narrow` for `wide`."""
    groups = BY_NAME[kind].groups if kind in BY_NAME else ()
    return tuple(other for group in groups if required in group for other in group if other != required)


class Comparison(NamedTuple):
    """One comparison of what is there with what is required.

    The words of both, and the answer: `yes`, `no` or `unseen`.
    """

    available: str
    required: str
    answer: str

    @property
    def words(self) -> str:
        """The comparison as text, such as `navy large want navy: yes`."""
        return f"{self.available or 'nothing'} want {self.required}: {self.answer}"


@dataclass
class Knowledge:
    """What the states of a trajectory have said so far.

    Results are keyed by (query, rank), their pages by (query, number).
    """

    place: str = ""
    query: str = ""
    number: int = 0
    pages: int = 0
    rank: int = 0
    chosen: tuple[str, ...] = ()
    is_purchased: bool = False
    listed_ranks: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    page_counts: dict[str, int] = field(default_factory=dict)
    items: dict[tuple[str, int], Item] = field(default_factory=dict)
    opened_pages: set[tuple[str, int, str]] = field(default_factory=set)
    """The pages of results that were open, as (query, rank, page)."""

    def add_state(self, state: str) -> None:
        """Take in one state."""
        page = read_state(state)
        if page.event in ("", "failed"):
            return
        self.place = page.place
        self.rank = page.rank
        self.chosen = page.chosen
        self.is_purchased = page.event == "bought"
        if page.event == "search":
            self.query = ""
            self.number = 0
            self.pages = 0
        elif page.event == "results":
            self._add_results(page)
        elif page.title:
            self._add_item_page(page)

    def _add_results(self, page: ParsedState) -> None:
        self.query = page.query
        self.number = page.number
        self.pages = page.pages
        self.page_counts[page.query] = page.pages
        self.listed_ranks[page.query, page.number] = tuple(rank for rank, _, _ in page.items)
        for rank, title, price in page.items:
            self.items.setdefault((page.query, rank), Item(rank, title, price))

    def _add_item_page(self, page: ParsedState) -> None:
        key = (self.query, page.rank)
        item = self.items.get(key) or Item(page.rank, page.title, page.price)
        description = page.text if page.event == "description" else item.description
        features = item.features if page.features is None else page.features
        self.items[key] = replace(item, groups=page.groups, features=features, description=description)
        self.opened_pages.add((*key, page.event))

    @property
    def item(self) -> Item | None:
        """The result whose page is open, if one is."""
        return self.items.get((self.query, self.rank)) if self.rank else None

    @property
    def on_item(self) -> bool:
        """Whether an item's own page is open, where options are chosen and the item is bought."""
        return bool(self.rank) and self.place.startswith("item") and not self.is_purchased

    @property
    def listed_items(self) -> list[Item]:
        """The results that the open page lists."""
        if self.place != f"results {self.number}":
            return []
        return [self.items[self.query, rank] for rank in self.listed_ranks.get((self.query, self.number), ())]

    def results(self) -> Iterator[Item]:
        """Return the known results of the present search."""
        return (item for (query, _), item in self.items.items() if query == self.query)


def collect_knowledge(trajectory: Trajectory) -> Knowledge:
    """Return the knowledge after all states of `trajectory`."""
    knowledge = Knowledge()
    for state in trajectory.states:
        knowledge.add_state(state)
    return knowledge


def compare_with_requirements(item: Item, requirements: Requirements) -> list[Comparison]:
    """Compare what is known of an item with what is required of the product itself.

    In order: kind, price, options that it must offer, attributes.
    """
    comparisons = (
        [
            Comparison(
                item.title,
                requirements.kind,
                YES if set(requirements.kind.split()) <= set(item.title.split()) else NO,
            )
        ]
        if requirements.kind
        else []
    )
    if requirements.limit:
        comparisons.append(
            Comparison(
                f"for {item.price}",
                f"lower than {requirements.limit}",
                YES if item.dollars <= requirements.limit else NO,
            )
        )
    if item.groups is not None:
        comparisons += [
            Comparison(" ".join(item.values), required, YES if item.option(required) else NO)
            for required in requirements.options
        ]
    texts = [item.title if item.features is None else " ".join(item.features)] * len(requirements.attributes)
    return comparisons + [
        Comparison(text, required, item.attribute(required, requirements.kind))
        for text, required in zip(texts, requirements.attributes, strict=True)
    ]


def assess_item(item: Item, requirements: Requirements) -> str:
    """Return `no` if the item misses a requirement, `unseen` if something is not known yet, else `yes`."""
    answers = [comparison.answer for comparison in compare_with_requirements(item, requirements)]
    if NO in answers:
        return NO
    return UNSEEN if UNSEEN in answers or item.groups is None else YES


def required_options(item: Item, requirements: Requirements) -> list[str]:
    """Return the option values to choose, as the item's page names them.

    For free text: of each group the longest value whose words all stand in the instruction.
    """
    if requirements.is_exact:
        return [value for required in requirements.options if (value := item.option(required))]
    words = set(requirements.words)
    fitting = [[value for value in values if set(value.split()) <= words] for _, values in item.groups or ()]
    return [max(values, key=lambda value: len(value.split())) for values in fitting if values]


def next_missing_option(item: Item, requirements: Requirements, chosen: tuple[str, ...]) -> str:
    """Return the first option still to be chosen, as its page names it; "" if none is left."""
    return next(
        (
            value
            for value in required_options(item, requirements)
            if not any(same_option(value, choice) for choice in chosen)
        ),
        "",
    )


def results_page_number(rank: int) -> int:
    """Return the number of the results page that shows `rank`."""
    return (rank - 1) // RESULTS_PER_PAGE + 1
