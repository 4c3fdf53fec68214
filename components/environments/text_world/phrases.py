"""Parse the states of a world of text without knowledge of the world: phrases, named values and words."""

from __future__ import annotations

import re

from components.environments.protocol import Fact

SAYS = "says"
IS = "is"
_ENDS = re.compile(r"\n+|\s*\[SEP\]\s*|(?<=[.!?;])\s+")
_NAMED = re.compile(r"([^:=]{1,60}?)\s*[:=]\s*(\S.*)")
_WORDS = re.compile(r"\w+")


def phrases(state: str) -> list[str]:
    """Split `state` into its sentences, lines or parts, without the punctuation at their ends."""
    parts = (part.strip().rstrip(".;!?").strip() for part in _ENDS.split(state))
    return [part for part in parts if part]


def phrase_fact(phrase: str) -> Fact:
    """Return the phrase as a fact.

    That is `("is", name, value)` for "name: value" and "name = value", else `("says", phrase)`.
    """
    match = _NAMED.fullmatch(phrase)
    return (IS, match[1].strip(), match[2].strip()) if match else (SAYS, phrase)


def has_word(text: str) -> bool:
    """Return True if `text` has at least one letter or digit."""
    return bool(_WORDS.search(text))


def words(text: str) -> set[str]:
    """Return the words of `text` in lower case."""
    return {word.lower() for word in _WORDS.findall(text)}
