"""A generated catalogue in the form of WebShop's product files, for users without these files.

Scores on it are not WebShop benchmark scores. It has what makes the benchmark a task:

- dozens of products of each kind,
- titles that name some of the attributes, and features that name the rest,
- options that not every product has,
- prices on both sides of what the shopper would pay,
- near-duplicates: the same brand and kind with one attribute changed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from components.environments.webshop.shop.assortment import BRAND_BEGINNINGS, BRAND_ENDINGS, KINDS, Kind

GOALS_PER_PRODUCT = 4
_TWIN_SHARE = 0.3
"""Share of products that are a near-duplicate of the previous one of their kind."""
_ASIN = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class _Draft:
    """A product before it is written as a record.

    It has one attribute of each group; `titled` are the places of those that the title names.
    """

    kind: Kind
    brand: str
    attributes: tuple[str, ...]
    titled: tuple[int, ...]
    options: dict[str, list[str]]
    price: float

    @property
    def title(self) -> str:
        """The title: brand, some attributes, kind."""
        return " ".join([self.brand, *(self.attributes[place] for place in self.titled), self.kind.name])


def generate_records(
    product_count: int, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Return the contents of items_shuffle.json, items_ins_v2.json and items_human_ins.json.

    They are the same for the same arguments.
    """
    rng = random.Random(f"webshop/{seed}")
    brands = _brands(rng)
    last_drafts: dict[str, _Draft] = {}
    records: list[dict[str, Any]] = []
    attributes: dict[str, Any] = {}
    goals: dict[str, Any] = {}
    for number in range(product_count):
        kind = KINDS[number % len(KINDS)]
        before = last_drafts.get(kind.name)
        draft = (
            _draft_twin(rng, before)
            if before and rng.random() < _TWIN_SHARE
            else _draft(rng, kind, brands[kind.name])
        )
        last_drafts[kind.name] = draft
        asin = f"B{number:04d}{''.join(rng.choices(_ASIN, k=5))}"
        records.append(_product_record(asin, draft))
        attributes[asin] = {"attributes": list(draft.attributes)}
        goals[asin] = [_goal_record(rng, draft) for _ in range(GOALS_PER_PRODUCT)]
    rng.shuffle(records)
    return records, attributes, goals


def _brands(rng: random.Random) -> dict[str, list[str]]:
    """Return the brands of each kind. No two kinds share one."""
    names = [begin + end for begin in BRAND_BEGINNINGS for end in BRAND_ENDINGS]
    rng.shuffle(names)
    share = len(names) // len(KINDS)
    return {kind.name: names[place * share : (place + 1) * share] for place, kind in enumerate(KINDS)}


def _draft(rng: random.Random, kind: Kind, brands: list[str]) -> _Draft:
    attributes = tuple(rng.choice(group) for group in kind.groups)
    titled = tuple(sorted(rng.sample(range(len(attributes)), 2)))
    options = {name: _sample_in_order(rng, values) for name, values in kind.options}
    low, high = kind.prices
    return _Draft(
        kind,
        rng.choice(brands),
        attributes,
        titled,
        options,
        rng.randint(low, high) - rng.choice((0.01, 0.05, 0.51, 0.0)),
    )


def _sample_in_order(rng: random.Random, values: tuple[str, ...]) -> list[str]:
    """Return two to five of `values`, in their order."""
    places = rng.sample(range(len(values)), min(len(values), rng.randint(2, 5)))
    return [values[place] for place in sorted(places)]


def _draft_twin(rng: random.Random, before: _Draft) -> _Draft:
    """Return the same product but for one attribute, and maybe for its price and one group of options."""
    place = rng.randrange(len(before.attributes))
    others = [value for value in before.kind.groups[place] if value != before.attributes[place]]
    changed = tuple(
        rng.choice(others) if number == place else value for number, value in enumerate(before.attributes)
    )
    name, values = rng.choice(before.kind.options)
    price = before.price if rng.random() < 0.3 else max(1.99, before.price + rng.randint(-6, 6))
    return replace(
        before,
        attributes=changed,
        options=before.options | {name: _sample_in_order(rng, values)},
        price=price,
    )


def _product_record(asin: str, draft: _Draft) -> dict[str, Any]:
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


def _goal_record(rng: random.Random, draft: _Draft) -> dict[str, Any]:
    """Return a goal with one or two attributes and one option of some groups, in one of two wordings."""
    attributes = [
        draft.attributes[place]
        for place in sorted(rng.sample(range(len(draft.attributes)), rng.choice((1, 2, 2))))
    ]
    names = sorted(rng.sample(list(draft.options), rng.choice((0, 1, 2, 2))))
    options = [rng.choice(draft.options[name]) for name in names]
    instruction = rng.choice((_instruction_with_adjectives, _instruction_with_clause))(
        draft.kind.name, attributes, options
    )
    return {"instruction": instruction, "instruction_attributes": attributes, "instruction_options": options}


def _instruction_with_adjectives(kind: str, attributes: list[str], options: list[str]) -> str:
    """Return an instruction such as `i want a cotton slim oxford shirt in navy, large`."""
    head = " ".join([*attributes, kind])
    return f"i want {'an' if head[0] in 'aeiou' else 'a'} {head}" + (
        f" in {', '.join(options)}" if options else ""
    )


def _instruction_with_clause(kind: str, attributes: list[str], options: list[str]) -> str:
    """Return an instruction with a relative clause.

    Such as `find me an oxford shirt that is cotton and slim, with navy and large`.
    """
    article = "an" if kind[0] in "aeiou" else "a"
    return f"find me {article} {kind} that is {' and '.join(attributes)}" + (
        f", with {' and '.join(options)}" if options else ""
    )
