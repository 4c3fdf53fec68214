"""Masks secrets in logged texts: what a pattern finds, built in or of `data.mask`, becomes `[masked]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from components.errors import ConfigError

MASK = "[masked]"


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

    def mask(self, text: str) -> str:
        """`text` without what the patterns find."""
        for pattern in self._patterns:
            text, count = pattern.subn(_replacement(pattern), text)
            self.found += count
        return text


def _replacement(pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    return _mask_group if pattern.groups else lambda match: MASK


def _mask_group(match: re.Match[str]) -> str:
    """What a pattern found, with its first group masked; all of it as it is if the group is not in it."""
    if not match[1]:
        return match[0]
    start, end = (place - match.start() for place in match.span(1))
    return match[0][:start] + MASK + match[0][end:]
