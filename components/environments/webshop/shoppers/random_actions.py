"""Shoppers that act at random or err at random, and the impossible actions that they take."""

from __future__ import annotations

import random
from dataclasses import dataclass

from components.environments.protocol import NO_ACTION
from components.environments.webshop.goals import Requirements
from components.environments.webshop.knowledge import Knowledge
from components.environments.webshop.shop.assortment import COLOURS, KINDS, SIZES
from components.environments.webshop.shop.session import SUB_PAGES
from components.environments.webshop.shoppers.expert import ExpertShopper
from components.environments.webshop.wording import short_query

_MALFORMED_ACTIONS = (
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


@dataclass
class NoisyShopper:
    """The expert with another action in one step of four.

    Half of these actions are admissible (a purchase seldom), half are most likely refused.
    """

    expert: ExpertShopper
    error: float = 0.25

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        """Return the next action."""
        rng = self.expert.rng
        if rng.random() >= self.error:
            return self.expert.act(knowledge, admissible)
        if rng.random() < 0.5:
            return impossible_action(knowledge, self.expert.requirements, rng)
        return rng.choice(_without_purchase(admissible, rng, 0.2) or admissible)


@dataclass
class RandomShopper:
    """Random actions: impossible, malformed, searches, and admissible ones. Uses no rule of the expert's."""

    expert: ExpertShopper

    def act(self, knowledge: Knowledge, admissible: list[str]) -> str:
        """Return the next action."""
        rng = self.expert.rng
        requirements = self.expert.requirements
        luck = rng.random()
        if luck < 0.30:
            return impossible_action(knowledge, requirements, rng)
        if luck < 0.36:
            return rng.choice(_MALFORMED_ACTIONS)
        if luck < 0.50:
            return f"search[{random_query(requirements, rng)}]"
        return rng.choice(_without_purchase(admissible, rng, 0.5) or admissible)


def _without_purchase(admissible: list[str], rng: random.Random, keep: float) -> list[str]:
    """Return `admissible` without the purchase, which is kept with probability `keep`."""
    return (
        admissible if rng.random() < keep else [action for action in admissible if action != "click[buy now]"]
    )


def impossible_action(knowledge: Knowledge, requirements: Requirements, rng: random.Random) -> str:
    """Return a well-formed action that the shop will most likely refuse.

    It is not on this page, not among these options, or there is no such result.
    """
    values = knowledge.item.values if knowledge.item else []
    plausible = [*requirements.options, *requirements.attributes, *values] or ["large"]
    ranks = [item.rank for item in knowledge.listed_items]
    last = (ranks or [1])[-1]
    choices = (
        f"click[{rng.choice(plausible)}]",
        f"click[{rng.choice([*COLOURS, *SIZES])}]",
        f"click[item {rng.choice([last + 1, last + rng.randint(2, 9), rng.randint(1, 12)])}]",
        f"click[item {rng.randint(1, 10)}]" if knowledge.rank else "click[buy now]",
        "click[buy now]" if not knowledge.on_item else f"click[{requirements.kind or 'product'}]",
        f"click[{rng.choice(SUB_PAGES)}]" if not knowledge.on_item else "click[next >]",
        rng.choice(("click[next >]", "click[< prev]", "click[back to search]", "click[search]"))
        if not knowledge.rank
        else "click[next >]",
        f"click[{rng.choice(('nothing', 'cart', 'price', 'yes', 'none', 'item'))}]",
    )
    return rng.choice(choices)


def random_query(requirements: Requirements, rng: random.Random) -> str:
    """Return words to search for that fit the task more or less."""
    kind = requirements.kind or " ".join(requirements.words[:3])
    other = rng.choice(KINDS).name
    queries = (
        requirements.query,
        kind,
        f"{' '.join(requirements.attributes[:1])} {kind}",
        " ".join(requirements.options),
        other,
        f"{kind} {other}",
    )
    return short_query(rng.choice(queries)) or "product"
