"""What a shopper can know from the own trajectory: nothing hidden, only what the states said.

Experts shop with it, the programmatic teacher reasons with it, and `embody` reads the shop that a dream
described from it. Works on real and dreamed trajectories alike; a state that cannot be read changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from components.environments.webshop.goals import Wants
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.reward import has_attribute, same_option
from components.environments.webshop.shop.session import PAGE
from components.environments.webshop.states import Seen, read_state
from components.records import Trajectory

YES, NO, UNSEEN = "yes", "no", "unseen"


@dataclass(frozen=True)
class Item:
    """What is known of one result. `groups` is None until its page was open, `features` until they were
    read.
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
        """The least that it may cost."""
        return int(self.price.split(" ")[0])

    def attribute(self, wanted: str, kind: str = "") -> str:
        """Whether it has an attribute: `yes`; `no` where its features were read, or its title names another
        of that group; else `unseen`.
        """
        if has_attribute(wanted, self.features or (), (self.title, self.description)):
            return YES
        return (
            NO
            if self.features is not None
            or any(f" {other} " in f" {self.title} " for other in rivals(kind, wanted))
            else UNSEEN
        )

    def option(self, wanted: str) -> str:
        """The value that counts as the wanted one; "" if there is none."""
        exact = [value for value in self.values if value == wanted]
        return next(iter(exact or [value for value in self.values if same_option(wanted, value)]), "")


@functools.lru_cache(maxsize=5000)
def rivals(kind: str, wanted: str) -> tuple[str, ...]:
    """The attributes that a product of `kind` cannot have beside `wanted`, such as `narrow` beside `wide`."""
    groups = BY_NAME[kind].groups if kind in BY_NAME else ()
    return tuple(other for group in groups if wanted in group for other in group if other != wanted)


class Check(NamedTuple):
    """One comparison of what was got with what is wanted: the words of both, and `yes`, `no` or `unseen`."""

    got: str
    wanted: str
    answer: str

    @property
    def words(self) -> str:
        """`navy large want navy: yes`."""
        return f"{self.got or 'nothing'} want {self.wanted}: {self.answer}"


@dataclass
class Knowledge:
    """What the states of a trajectory have told so far. Results are known by (query, rank), their pages by
    (query, number).
    """

    place: str = ""
    query: str = ""
    number: int = 0
    pages: int = 0
    rank: int = 0
    chosen: tuple[str, ...] = ()
    done: bool = False
    listings: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    items: dict[tuple[str, int], Item] = field(default_factory=dict)
    shown: set[tuple[str, int, str]] = field(default_factory=set)
    """Which pages of a result were open, as (query, rank, page)."""

    def see(self, state: str) -> None:
        """Take in one state."""
        seen = read_state(state)
        if seen.event in ("", "failed"):
            return
        self.place, self.rank, self.chosen = seen.place, seen.rank, seen.chosen
        self.done = seen.event == "bought"
        if seen.event == "search":
            self.query, self.number, self.pages = "", 0, 0
        elif seen.event == "results":
            self._list(seen)
        elif seen.title:
            self._look(seen)

    def _list(self, seen: Seen) -> None:
        self.query, self.number, self.pages = seen.query, seen.number, seen.pages
        self.lengths[seen.query] = seen.pages
        self.listings[seen.query, seen.number] = tuple(rank for rank, _, _ in seen.items)
        for rank, title, price in seen.items:
            self.items.setdefault((seen.query, rank), Item(rank, title, price))

    def _look(self, seen: Seen) -> None:
        key = (self.query, seen.rank)
        known = self.items.get(key) or Item(seen.rank, seen.title, seen.price)
        description = seen.text if seen.event == "description" else known.description
        features = known.features if seen.features is None else seen.features
        self.items[key] = replace(known, groups=seen.groups, features=features, description=description)
        self.shown.add((*key, seen.event))

    @property
    def item(self) -> Item | None:
        """The result that is looked at, if one is."""
        return self.items.get((self.query, self.rank)) if self.rank else None

    @property
    def on_item(self) -> bool:
        """True on an item's own page, where options are chosen and things are bought."""
        return bool(self.rank) and self.place.startswith("item") and not self.done

    @property
    def listed(self) -> list[Item]:
        """The results that the open page shows."""
        if self.place != f"results {self.number}":
            return []
        return [self.items[self.query, rank] for rank in self.listings.get((self.query, self.number), ())]

    def results(self) -> Iterator[Item]:
        """The known results of the present search."""
        return (item for (query, _), item in self.items.items() if query == self.query)


def learn(trajectory: Trajectory) -> Knowledge:
    """The knowledge after all states of `trajectory`."""
    knowledge = Knowledge()
    for state in trajectory.states:
        knowledge.see(state)
    return knowledge


def judge(item: Item, wants: Wants) -> list[Check]:
    """What is wanted of the product itself, beside what is known of it: kind, price, options that it must
    have, attributes.
    """
    checks = (
        [Check(item.title, wants.kind, YES if set(wants.kind.split()) <= set(item.title.split()) else NO)]
        if wants.kind
        else []
    )
    if wants.limit:
        checks.append(
            Check(
                f"for {item.price}", f"lower than {wants.limit}", YES if item.dollars <= wants.limit else NO
            )
        )
    if item.groups is not None:
        checks += [
            Check(" ".join(item.values), wanted, YES if item.option(wanted) else NO)
            for wanted in wants.options
        ]
    got = [item.title if item.features is None else " ".join(item.features)] * len(wants.attributes)
    return checks + [
        Check(text, wanted, item.attribute(wanted, wants.kind))
        for text, wanted in zip(got, wants.attributes, strict=True)
    ]


def verdict(item: Item, wants: Wants) -> str:
    """`no` if something is wrong with the product, `unseen` if something has yet to be looked at, else
    `yes`.
    """
    answers = [check.answer for check in judge(item, wants)]
    if NO in answers:
        return NO
    return UNSEEN if UNSEEN in answers or item.groups is None else YES


def picks(item: Item, wants: Wants) -> list[str]:
    """The option values to choose, as the item's page names them; of free text those of each group whose
    words all stand in it.
    """
    if wants.exact:
        return [value for wanted in wants.options if (value := item.option(wanted))]
    said = set(wants.words)
    fitting = [[value for value in values if set(value.split()) <= said] for _, values in item.groups or ()]
    return [max(values, key=lambda value: len(value.split())) for values in fitting if values]


def missing(item: Item, wants: Wants, chosen: tuple[str, ...]) -> str:
    """The first option that is still to be chosen, as its page names it; "" if none is left."""
    return next(
        (value for value in picks(item, wants) if not any(same_option(value, have) for have in chosen)), ""
    )


def page_of(rank: int) -> int:
    """The page of results that shows `rank`."""
    return (rank - 1) // PAGE + 1
