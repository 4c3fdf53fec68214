"""Limits of new tokens: whether they cut next to no answer that a model learns, and which limit suffices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.config import Config
from components.errors import ConfigError
from components.policy.early_experience import ExploredEpisode
from components.policy.formats.agent_format import AgentFormat

MAX_CUT_SHARE = 0.001
"""Largest share of answers that a limit may cut."""
HEADROOM = 1.1
"""Proposed limit, relative to the longest answer that must fit."""
REPLY_LIMITS = tuple(f"rl.{stage}.max_new_tokens" for stage in ("dream", "real", "baseline"))
"""Keys of the limits at which the policy's replies end. Evaluations and checks end them at the dream's."""


def limit_of(config: Config, key: str) -> int:
    """Return the value of a limit, such as `rl.dream.max_new_tokens`."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return int(value)


def cuts_too_much(limit: int, lengths: Sequence[int]) -> bool:
    """Return True if `limit` cuts more than `MAX_CUT_SHARE` of answers with `lengths` tokens."""
    return sum(length > limit for length in lengths) > MAX_CUT_SHARE * len(lengths)


def sufficient_limit(lengths: Sequence[int]) -> int:
    """Return a limit that cuts at most `MAX_CUT_SHARE` of `lengths`, with headroom, a multiple of 8."""
    needed = sorted(lengths)[min(len(lengths) - 1, int((1 - MAX_CUT_SHARE) * len(lengths)))]
    return 8 * -(-int(HEADROOM * needed) // 8)


def require_limit(keys: Sequence[str], limit: int, lengths: Sequence[int], answers: str) -> None:
    """Raise ConfigError if more than `MAX_CUT_SHARE` of `lengths`, in tokens, exceed `limit`.

    Args:
        keys: keys whose value is `limit`; the message says what to set each of them to.
        answers: what is cut, in words.
    """
    if not cuts_too_much(limit, lengths):
        return
    cut = sum(length > limit for length in lengths)
    raise ConfigError(
        f"{keys[0]}={limit} would cut {cut / len(lengths):.1%} of the {answers}: in this model's tokens the "
        f"longest has {max(lengths)}.",
        f"Expected a limit that cuts at most {MAX_CUT_SHARE:.1%}.",
        f"Set {' '.join(f'{key}={sufficient_limit(lengths)}' for key in keys)}.",
    )


def require_reflections_fit(
    config: Config, text: AgentFormat, explored: Sequence[ExploredEpisode], thoughts: Sequence[Sequence[str]]
) -> None:
    """Raise ConfigError if a stage would cut replies of a policy that is cloned with reflections.

    A reply that is cut has no action. All stages must let the policy write what it has learnt, so the
    smallest of `REPLY_LIMITS` counts.

    Args:
        text: the policy's format.
        thoughts: per episode, the thought before each step.
    """
    lengths = [
        len(text.reply(thought, step.action))
        for entry, row in zip(explored, thoughts, strict=True)
        for thought, step in zip(row, entry.episode.steps, strict=True)
    ]
    limits = {key: limit_of(config, key) for key in REPLY_LIMITS}
    too_small = sorted((key for key in limits if cuts_too_much(limits[key], lengths)), key=limits.__getitem__)
    if too_small:
        require_limit(too_small, limits[too_small[0]], lengths, "demonstrations with reflections")
