"""Names of metrics as MLflow accepts them: a user's task families and behaviours may contain any
characters.
"""

from __future__ import annotations

import hashlib
import re

_REFUSED = re.compile(r"[^\w.\- :]")
_PARTS_OF_PATHS = frozenset({"", ".", ".."})
_MAX_CHARS = 240


def metric_name(name: str) -> str:
    """`name` if MLflow accepts it, else a readable form of it with seven characters of its hash.

    The hash keeps two names apart that would read alike, such as `heat!` and `heat?`.
    """
    parts = (_REFUSED.sub("_", part).strip() for part in name.split("/"))
    accepted = "/".join(part for part in parts if part not in _PARTS_OF_PATHS)[:_MAX_CHARS].rstrip("/ ")
    return name if accepted == name else f"{accepted}-{hashlib.sha256(name.encode()).hexdigest()[:7]}"
