"""What an instruction asks for, as far as its words tell. A shopper knows nothing else of the goal.

The instructions of a generated catalogue follow two wordings and are read exactly. Those that people wrote
for the official products are free text. Of them only the price and the words are known, and `kind` is "".
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from components.environments.webshop.shop.assortment import BY_NAME, Kind
from components.environments.webshop.wording import short_query

_LIMIT = re.compile(r",? and price lower than (\d+)\.00 dollars$")
_ADJECTIVES = re.compile(r"^i want an? (.+?)(?: in (.+))?$")
_RELATIVE = re.compile(r"^find me an? (.+?) that is (.+?)(?:, with (.+))?$")
_WORD = re.compile(r"[\w'-]+")
_FILLERS_TEXT = """
i i'm im am a an the and or but of for in on at to from by with that this is are it its be can could would
should will want wants need needs like looking look find me my please some any buy get purchase having have
has which also one ones so as color size style lower than price dollars under less more them they their there
not
"""
_FILLERS = frozenset(_FILLERS_TEXT.split())


@dataclass(frozen=True)
class Requirements:
    """The attributes and options that a product must have, and its highest price in dollars.

    A `limit` of 0 is no limit.
    """

    kind: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: int
    words: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the instruction was read completely; False if it is free text."""
        return bool(self.kind)

    @property
    def query(self) -> str:
        """What to search for."""
        return short_query(
            " ".join([*self.attributes, self.kind, *self.options] if self.kind else self.words)
        )


@functools.lru_cache(maxsize=50_000)
def read_requirements(instruction: str) -> Requirements:
    """Return what `instruction` asks for."""
    text = instruction.strip().rstrip(".").lower()
    limit = _LIMIT.search(text)
    body = text[: limit.start()] if limit else text
    words = tuple(dict.fromkeys(word for word in _WORD.findall(body) if word not in _FILLERS))
    limit_dollars = int(limit[1]) if limit else 0
    parts = _read_relative(body) or _read_adjectives(body)
    if parts and _is_sellable(*parts):
        kind, attributes, options = parts
        return Requirements(kind, tuple(attributes), tuple(options), limit_dollars, words)
    return Requirements("", (), (), limit_dollars, words)


def keywords(instruction: str) -> str:
    """Return what a shopper would search for first."""
    return read_requirements(instruction).query or "product"


def _read_relative(body: str) -> tuple[str, list[str], list[str]] | None:
    match = _RELATIVE.match(body)
    if not match:
        return None
    return match[1], match[2].split(" and "), match[3].split(" and ") if match[3] else []


def _read_adjectives(body: str) -> tuple[str, list[str], list[str]] | None:
    match = _ADJECTIVES.match(body)
    if not match:
        return None
    head = match[1]
    kind = next(
        (
            name
            for name in sorted(BY_NAME, key=len, reverse=True)
            if head == name or head.endswith(f" {name}")
        ),
        "",
    )
    attributes = _split_attributes(BY_NAME[kind], head.removesuffix(kind).split()) if kind else None
    return None if attributes is None else (kind, attributes, match[2].split(", ") if match[2] else [])


def _split_attributes(kind: Kind, words: list[str]) -> list[str] | None:
    """Return `words` as attributes of `kind`, of one or two words each; None if they are not."""
    values = {value for group in kind.groups for value in group}
    phrases: list[str] = []
    while words:
        size = next((size for size in (2, 1) if " ".join(words[:size]) in values), 0)
        if not size:
            return None
        phrases.append(" ".join(words[:size]))
        words = words[size:]
    return phrases


def _is_sellable(name: str, attributes: list[str], options: list[str]) -> bool:
    """Return whether the kind exists and has all attributes and options.

    At most one attribute per group and one value per option.
    """
    kind = BY_NAME.get(name)
    if kind is None or not attributes:
        return False
    return _has_one_per_group(attributes, kind.groups) and _has_one_per_group(
        options, tuple(values for _, values in kind.options)
    )


def _has_one_per_group(values: list[str], groups: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether every value has a group of its own."""
    places = [place for value in values for place, group in enumerate(groups) if value in group]
    return len(places) == len(values) == len(set(places))
