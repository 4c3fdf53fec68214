"""JSON text with what Python's parser lets pass refused: of two equal keys it keeps the last and says
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or a key stands twice in one object.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} stands twice in one object")
        values[key] = value
    return values
