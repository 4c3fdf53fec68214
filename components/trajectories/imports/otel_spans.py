"""OpenTelemetry spans of language models in OTLP's JSON form: `--as otel`.

A file holds exports (`resourceSpans`), one a line as the collector's file exporter writes them, or one over
the whole file. Spans of model calls follow the semantic conventions for generative AI:
`gen_ai.input.messages`, `gen_ai.output.messages` and `gen_ai.system_instructions`, each a list of messages
with `parts`, as JSON text or as a structured attribute (https://opentelemetry.io/docs/specs/semconv/gen-ai/).

Each call repeats the conversation so far; only the longest one of a conversation is kept by the import. A
call's record has the attributes of its trace's spans as fields, so `--outcome field:evaluation.success` reads
an attribute of any of them. The episode is named by `gen_ai.conversation.id`, else by the trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from components.trajectories.imports.logged_episode import Skipped

NO_MESSAGES = "spans without messages (gen_ai.input.messages)"
OTHER_CONVERSATION = "a call that does not belong to the longest conversation of its trace"
_INPUT, _OUTPUT, _SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
_CONVERSATION = "gen_ai.conversation.id"


def span_records(exports: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return a record with `messages` for each model call of some exports, in the order of the traces.

    All spans are held until the exports end, since the spans of a trace may be in several.
    """
    traces: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for entry in exports:
        if isinstance(entry, Skipped):
            yield entry
            continue
        place, export = entry
        spans = list(_spans(export))
        if not spans:
            yield Skipped("an export without spans (resourceSpans)", place)
        for trace, attributes in spans:
            traces.setdefault(trace, []).append((place, attributes))
    for trace, calls in traces.items():
        fields: dict[str, Any] = {}
        for _, attributes in calls:
            fields |= {name: value for name, value in attributes.items() if not name.startswith("gen_ai.")}
        with_messages = [entry for entry in calls if _INPUT in entry[1] and _OUTPUT in entry[1]]
        if not with_messages:
            yield Skipped(NO_MESSAGES, calls[0][0], trace)
        found = [(place, _record(attributes, _nested(fields), trace)) for place, attributes in with_messages]
        yield from _of_one_conversation(found)


def _of_one_conversation(found: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return the records that begin as the longest one of their episode does.

    Other calls in a trace (of a judge, a guard, a sub-agent) have not its task, and not its outcome.
    """
    longest: dict[str, dict[str, Any]] = {}
    for _, record in found:
        name = record["episode_id"]
        if name not in longest or len(record["messages"]) > len(longest[name]["messages"]):
            longest[name] = record
    for place, record in found:
        if _opening(record) == _opening(longest[record["episode_id"]]):
            yield place, record
        else:
            yield Skipped(OTHER_CONVERSATION, place, record["episode_id"])


def _opening(record: dict[str, Any]) -> Any:
    return next((turn["content"] for turn in record["messages"] if turn["role"] == "user"), None)


def _spans(export: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return (trace id, attributes) of each span of an export; nothing of what is no export."""
    for resource in _list_at(export, "resourceSpans"):
        for scope in _list_at(resource, "scopeSpans"):
            for span in _list_at(scope, "spans"):
                if isinstance(span, Mapping):
                    yield str(span.get("traceId", "")), _attributes(span)


def _list_at(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else []


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span and of its events, by name."""
    entries = [*_list_at(span, "attributes")]
    for event in _list_at(span, "events"):
        entries += _list_at(event, "attributes")
    attributes = {}
    for entry in entries:
        with suppress(ValueError, TypeError, KeyError):  # one odd attribute is left out, not its span
            attributes[str(entry["key"])] = _plain(entry.get("value"))
    return attributes


def _plain(value: Any) -> Any:
    """Return the plain value of OTLP's `AnyValue`."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((kind, content),) = value.items()
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        return [_plain(item) for item in _list_at(content, "values")]
    if kind == "kvlistValue":
        return {item["key"]: _plain(item.get("value")) for item in _list_at(content, "values")}
    return content if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue") else value


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes such as `evaluation.success` as fields within fields."""
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        *sections, last = name.split(".")
        part = nested
        for section in sections:
            inner = part.get(section)
            part[section] = part = inner if isinstance(inner, dict) else {}
        part[last] = value
    return nested


def _record(attributes: Mapping[str, Any], fields: dict[str, Any], trace: str) -> dict[str, Any]:
    instructions = _messages([{"role": "system", "parts": _decoded(attributes.get(_SYSTEM, []))}])
    conversation = _messages(_decoded(attributes[_INPUT])) + _messages(_decoded(attributes[_OUTPUT]))
    has_system = any(message["role"] == "system" for message in conversation)
    name = str(attributes.get(_CONVERSATION) or trace)
    messages = conversation if has_system or not instructions[0]["content"] else instructions + conversation
    return fields | {"episode_id": name, "messages": messages}


def _decoded(value: Any) -> Any:
    """Return the structure of an attribute, which may be JSON text; the text itself if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _messages(values: Any) -> list[dict[str, Any]]:
    """Return messages of the semantic conventions in the form of chat completions."""
    messages: list[dict[str, Any]] = []
    for value in values if isinstance(values, list) else [values]:
        role = value.get("role", "") if isinstance(value, Mapping) else ""
        parts = value.get("parts", value.get("content", [])) if isinstance(value, Mapping) else value
        messages += _message(role, parts if isinstance(parts, list) else [parts])
    return messages


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
