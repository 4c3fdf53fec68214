"""Metric names that MLflow accepts, for task families and behaviours with any characters in their names."""

from __future__ import annotations

import hashlib
import re

_REFUSED_CHARACTERS = re.compile(r"[^\w.\- :]")
_REFUSED_PATH_PARTS = frozenset({"", ".", ".."})
_MAX_CHARS = 240


def metric_name(name: str) -> str:
    """`name` if MLflow accepts it, else a readable form of it with seven characters of its hash.

    The hash keeps names apart that would have the same readable form, such as `heat!` and `heat?`.
    """
    parts = (_REFUSED_CHARACTERS.sub("_", part).strip() for part in name.split("/"))
    accepted = "/".join(part for part in parts if part not in _REFUSED_PATH_PARTS)[:_MAX_CHARS].rstrip("/ ")
    return name if accepted == name else f"{accepted}-{hashlib.sha256(name.encode()).hexdigest()[:7]}"
