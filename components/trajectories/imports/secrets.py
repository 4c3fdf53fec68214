"""Masks secrets in logged texts: what a pattern finds, built in or of `data.mask`, becomes `[masked]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from components.errors import ConfigError

MASK = "[masked]"
REMEMBERED_TEXTS, REMEMBERED_LENGTH = 50_000, 1000
"""Texts of at most this many characters whose masked form is remembered: 50 MB of ASCII at most, and as much
of what replaced them. Logs of calls repeat each message in every later call.
"""


class Masker:
    """Replaces secrets; `found` counts the replacements.

    Args:
        patterns: regular expressions. Of one with a group, only the group is replaced.

    Raises:
        ConfigError: one is no regular expression.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.found = 0
        self._patterns: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._patterns.append(re.compile(pattern))
            except re.error as error:
                raise ConfigError(
                    f"data.mask has {pattern!r}, which is no regular expression: {error}.",
                    "Expected a pattern of Python's `re`.",
                ) from error
        self._remembered = lru_cache(REMEMBERED_TEXTS)(self._masked)

    def mask(self, text: str) -> str:
        """`text` without what the patterns find."""
        masked, count = (self._remembered if len(text) <= REMEMBERED_LENGTH else self._masked)(text)
        self.found += count
        return masked

    def _masked(self, text: str) -> tuple[str, int]:
        """The text without what the patterns find, and how often they found something."""
        found = 0
        for pattern in self._patterns:
            text, count = pattern.subn(_replacement(pattern), text)
            found += count
        return text, found


def _replacement(pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    return _mask_group if pattern.groups else lambda match: MASK


def _mask_group(match: re.Match[str]) -> str:
    """What a pattern found, with its first group masked; all of it as it is if the group is not in it."""
    if not match[1]:
        return match[0]
    start, end = (place - match.start() for place in match.span(1))
    return match[0][:start] + MASK + match[0][end:]
