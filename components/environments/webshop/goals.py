"""What an instruction asks for, as far as its words tell: the only thing that a shopper has to go by.

The instructions of a generated catalogue follow two wordings and are read exactly. Those that people wrote
for the official products are free text: of them only the price and the words are known, and `kind` is "".
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
class Wants:
    """Attributes and options that a product must have, and the most that it may cost in dollars (0: no
    limit).
    """

    kind: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: int
    words: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """True if the instruction was read whole, False if it is free text."""
        return bool(self.kind)

    @property
    def query(self) -> str:
        """What to search for."""
        return short_query(
            " ".join([*self.attributes, self.kind, *self.options] if self.kind else self.words)
        )


@functools.lru_cache(maxsize=50_000)
def read_wants(instruction: str) -> Wants:
    """What `instruction` asks for."""
    text = instruction.strip().rstrip(".").lower()
    limit = _LIMIT.search(text)
    body = text[: limit.start()] if limit else text
    words = tuple(dict.fromkeys(word for word in _WORD.findall(body) if word not in _FILLERS))
    most = int(limit[1]) if limit else 0
    found = _read_relative(body) or _read_adjectives(body)
    if found and _makes_sense(*found):
        kind, attributes, options = found
        return Wants(kind, tuple(attributes), tuple(options), most, words)
    return Wants("", (), (), most, words)


def keywords(instruction: str) -> str:
    """What a shopper would search for first."""
    return read_wants(instruction).query or "product"


def _read_relative(body: str) -> tuple[str, list[str], list[str]] | None:
    found = _RELATIVE.match(body)
    if not found:
        return None
    return found[1], found[2].split(" and "), found[3].split(" and ") if found[3] else []


def _read_adjectives(body: str) -> tuple[str, list[str], list[str]] | None:
    found = _ADJECTIVES.match(body)
    if not found:
        return None
    head = found[1]
    kind = next(
        (
            name
            for name in sorted(BY_NAME, key=len, reverse=True)
            if head == name or head.endswith(f" {name}")
        ),
        "",
    )
    attributes = _phrases(BY_NAME[kind], head.removesuffix(kind).split()) if kind else None
    return None if attributes is None else (kind, attributes, found[2].split(", ") if found[2] else [])


def _phrases(kind: Kind, words: list[str]) -> list[str] | None:
    """`words` as attributes of `kind`, of one or two words each; None if they are not."""
    known = {value for group in kind.groups for value in group}
    phrases: list[str] = []
    while words:
        size = next((size for size in (2, 1) if " ".join(words[:size]) in known), 0)
        if not size:
            return None
        phrases.append(" ".join(words[:size]))
        words = words[size:]
    return phrases


def _makes_sense(name: str, attributes: list[str], options: list[str]) -> bool:
    """True if the kind is known, and has all of that: at most one attribute of a group, one value of an
    option.
    """
    kind = BY_NAME.get(name)
    if kind is None or not attributes:
        return False
    return _one_each(attributes, kind.groups) and _one_each(
        options, tuple(values for _, values in kind.options)
    )


def _one_each(wanted: list[str], groups: tuple[tuple[str, ...], ...]) -> bool:
    """True if every wanted value has a group of its own."""
    places = [place for value in wanted for place, group in enumerate(groups) if value in group]
    return len(places) == len(wanted) == len(set(places))
