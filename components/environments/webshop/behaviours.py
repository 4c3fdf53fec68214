"""Behaviour policies for offline data: an expert that shops with care, one that errs, near misses, and
random.

None of them sees the shop's hidden side: they act on what the trajectory has told (`knowledge.py`), on the
instruction and on what can be clicked. The expert searches with the words of the instruction, opens results
that nothing speaks against, reads the features where the title does not tell all, chooses the wanted options
and buys. The near-miss policy does on purpose what an eager shopper does by mistake: another option or none,
a product of the right kind that lacks an attribute or costs too much, one whose features were never read,
another kind. What comes of it the shop tells, so the experience model learns from it when to say no.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from components.environments.protocol import NO_ACTION, Behaviour
from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.knowledge import (
    NO,
    UNSEEN,
    YES,
    Item,
    Knowledge,
    learn,
    missing,
    page_of,
    picks,
    verdict,
)
from components.environments.webshop.shop.assortment import COLOURS, KINDS, SIZES
from components.environments.webshop.shop.session import SUB_PAGES
from components.environments.webshop.thoughts import promise, think
from components.environments.webshop.wording import short_query
from components.errors import EnvironmentFailure
from components.records import Task, Trajectory

NAMES = ("expert", "noisy", "near_miss", "random")
_DEEPEST = 2
"""Pages of results that the expert looks at."""
_READS = {"unread": 0.0, "other product": 0.7}
"""How likely a near miss reads the features before it goes on, by its mistake."""
HASTE = 0.75
"""How likely one who forgets options buys at once, rather than choosing one of them first."""
_MALFORMED = (
    *(
        "buy",
        "click",
        "search",
        "click[]",
        "search[]",
        "click item 3",
        "[buy now]",
        "search red shoes",
        "<success>",
        "click(buy now)",
    ),
    *(
        "buy[item 1]",
        "open[item 2]",
        "Click[features]",
        "click features",
        "done",
        "choose[large]",
        "press[buy now]",
        "add to cart",
    ),
    *(NO_ACTION, NO_ACTION, NO_ACTION),
)


def make_behaviour(name: str, task: Task, seed: int) -> Behaviour:
    """A fresh behaviour policy for one episode of `task`: (trajectory, admissible actions) -> (thought,
    action).

    Raises:
        EnvironmentFailure: the name is unknown.
    """
    if name not in NAMES:
        raise EnvironmentFailure(
            f"There is no behaviour policy {name!r}.", f"Expected one of {', '.join(NAMES)}."
        )
    rng = random.Random(f"{name}/{task.id}/{seed}")
    wants = read_wants(task.instruction)
    expert = _Expert(wants, rng)
    makers: dict[str, Callable[[_Expert], _Expert | _Noisy | _NearMiss | _Random]] = {
        "expert": lambda expert: expert,
        "noisy": _Noisy,
        "near_miss": _NearMiss,
        "random": _Random,
    }
    actor = makers[name](expert)

    def behave(trajectory: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
        known = learn(trajectory)
        return think(wants, known), actor.act(known, list(admissible))

    return behave


@dataclass
class _Expert:
    wants: Wants
    rng: random.Random

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        if known.rank and known.item:
            return self.examine(known, known.item)
        return self.choose(known) if known.query else f"search[{self.wants.query}]"

    def examine(self, known: Knowledge, item: Item) -> str:
        """On a result's page: leave it, go on looking, choose, buy."""
        if verdict(item, self.wants) == NO and (self.others(known) or self.elsewhere(known)):
            return self.back(known)
        if not known.on_item:
            return "click[< prev]"
        if item.features is None and verdict(item, self.wants) != "yes":
            return "click[features]"
        value = missing(item, self.wants, known.chosen)
        return f"click[{value}]" if value else "click[buy now]"

    def back(self, known: Knowledge) -> str:
        """To the results: by searching again, which shows the same."""
        return f"search[{known.query}]"

    def choose(self, known: Knowledge) -> str:
        """On the results: the best one that nothing speaks against; else another page, another search, the
        least bad one.
        """
        found = self.others(known)
        if not found and (elsewhere := self.elsewhere(known)):
            return elsewhere
        candidates = found or list(known.results())
        return self.open(known, self.best(candidates)) if candidates else f"search[{self.wants.query}]"

    def elsewhere(self, known: Knowledge) -> str:
        """Where else to look: the next page, or a plainer search; "" if that was done."""
        if (
            known.number < min(known.pages, _DEEPEST)
            and (known.query, known.number + 1) not in known.listings
        ):
            return "click[next >]"
        return "" if (self.plainest, 1) in known.listings else f"search[{self.plainest}]"

    def open(self, known: Knowledge, item: Item) -> str:
        """Click a result, or go to the page that shows it."""
        if page_of(item.rank) != known.number:
            return "click[next >]" if page_of(item.rank) > known.number else "click[< prev]"
        return f"click[item {item.rank}]"

    def others(self, known: Knowledge) -> list[Item]:
        """The known results of this search that nothing speaks against."""
        return [item for item in known.results() if verdict(item, self.wants) != NO]

    def best(self, items: list[Item]) -> Item:
        """Of `items` the one whose title promises most, of equals the first."""
        return max(items, key=lambda item: (promise(item, self.wants), -item.rank))

    @property
    def plainest(self) -> str:
        """A search with fewer words, for when the first one found nothing."""
        return short_query(
            " ".join([self.wants.kind, *self.wants.attributes] if self.wants.exact else self.wants.words[:4])
        )


@dataclass
class _Noisy:
    """The expert, but one step in four is any other: half of these are admissible (a purchase seldom), half
    most likely refused.
    """

    expert: _Expert
    error: float = 0.25

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        if rng.random() >= self.error:
            return self.expert.act(known, admissible)
        if rng.random() < 0.5:
            return impossible(known, self.expert.wants, rng)
        return rng.choice(_unsold(admissible, rng, 0.2) or admissible)


@dataclass
class _Random:
    expert: _Expert

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng, wants = self.expert.rng, self.expert.wants
        luck = rng.random()
        if luck < 0.30:
            return impossible(known, wants, rng)
        if luck < 0.36:
            return rng.choice(_MALFORMED)
        if luck < 0.50:
            return f"search[{some_query(wants, rng)}]"
        return rng.choice(_unsold(admissible, rng, 0.5) or admissible)


@dataclass
class _NearMiss:
    """The expert up to one mistake, drawn for the episode, with impossible actions between; one episode in
    ten makes none.

    What a hasty agent does is done most often: it buys before the options are chosen, or what costs too much.
    """

    expert: _Expert
    mistake: str = field(init=False)

    def __post_init__(self) -> None:
        options = ["other option", "other option", *4 * ["no option"]] if self.expert.wants.options else []
        others = ["other product", "other product", "unread", "too dear", "too dear", "other kind", "none"]
        self.mistake = self.expert.rng.choice([*options, *others])

    def act(self, known: Knowledge, admissible: list[str]) -> str:
        rng = self.expert.rng
        if rng.random() < 0.25:
            return impossible(known, self.expert.wants, rng)
        if known.on_item and known.item:
            return self._on_item(known, known.item, admissible)
        if known.rank:
            return "click[< prev]"
        if known.listed and (wrong := self._wrong(known)):
            return f"click[item {rng.choice(wrong).rank}]"
        if not known.query and self.mistake == "other kind":
            return f"search[{short_query(' '.join([*self.expert.wants.attributes, rng.choice(KINDS).name]))}]"
        return self.expert.act(known, admissible)

    def _wrong(self, known: Knowledge) -> list[Item]:
        """Results that are wrong in the way of this episode's mistake, or may be."""
        wants = self.expert.wants
        if self.mistake == "too dear":
            return [item for item in known.listed if wants.limit and item.dollars > wants.limit]
        if self.mistake == "other kind":
            return [item for item in known.listed if not set(wants.kind.split()) <= set(item.title.split())]
        if self.mistake not in ("other product", "unread"):
            return []
        lacking = [
            item
            for item in known.listed
            if any(item.attribute(wanted, wants.kind) != YES for wanted in wants.attributes)
        ]
        looked_for = NO if self.mistake == "other product" else UNSEEN
        return [item for item in lacking if verdict(item, wants) == looked_for] or lacking

    def _on_item(self, known: Knowledge, item: Item, admissible: list[str]) -> str:
        wants, rng = self.expert.wants, self.expert.rng
        if self.mistake == "none":
            return self.expert.act(known, admissible)
        if item.features is None and rng.random() < _READS.get(self.mistake, 0.3):
            return "click[features]"
        if self.mistake == "other option":
            return self._misled(known, item)
        wanted = missing(item, wants, known.chosen)
        if self.mistake == "no option" and (not wanted or rng.random() < HASTE):
            return "click[buy now]"
        return f"click[{wanted}]" if wanted else "click[buy now]"

    def _misled(self, known: Knowledge, item: Item) -> str:
        """Another value of a group in which one is wanted, and the right ones of the others."""
        picked, rng = picks(item, self.expert.wants), self.expert.rng
        groups = [values for _, values in item.groups or () if any(value in values for value in picked)]
        if not groups:
            return "click[buy now]"
        spoilt = groups[len(known.items) % len(groups)]
        wrong = [value for value in spoilt if value not in picked]
        if wrong and not any(value in spoilt for value in known.chosen):
            return f"click[{rng.choice(wrong)}]"
        left = [value for value in picked if value not in spoilt and value not in known.chosen]
        return f"click[{left[0]}]" if left else "click[buy now]"


def _unsold(admissible: list[str], rng: random.Random, keep: float) -> list[str]:
    """`admissible` without the purchase, which is kept with probability `keep`."""
    return (
        admissible if rng.random() < keep else [action for action in admissible if action != "click[buy now]"]
    )


def impossible(known: Knowledge, wants: Wants, rng: random.Random) -> str:
    """A well-formed action that the shop will most likely refuse: not on this page, not among these options,
    no such result.
    """
    values = known.item.values if known.item else []
    tempting = [*wants.options, *wants.attributes, *values] or ["large"]
    listed = [item.rank for item in known.listed]
    last = (listed or [1])[-1]
    choices = (
        f"click[{rng.choice(tempting)}]",
        f"click[{rng.choice([*COLOURS, *SIZES])}]",
        f"click[item {rng.choice([last + 1, last + rng.randint(2, 9), rng.randint(1, 12)])}]",
        f"click[item {rng.randint(1, 10)}]" if known.rank else "click[buy now]",
        "click[buy now]" if not known.on_item else f"click[{wants.kind or 'product'}]",
        f"click[{rng.choice(SUB_PAGES)}]" if not known.on_item else "click[next >]",
        rng.choice(("click[next >]", "click[< prev]", "click[back to search]", "click[search]"))
        if not known.rank
        else "click[next >]",
        f"click[{rng.choice(('nothing', 'cart', 'price', 'yes', 'none', 'item'))}]",
    )
    return rng.choice(choices)


def some_query(wants: Wants, rng: random.Random) -> str:
    """Words to search for that are more or less to the point."""
    kind = wants.kind or " ".join(wants.words[:3])
    other = rng.choice(KINDS).name
    some = (
        wants.query,
        kind,
        f"{' '.join(wants.attributes[:1])} {kind}",
        " ".join(wants.options),
        other,
        f"{kind} {other}",
    )
    return short_query(rng.choice(some)) or "product"
