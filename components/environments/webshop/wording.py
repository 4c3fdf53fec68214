"""Short forms of the shop's texts: what states keep of titles, options, features and searches.

Product names of the official files run to thirty words, and their options hold brackets and slashes. A state
keeps what stands before the first comma, at most MAX_TITLE_WORDS words, and no sign of the states' own
grammar.
"""

from __future__ import annotations

import functools
import itertools
import math
import re

from components.environments.webshop.shop.products import Product

MAX_TITLE_WORDS = 9
MAX_OPTION_WORDS = 6
MAX_QUERY_WORDS = 10
MAX_FEATURE_WORDS = 8
MAX_DESCRIPTION_WORDS = 24
MAX_FEATURES = 8
MAX_OPTIONS = 16
MAX_GROUPS = 4
_MAX_WORD_LENGTH = 20
_TITLE_END = re.compile(r"[,|(\[;:–—]| - ")
_GRAMMAR_SIGNS = re.compile(r"[^\w\s'&%+/.-]|_|\.(?!\d)|(?<!\d)\.")
_WORD = re.compile(r"\w+")
_RESERVED_GROUPS = ("features", "chosen", "description", "reviews")


def plain(text: str, words: int) -> str:
    """Return at most `words` words of `text` in lower case, without signs of the states' grammar.

    `unnamed` if no word is left.
    """
    short_words = [
        word[:_MAX_WORD_LENGTH]
        for word in _GRAMMAR_SIGNS.sub(" ", text.lower()).split()
        if _WORD.search(word)
    ]
    return " ".join(short_words[:words]) or "unnamed"


@functools.lru_cache(maxsize=100_000)
def short_title(name: str) -> str:
    """Return the title that states show: what stands before the first comma or dash.

    The whole name if that is a single word.
    """
    head = _TITLE_END.split(name, maxsplit=1)[0]
    return plain(head if len(head.split()) > 1 else name, MAX_TITLE_WORDS)


@functools.lru_cache(maxsize=100_000)
def short_option(value: str) -> str:
    """Return an option value as states show it and as `click` takes it."""
    return plain(value, MAX_OPTION_WORDS)


@functools.lru_cache(maxsize=100_000)
def option_names(values: tuple[str, ...]) -> dict[str, str]:
    """Return each value of a group and its name in states.

    The value's own words where they are short, else the short name, with a number if that is taken.
    """
    names = {value: value for value in values if short_option(value) == value}
    for value in values:
        if value not in names:
            short = short_option(value)
            numbered = (f"{short} {number}" for number in itertools.count(2))
            names[value] = next(
                name for name in itertools.chain([short], numbered) if name not in names.values()
            )
    return {value: names[value] for value in values}


@functools.lru_cache(maxsize=100_000)
def short_feature(text: str) -> str:
    """Return one bullet of the features page as states show it."""
    return plain(text, MAX_FEATURE_WORDS)


def short_group(name: str) -> str:
    """Return the name of a group of options. A reserved name gets the word `option` behind it."""
    short = plain(name, 3)
    return f"{short} option" if short in _RESERVED_GROUPS else short


@functools.lru_cache(maxsize=100_000)
def short_query(words: str) -> str:
    """Return the query of a search: at most MAX_QUERY_WORDS words of letters and digits; "" if none."""
    return " ".join(
        word[:_MAX_WORD_LENGTH] for word in _WORD.findall(words.lower().replace("_", " "))[:MAX_QUERY_WORDS]
    )


def short_price(product: Product) -> str:
    """Return the price in whole dollars, rounded up: `25` or `10 to 20`.

    Every limit is a multiple of $10, so the rounded price is below it exactly where the price is.
    """
    return " to ".join(str(math.ceil(price)) for price in product.prices)
