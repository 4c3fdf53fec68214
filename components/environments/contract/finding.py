"""What `check-environment` says of one promise of an adapter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One promise: whether it is kept (`ok`, `doubt`, `wrong`), what was found, and what to do."""

    promise: str
    state: str
    found: str
    next_step: str = ""


class Broken(Exception):
    """A promise that is not kept: what was found, and what to do."""


class Doubtful(Broken):
    """A part that the world does without."""
