"""The JSON object in a reply of a language model, where it is clear which one is meant.

It stands alone, behind the model's own thinking (`<think>...</think>` at the beginning), or in a code fence.
Prose around a fence is left out if there is no other fence.
"""

from __future__ import annotations

import re

_THINKING = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_WHOLE_FENCE = re.compile(r"^```(?:json)?\s*\n(.*)\n\s*```$", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```(?:json|JSON)?[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_MARK = "```"


def object_text(reply: str) -> str:
    """Return the text of the JSON object in `reply`; the reply without its thinking if none is clear."""
    text = _THINKING.sub("", reply, count=1).strip()
    whole = _WHOLE_FENCE.match(text)
    if whole:
        return whole[1]
    fences = _FENCE.findall(text)
    is_clear = len(fences) == 1 and text.count(_MARK) == 2 and not text.startswith("{")
    return str(fences[0]) if is_clear and fences[0].lstrip().startswith("{") else text
