"""The result of one promise that `dreamgym check-environment` tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One promise: its state (`ok`, `doubt` or `wrong`), what was found, and what to do."""

    promise: str
    state: str
    found: str
    next_step: str = ""


class Broken(Exception):
    """A promise is not kept. Its arguments are what was found, and optionally what to do."""


class Doubtful(Broken):
    """The world works, but lacks a part. Its arguments are what is missing, and what to set."""
