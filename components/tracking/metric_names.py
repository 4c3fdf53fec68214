"""Names of metrics as MLflow takes them: those of a user's own task families or behaviours may hold any letters."""

from __future__ import annotations

import re

_REFUSED = re.compile(r"[^\w.\- :]")
_PARTS_OF_PATHS = frozenset({"", ".", ".."})
MAX_CHARS = 250


def metric_name(name: str) -> str:
    """`name` with `_` for each character that MLflow refuses, without parts that it takes for a path, at most 250 characters."""
    parts = (_REFUSED.sub("_", part).strip() for part in name.split("/"))
    return "/".join(part for part in parts if part not in _PARTS_OF_PATHS)[:MAX_CHARS].rstrip("/")
