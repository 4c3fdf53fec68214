"""A made-up catalogue in the form of WebShop's product files, for those who do not have them.

Scores on it are not WebShop benchmark scores. It has what makes the benchmark a task: dozens of products of
each kind, titles that name some of the attributes and features that name the rest, options that not every
product has, prices on both sides of what the shopper would pay, and near-duplicates: the same brand and kind
with one attribute changed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from components.environments.webshop.shop.assortment import BRAND_BEGINS, BRAND_ENDS, KINDS, Kind

GOALS_A_PRODUCT = 4
_TWIN = 0.3
"""Share of products that are a near-duplicate of the one before of their kind."""
_ASIN = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class _Draft:
    """A product before it is written down: one attribute of each group, and which of them the title names."""

    kind: Kind
    brand: str
    attributes: tuple[str, ...]
    titled: tuple[int, ...]
    options: dict[str, list[str]]
    price: float

    @property
    def title(self) -> str:
        """Brand, some attributes, kind."""
        return " ".join([self.brand, *(self.attributes[place] for place in self.titled), self.kind.name])


def records(products: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """The contents of items_shuffle.json, items_ins_v2.json and items_human_ins.json; the same for the same
    arguments.
    """
    rng = random.Random(f"webshop/{seed}")
    brands = _brands(rng)
    last: dict[str, _Draft] = {}
    sold: list[dict[str, Any]] = []
    attributes: dict[str, Any] = {}
    goals: dict[str, Any] = {}
    for number in range(products):
        kind = KINDS[number % len(KINDS)]
        before = last.get(kind.name)
        draft = (
            _twin(rng, before) if before and rng.random() < _TWIN else _draft(rng, kind, brands[kind.name])
        )
        last[kind.name] = draft
        asin = f"B{number:04d}{''.join(rng.choices(_ASIN, k=5))}"
        sold.append(_record(asin, draft))
        attributes[asin] = {"attributes": list(draft.attributes)}
        goals[asin] = [_goal(rng, draft) for _ in range(GOALS_A_PRODUCT)]
    rng.shuffle(sold)
    return sold, attributes, goals


def _brands(rng: random.Random) -> dict[str, list[str]]:
    """Of each kind the brands that make it; no two kinds share one."""
    names = [begin + end for begin in BRAND_BEGINS for end in BRAND_ENDS]
    rng.shuffle(names)
    share = len(names) // len(KINDS)
    return {kind.name: names[place * share : (place + 1) * share] for place, kind in enumerate(KINDS)}


def _draft(rng: random.Random, kind: Kind, brands: list[str]) -> _Draft:
    attributes = tuple(rng.choice(group) for group in kind.groups)
    titled = tuple(sorted(rng.sample(range(len(attributes)), 2)))
    options = {name: _some(rng, values) for name, values in kind.options}
    low, high = kind.prices
    return _Draft(
        kind,
        rng.choice(brands),
        attributes,
        titled,
        options,
        rng.randint(low, high) - rng.choice((0.01, 0.05, 0.51, 0.0)),
    )


def _some(rng: random.Random, values: tuple[str, ...]) -> list[str]:
    """Two to five of `values`, in their order."""
    chosen = rng.sample(range(len(values)), min(len(values), rng.randint(2, 5)))
    return [values[place] for place in sorted(chosen)]


def _twin(rng: random.Random, before: _Draft) -> _Draft:
    """The same but for one attribute, and maybe for its price and one group of options."""
    place = rng.randrange(len(before.attributes))
    others = [value for value in before.kind.groups[place] if value != before.attributes[place]]
    changed = tuple(
        rng.choice(others) if number == place else value for number, value in enumerate(before.attributes)
    )
    name, values = rng.choice(before.kind.options)
    price = before.price if rng.random() < 0.3 else max(1.99, before.price + rng.randint(-6, 6))
    return replace(
        before, attributes=changed, options=before.options | {name: _some(rng, values)}, price=price
    )


def _record(asin: str, draft: _Draft) -> dict[str, Any]:
    kind = draft.kind
    return {
        "asin": asin,
        "name": f"{draft.title}, {kind.tail}".title(),
        "category": kind.department,
        "query": kind.name,
        "product_category": f"{kind.department} › {kind.shelf} › {kind.name}",
        "full_description": f"A {kind.name} that {draft.brand} makes for your {kind.department}.",
        "small_description": list(draft.attributes),
        "pricing": f"${draft.price:.2f}",
        "customization_options": {
            name: [{"value": value, "image": None, "url": None} for value in values]
            for name, values in draft.options.items()
        },
        "images": [""],
    }


def _goal(rng: random.Random, draft: _Draft) -> dict[str, Any]:
    """One or two attributes, and one option of some groups, in one of two wordings."""
    attributes = [
        draft.attributes[place]
        for place in sorted(rng.sample(range(len(draft.attributes)), rng.choice((1, 2, 2))))
    ]
    names = sorted(rng.sample(list(draft.options), rng.choice((0, 1, 2, 2))))
    options = [rng.choice(draft.options[name]) for name in names]
    words = rng.choice((_adjectives, _relative))(draft.kind.name, attributes, options)
    return {"instruction": words, "instruction_attributes": attributes, "instruction_options": options}


def _adjectives(kind: str, attributes: list[str], options: list[str]) -> str:
    """`i want a cotton slim oxford shirt in navy, large`."""
    head = " ".join([*attributes, kind])
    return f"i want {'an' if head[0] in 'aeiou' else 'a'} {head}" + (
        f" in {', '.join(options)}" if options else ""
    )


def _relative(kind: str, attributes: list[str], options: list[str]) -> str:
    """`find me a oxford shirt that is cotton and slim, with navy and large`."""
    article = "an" if kind[0] in "aeiou" else "a"
    return f"find me {article} {kind} that is {' and '.join(attributes)}" + (
        f", with {' and '.join(options)}" if options else ""
    )
