"""Outcomes of logged episodes: from a field of the record, or from a rule over the last observation.

What is neither is unknown, and stays unknown: it is not learnt as a failure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from components.errors import ConfigError
from components.trajectories.imports.logged_episode import LoggedStep

JUDGE = "judge"
"""`--outcome` that asks a language model where no usual field tells the outcome."""
USUAL_FIELDS = ("success", "is_success", "successful", "reward", "score", "outcome", "resolved")
"""Fields that are looked for, in this order, in the record and in its `metadata`, if none is named."""
YES = frozenset({"true", "yes", "success", "succeeded", "successful", "passed", "pass", "won", "resolved"})
NO = frozenset({"false", "no", "failure", "failed", "fail", "lost", "error", "unresolved", "timeout"})

OutcomeRule = Callable[[Mapping[str, Any], tuple[LoggedStep, ...]], bool | None]
"""(record without its messages, steps) -> the outcome; None if it is unknown."""


class NumbersSeen:
    """Remembers the highest number that an outcome was read from.

    Attributes:
        highest: None if no outcome was a number so far.
    """

    def __init__(self) -> None:
        self.highest: float | None = None

    def add(self, number: float) -> None:
        """Take one more number into account."""
        self.highest = number if self.highest is None else max(self.highest, number)


def outcome_rule(text: str, threshold: float, seen: NumbersSeen | None = None) -> OutcomeRule:
    """The rule that `--outcome` names.

    Args:
        text: "" looks for `USUAL_FIELDS`; `field:PATH` reads a field, with dots for fields within fields;
            `last:PATTERN` is a success if the regular expression is found in the last observation, or in the
            last action of an episode that ends with it; `judge` looks for `USUAL_FIELDS`, and
            `judged_outcomes.py` asks about the other episodes afterwards; `unknown` tells nothing.
        threshold: least number that is a success.
        seen: told about each number that an outcome is read from.

    Raises:
        ConfigError: the text is none of these, or the pattern is no regular expression.
    """
    kind, _, rest = text.partition(":")
    if text in ("", JUDGE):
        return lambda record, steps: _first_known(record, threshold, seen)
    if text == "unknown":
        return lambda record, steps: None
    if kind == "field" and rest:
        return lambda record, steps: read_outcome(_at(record, rest), threshold, seen)
    if kind == "last" and rest:
        pattern = _compiled(rest)
        return lambda record, steps: bool(pattern.search(_last_text(steps)))
    raise ConfigError(
        f"--outcome is {text!r}.",
        "Expected field:PATH, last:PATTERN, judge or unknown.",
        "For example: --outcome field:metadata.success",
    )


def read_outcome(value: object, threshold: float, seen: NumbersSeen | None = None) -> bool | None:
    """The outcome that a value of a log spells; None if it spells none, as NaN and infinity do.

    Args:
        threshold, seen: as in `outcome_rule`.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in YES | NO:
            return word in YES
        try:
            value = float(word)
        except ValueError:
            return None
    if isinstance(value, int | float) and _is_finite(value):
        if seen is not None:
            seen.add(float(value))
        return value >= threshold
    return None


def _is_finite(value: float) -> bool:
    """Whether a number is finite as a float; JSON can spell integers that are not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _first_known(record: Mapping[str, Any], threshold: float, seen: NumbersSeen | None) -> bool | None:
    metadata = record.get("metadata")
    for section in (record, metadata if isinstance(metadata, Mapping) else {}):
        for name in USUAL_FIELDS:
            outcome = read_outcome(section.get(name), threshold, seen)
            if outcome is not None:
                return outcome
    return None


def _at(record: Mapping[str, Any], path: str) -> object:
    if path in record:
        return record[path]
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _last_text(steps: tuple[LoggedStep, ...]) -> str:
    last = steps[-1]
    return last.action if last.observation is None else last.observation


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{pattern!r} is no regular expression: {error}.", "Expected a pattern of Python's `re`."
        ) from error
