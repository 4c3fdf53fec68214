"""The nouns of a product's name, for the title score of the reward: by rules, where the original uses spaCy.

The original counts what `en_core_web_sm` tags as noun or proper noun. That model is a separate download.
Product names are not sentences: nearly all of their words are capitalised, and the tagger takes nearly all of
them for proper nouns. So here every word with a letter is a noun, with these exceptions:

- function words and units,
- words with a digit,
- adjectives, participles and adverbs, recognised by their ending or by a short list.

Deviations: adjectives outside the list count as nouns ("cozy" in a lower-case name). Nouns that end like
participles ("building") do not count. A number never does.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_TOKEN = re.compile(r"[\w'’]+")
_FUNCTION_TEXT = """
a an the and or but nor for of in on at to from by with without into onto over under per via as than then that
this these those your you our we us my me his her hers their its it is are be been was were do does not no yes
so such all any both each every other more most very too also only just up down out off when while where which
who how if can will may
"""
_FUNCTION = frozenset(_FUNCTION_TEXT.split())
_UNITS_TEXT = """
oz ounce ounces lb lbs inch inches ft feet foot mm cm ml l kg g mg w v hz ghz gb tb mah pcs pc count ct x
"""
_UNITS = frozenset(_UNITS_TEXT.split())
_ADJECTIVES_TEXT = """
long short slim wide narrow tall small large medium big mini great good best new soft hard light heavy warm
cool cold hot dry wet fresh clean clear natural organic vegan raw pure real full half double single dual multi
high low fast quick easy safe smart strong thick thin sweet plain simple elegant modern classic vintage casual
formal cute sexy comfy cozy plush loose relaxed fitted regular firm gentle mild matte glossy bright dark black
white red green blue yellow pink purple grey gray brown orange digital electric manual solid whole deep
wireless portable sturdy silent quiet unisex adult sensitive normal oily free proof ready slip thermal outdoor
indoor solar spicy lightweight compact non everyday daily mens womens
"""
_ADJECTIVES = frozenset(_ADJECTIVES_TEXT.split())
_ENDINGS = re.compile(r".{2,}(?:able|ible|ful|less|ous|ive|ish|ed|ing|ly|ic|al|proof|resistant|free)$")


@lru_cache(maxsize=200_000)
def nouns(name: str) -> frozenset[str]:
    """Return the different nouns of `name`, in lower case."""
    return frozenset(
        word
        for token in _TOKEN.findall(name.lower())
        if (match := _WORD.fullmatch(token)) and _is_noun(word := match[0])
    )


def _is_noun(word: str) -> bool:
    return (
        len(word) > 1
        and word not in _FUNCTION
        and word not in _UNITS
        and word not in _ADJECTIVES
        and not _ENDINGS.fullmatch(word)
    )
