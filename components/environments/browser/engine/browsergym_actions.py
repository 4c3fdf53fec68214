"""Run an action through BrowserGym's high-level action set, with a longer timeout than BrowserGym's own."""

from __future__ import annotations

import functools
import logging
from typing import Any


@functools.cache
def _action_set() -> Any:
    from browsergym.core.action.highlevel import HighLevelActionSet

    return HighLevelActionSet(subsets=["bid", "coord", "nav", "tab", "chat"])


def code_with_timeout(call: str, seconds: float) -> str:
    """Return BrowserGym's code for `call`, with a timeout of `seconds` in place of its half a second.

    A busy machine must not make a click impossible. BrowserGym 0.14 has no setting for it, so the text
    `timeout=500` of its code is replaced.
    """
    original = str(_action_set().python_includes)
    patient = original.replace("timeout=500", f"timeout={int(1000 * seconds)}")
    return patient + str(_action_set().to_python_code(call)).removeprefix(original)


def run_call(call: str, page: Any, seconds: float, messages: list[dict[str, Any]]) -> None:
    """Carry out `call` on `page`. What the agent says is appended to `messages`."""
    from browsergym.core.action.base import execute_python_code

    code = code_with_timeout(call, seconds)
    execute_python_code(
        code, page, lambda text: messages.append({"role": "assistant", "message": text}), lambda reason: None
    )


def silence_browsergym() -> None:
    """Log BrowserGym's errors only. It warns of every page that it finds strange."""
    logging.getLogger("browsergym").setLevel(logging.ERROR)
