"""Products and goals, read from records in the form of the official files.

`official.py` reads such records from disk, `generated.py` generates them. Both become the same two classes
here, so whatever is true of one catalogue is true of the other. The original draws the maximum price of a
goal that people wrote again in every process. Here the draw depends on the goal alone, so a task is the same
everywhere.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.environments.webshop.shop.prices import read_prices
from components.errors import EnvironmentFailure

NO_LIMIT = 1_000_000.0
"""The maximum price of a goal that names none."""
_REQUIRED_FIELDS = (
    "asin",
    "name",
    "category",
    "query",
    "product_category",
    "full_description",
    "small_description",
    "customization_options",
)
_PLACEHOLDER_ATTRIBUTES = ("DUMMY_ATTR",)


@dataclass(frozen=True)
class Product:
    """One product.

    `prices` are one or two dollar amounts as the shop shows them; `price` is what it costs, the lower of the
    two. `options` maps a lower-case name (`color`) to lower-case values. `attributes` are hidden from the
    shopper.
    """

    asin: str
    name: str
    category: str
    query: str
    product_category: str
    description: str
    bullets: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    prices: tuple[float, ...]
    price: float

    @property
    def price_tag(self) -> str:
        """The price as the shop writes it."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def indexed(self) -> str:
        """The text for the search engine: title, description, first bullet, options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return f"{self.name} {self.description} {self.bullets[0] if self.bullets else ''} {options}".lower()


@dataclass(frozen=True)
class Goal:
    """What one shopper wants.

    `key` names it within its catalogue. The other fields are those that the reward compares.
    """

    key: str
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_upper: float


def read_product(record: Any, attributes: Mapping[str, Any], source: str) -> Product:
    """Return the product of one record of items_shuffle*.json, with its entry of items_ins_v2*.json.

    Raises:
        EnvironmentFailure: a field is missing or of another type; the message names `source`, the product and
            the field.
    """
    asin = str(record.get("asin", "without asin")) if isinstance(record, dict) else "that is no mapping"
    missing_fields = [
        field for field in _REQUIRED_FIELDS if not isinstance(record, dict) or field not in record
    ]
    if missing_fields:
        raise _unreadable_field(source, asin, missing_fields[0], "is missing")
    for field in ("name", "category", "query", "product_category"):
        if not isinstance(record[field], str):
            raise _unreadable_field(source, asin, field, f"is {record[field]!r}, not a text")
    bullets = record["small_description"]
    prices = read_prices(record.get("pricing"))
    if not prices:
        raise _unreadable_field(
            source, asin, "pricing", f"is {record.get('pricing')!r}, which is no price in dollars"
        )
    attribute_entry = _attribute_entry(attributes.get(asin), asin, source)
    return Product(
        asin,
        record["name"],
        record["category"],
        record["query"].lower().strip(),
        record["product_category"],
        str(record["full_description"] or ""),
        tuple(map(str, bullets)) if isinstance(bullets, list) else (str(bullets or ""),),
        _read_options(record["customization_options"], asin, source),
        tuple(attribute_entry.get("attributes") or _PLACEHOLDER_ATTRIBUTES),
        prices,
        prices[0],
    )


def _attribute_entry(entry: Any, asin: str, source: str) -> dict[str, Any]:
    """Return the entry of items_ins_v2*.json for a product; {} if it has none."""
    if not isinstance(entry or {}, dict):
        raise _unreadable_field(source, asin, "instruction", f"is in {entry!r}, which is no mapping")
    return entry or {}


def _unreadable_field(source: str, asin: str, field: str, problem: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"{source}: the field {field!r} of the product {asin} {problem}.",
        f"Expected WebShop's product files, whose products have {', '.join(_REQUIRED_FIELDS)}.",
        "Correct the file, or set environment.webshop.catalogue=generated.",
    )


def _read_options(groups: Any, asin: str, source: str) -> dict[str, tuple[str, ...]]:
    if not groups:
        return {}
    try:
        return {
            name.lower(): tuple(entry["value"].strip().replace("/", " | ").lower() for entry in entries)
            for name, entries in groups.items()
            if entries
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise _unreadable_field(
            source, asin, "customization_options", f"cannot be read ({error!r})"
        ) from None


def human_goals(product: Product, entries: Any, source: str) -> list[Goal]:
    """Return the goals of items_human_ins.json for one product.

    Goals without attributes are left out, as in the original.

    Raises:
        EnvironmentFailure: a field is missing; the message names `source`, the product and the field.
    """
    if not isinstance(entries, list | tuple | None):
        raise _unreadable_field(source, product.asin, "goals", f"is {entries!r}, not a list")
    goals = []
    for number, entry in enumerate(entries or ()):
        fields = ("instruction", "instruction_attributes", "instruction_options")
        missing_fields = [field for field in fields if not isinstance(entry, dict) or field not in entry]
        if missing_fields:
            raise _unreadable_field(source, product.asin, missing_fields[0], f"is missing in goal {number}")
        instruction, attributes, options = (entry[field] for field in fields)
        if not isinstance(instruction, str):
            raise _unreadable_field(
                source, product.asin, "instruction", f"is {instruction!r} in goal {number}, not a text"
            )
        if attributes:
            goals.append(_make_goal(product, number, instruction.strip("."), attributes, options))
    return goals


def synthetic_goals(product: Product, entry: Any, source: str) -> list[Goal]:
    """Return the goals of one product's entry of items_ins_v2*.json: one per combination of its options.

    Raises:
        EnvironmentFailure: there is an instruction without attributes.
    """
    attribute_entry = _attribute_entry(entry, product.asin, source)
    instruction = attribute_entry.get("instruction")
    if not instruction:
        return []
    if not isinstance(instruction, str):
        raise _unreadable_field(source, product.asin, "instruction", f"is {instruction!r}, not a text")
    attributes = attribute_entry.get("instruction_attributes")
    if not attributes:
        raise _unreadable_field(source, product.asin, "instruction_attributes", "is missing")
    names = sorted(product.options)
    goals = []
    for number, values in enumerate(itertools.product(*(product.options[name] for name in names))):
        option_words = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        goals.append(
            _make_goal(
                product,
                number,
                instruction + (f" with {option_words}" if option_words else ""),
                attributes,
                values,
            )
        )
    return goals


def _make_goal(
    product: Product, number: int, instruction: str, attributes: Sequence[str], options: Sequence[str]
) -> Goal:
    limit = price_limit(product.price, f"{product.asin}/{number}")
    limit_words = f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""
    return Goal(
        f"{product.asin}/{number}",
        product.asin,
        product.category,
        product.query,
        product.name,
        product.product_category,
        instruction + limit_words,
        tuple(attributes),
        tuple(options),
        limit,
    )


def price_limit(price: float, key: str) -> float:
    """Return the larger of two different draws from the next four multiples of $10 above `price`.

    NO_LIMIT from $980 on. `key` decides the draw.
    """
    first = int(price // 10) + 1 if price >= 0 else 1
    pairs = list(itertools.combinations(range(first, min(first + 4, 100)), 2))
    return 10.0 * max(pairs[zlib.crc32(key.encode()) % len(pairs)]) if pairs else NO_LIMIT
