"""Messages of OpenTelemetry's conventions for generative AI in the form of chat completions.

A tool call that failed may have no response among the messages. Its span then tells the error, which becomes
the response (`with_tool_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Messages = list[dict[str, Any]]


def messages_of(values: Any) -> list[dict[str, Any]]:
    """Return messages of the semantic conventions in the form of chat completions."""
    messages: list[dict[str, Any]] = []
    values = decoded(values)
    for value in values if isinstance(values, list) else [values]:
        role = value.get("role", "") if isinstance(value, Mapping) else ""
        parts = value.get("parts", value.get("content", [])) if isinstance(value, Mapping) else value
        messages += _message(role, parts if isinstance(parts, list) else [parts])
    return messages


def answered_calls(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys of the tool calls that have an answer: their own, or any without the id of a call."""
    answered: set[str] = set()
    calls: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            calls = [_key(call) for call in message.get("tool_calls", ())]
        elif message.get("tool_call_id"):
            answered.add(message["tool_call_id"])
        else:
            answered.update(calls)
    return answered


def with_tool_errors(messages: Messages, answered: set[str], errors: Mapping[str, str]) -> Messages | None:
    """Return the messages with the errors of the tool calls that have no answer.

    Args:
        answered: keys of the calls that have an answer in some call of the conversation.
        errors: id of a call, or name of its tool -> the text of its error; "" if there is none.

    Returns:
        The messages; None if a call failed without a text.
    """
    completed: Messages = []
    for message in messages:
        completed.append(message)
        for call in message.get("tool_calls", ()):
            if _key(call) in answered:
                continue
            text = errors.get(call["id"], errors.get(str(call["function"]["name"])))
            if text == "":
                return None
            if text is not None:
                completed.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return completed


def _key(call: Mapping[str, Any]) -> str:
    """Return the id of a call, or the call itself if it has none."""
    return str(call["id"] or call["function"])


def decoded(value: Any) -> Any:
    """Return the structure of an attribute, which may be JSON text; the text itself if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _message(role: str, parts: list[Any]) -> list[dict[str, Any]]:
    """Return one message, or one for each tool's response among its parts."""
    texts: list[Any] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    responses: list[dict[str, Any]] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else ""
        if isinstance(part, str):
            texts.append(part)
        elif kind == "reasoning":
            thoughts.append(str(part.get("content", "")))
        elif kind == "tool_call":
            function = {"name": part.get("name"), "arguments": part.get("arguments") or {}}
            calls.append({"id": part.get("id") or "", "function": function})
        elif kind == "tool_call_response":
            response = part.get("response", part.get("result", ""))
            text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
            responses.append({"role": "tool", "tool_call_id": part.get("id") or "", "content": text})
        else:
            texts.append({"type": kind, "text": part.get("content")} if kind == "text" else part)
    if responses and not (texts or calls):
        return responses
    message: dict[str, Any] = {"role": role, "content": texts}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return [message, *responses]
