"""Texts of the shop in few words: what our states keep of titles, options, features and searches.

Product names of the official files run to thirty words and their options hold brackets and slashes; a state
keeps what stands before the first comma, at most LONGEST_TITLE words, and no sign that the states' own
grammar uses.
"""

from __future__ import annotations

import functools
import itertools
import math
import re

from components.environments.webshop.shop.products import Product

LONGEST_TITLE, LONGEST_OPTION, LONGEST_QUERY, LONGEST_FEATURE, LONGEST_DESCRIPTION = 9, 6, 10, 8, 24
MOST_FEATURES, MOST_OPTIONS, MOST_GROUPS = 8, 16, 4
_LONGEST_WORD = 20
_BREAK = re.compile(r"[,|(\[;:–—]| - ")
_SIGNS = re.compile(r"[^\w\s'&%+/.-]|_|\.(?!\d)|(?<!\d)\.")
_WORD = re.compile(r"\w+")
_RESERVED = ("features", "chosen", "description", "reviews")


def plain(text: str, words: int) -> str:
    """At most `words` words of `text` in lower case, without signs of the states' grammar; `unnamed` if none
    is left.
    """
    found = [word[:_LONGEST_WORD] for word in _SIGNS.sub(" ", text.lower()).split() if _WORD.search(word)]
    return " ".join(found[:words]) or "unnamed"


@functools.lru_cache(maxsize=100_000)
def short_title(name: str) -> str:
    """The title that states show: what stands before the first comma or dash, unless that is a single
    word.
    """
    head = _BREAK.split(name, maxsplit=1)[0]
    return plain(head if len(head.split()) > 1 else name, LONGEST_TITLE)


@functools.lru_cache(maxsize=100_000)
def short_option(value: str) -> str:
    """An option value as states show it and as `click` takes it."""
    return plain(value, LONGEST_OPTION)


@functools.lru_cache(maxsize=100_000)
def option_names(values: tuple[str, ...]) -> dict[str, str]:
    """Each value of a group and its name in states: its own words where they are short, else the short name,
    numbered if that is taken.
    """
    found = {value: value for value in values if short_option(value) == value}
    for value in values:
        if value not in found:
            short = short_option(value)
            numbered = (f"{short} {number}" for number in itertools.count(2))
            found[value] = next(
                name for name in itertools.chain([short], numbered) if name not in found.values()
            )
    return {value: found[value] for value in values}


@functools.lru_cache(maxsize=100_000)
def short_feature(text: str) -> str:
    """One bullet of the features page."""
    return plain(text, LONGEST_FEATURE)


def short_group(name: str) -> str:
    """The name of a group of options; one that the states use for something else gets a word behind it."""
    short = plain(name, 3)
    return f"{short} option" if short in _RESERVED else short


@functools.lru_cache(maxsize=100_000)
def short_query(words: str) -> str:
    """What is searched for: at most LONGEST_QUERY words of letters and digits; "" if there is none."""
    return " ".join(
        word[:_LONGEST_WORD] for word in _WORD.findall(words.lower().replace("_", " "))[:LONGEST_QUERY]
    )


def short_price(product: Product) -> str:
    """Whole dollars, rounded up: `25` or `10 to 20`.

    Every limit is a multiple of $10, so the rounded price is below it exactly where the price is.
    """
    return " to ".join(str(math.ceil(price)) for price in product.prices)
