"""OpenTelemetry spans of language models in OTLP's JSON form: `--as otel`.

A file holds exports (`resourceSpans`), one a line as the collector's file exporter writes them, or one over
the whole file. Spans of model calls follow the semantic conventions for generative AI:
`gen_ai.input.messages`, `gen_ai.output.messages` and `gen_ai.system_instructions`, each a list of messages
with `parts`, as JSON text or as a structured attribute (https://opentelemetry.io/docs/specs/semconv/gen-ai/).

Each call repeats the conversation so far; only the longest one of a conversation is kept by the import. The
episode is named by `gen_ai.conversation.id`, else by the trace. A call's record has the attributes of the
trace's root and agent spans and of evaluations as fields (`traces.py`), so
`--outcome field:evaluation.success` reads an attribute of the root.

A model call that failed has no output: its record ends with its input. A tool call that failed without an
answer has the error of its span as its observation; if the span has no text, the episode is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from components.trajectories.imports.logged_episode import Skipped, shortened
from components.trajectories.imports.otel.export import INPUT, OUTPUT, SYSTEM, Span, read_spans
from components.trajectories.imports.otel.messages import (
    answered_calls,
    decoded,
    messages_of,
    with_tool_errors,
)
from components.trajectories.imports.otel.span_file import GroupedFile
from components.trajectories.imports.otel.traces import FieldsOfCalls, Trace

NO_MESSAGES = "spans without messages (gen_ai.input.messages)"
NO_ANSWER = "a model call without an answer (gen_ai.output.messages)"
NO_INPUT = "a model call without its input (gen_ai.input.messages)"
NO_ERROR_TEXT = "a tool call that failed without an answer or the text of an error"
OTHER_CONVERSATION = "a call that does not belong to the longest conversation of its trace"
_Record = dict[str, Any]


def span_records(exports: Iterable[tuple[str, Any] | Skipped]) -> Iterator[tuple[str, Any] | Skipped]:
    """Return a record with `messages` for each model call of some exports, in the order of the traces.

    The spans of a trace may be in several exports. They are written to a temporary file, and read again trace
    by trace when the exports end. One trace at a time is in memory.

    Raises:
        DataError: the temporary file cannot be written.
    """
    with GroupedFile() as spans:
        for entry in exports:
            if isinstance(entry, Skipped):
                yield entry
                continue
            place, export = entry
            has_spans = False
            for found in read_spans(export, place):
                if isinstance(found, Skipped):
                    yield found
                else:
                    has_spans = True
                    spans.append(found.trace, tuple(vars(found).values()))
            if not has_spans:
                yield Skipped("an export without spans (resourceSpans)", place)
        yield from _records(spans)


def _records(spans: GroupedFile) -> Iterator[tuple[str, _Record] | Skipped]:
    """Return the calls and traces of which no record can be made, and then the records of all traces."""
    conversations: set[str] = set()
    all_fields = FieldsOfCalls()
    errors: dict[str, dict[str, str]] = {}
    for trace in _traces(spans):
        conversations |= trace.names
        all_fields.add(trace)
        _add_tool_errors(errors, trace)
    with GroupedFile() as records:
        for trace in _traces(spans):
            fields = all_fields.of(trace)
            if not trace.calls and not trace.described_conversations & conversations:
                yield Skipped(NO_MESSAGES, trace.spans[0].place, trace.id)
            for entry in _of_one_conversation([_record(call, trace, fields) for call in trace.calls]):
                if isinstance(entry, Skipped):
                    yield entry
                else:
                    records.append(entry[1]["episode_id"], entry)
            for span in trace.spans:
                if OUTPUT in span.attributes and INPUT not in span.attributes:
                    yield Skipped(NO_INPUT, span.place, trace.id)
        yield from _with_tool_errors(records, errors)


def _traces(spans: GroupedFile) -> Iterator[Trace]:
    return (Trace(trace_id, [Span(*values) for values in own]) for trace_id, own in spans.groups())


def _record(
    call: Span, trace: Trace, fields: Mapping[str, Mapping[str, Any]]
) -> tuple[str, _Record] | Skipped:
    """Return the place and the record of a call; what is skipped if no agent has answered in it."""
    name = trace.conversation(call)
    messages = _messages(call)
    if OUTPUT not in call.attributes and not any(message["role"] == "assistant" for message in messages):
        return Skipped(NO_ANSWER, call.place, shortened(call.error or name))
    return call.place, {**fields[name], "episode_id": name, "messages": messages}


def _messages(span: Span) -> list[dict[str, Any]]:
    """Return the messages of a call: its input with its output, if there is one."""
    conversation = messages_of(span.attributes[INPUT])
    if OUTPUT in span.attributes:
        conversation += messages_of(span.attributes[OUTPUT])
    if any(message["role"] == "system" for message in conversation):
        return conversation
    parts = span.attributes.get(SYSTEM, [])
    instructions = messages_of([{"role": "system", "parts": decoded(parts)}])
    return instructions + conversation if instructions[0]["content"] else conversation


def _add_tool_errors(errors: dict[str, dict[str, str]], trace: Trace) -> None:
    """Add, for each conversation, the errors of tools by the call's id, or else by the tool's name."""
    for span in trace.spans:
        if span.is_tool and span.error is not None:
            names = (span.attributes.get(f"gen_ai.tool.{name}") for name in ("call.id", "name"))
            key = next((str(name) for name in names if name), "")
            errors.setdefault(trace.conversation(span), {})[key] = span.error


def _with_tool_errors(
    records: GroupedFile, errors: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, _Record] | Skipped]:
    """Return the records with the errors of tools; none of a conversation with an error without a text."""
    answered: dict[str, set[str]] = {}
    failed: set[str] = set()
    for name, texts in errors.items():
        messages = [record["messages"] for _, record in records.read(name)]
        answered[name] = set[str]().union(*map(answered_calls, messages))
        if any(with_tool_errors(own, answered[name], texts) is None for own in messages):
            failed.add(name)
    for place, record in records:
        name = record["episode_id"]
        if name in failed:
            yield Skipped(NO_ERROR_TEXT, place, shortened(name))
        elif name in errors:
            yield (
                place,
                record | {"messages": with_tool_errors(record["messages"], answered[name], errors[name])},
            )
        else:
            yield place, record


def _of_one_conversation(
    calls: Sequence[tuple[str, _Record] | Skipped],
) -> Iterator[tuple[str, _Record] | Skipped]:
    """Return the records that are of the longest conversation of their name.

    Other calls in a trace (of a judge, a guard, a sub-agent) have not its task, and not its outcome.
    """
    by_name: dict[str, list[_Record]] = {}
    for call in calls:
        if not isinstance(call, Skipped):
            by_name.setdefault(call[1]["episode_id"], []).append(call[1])
    own = {id(record) for records in by_name.values() for record in _of_the_longest(records)}
    for call in calls:
        if isinstance(call, Skipped) or id(call[1]) in own:
            yield call
        else:
            yield Skipped(OTHER_CONVERSATION, call[0], shortened(call[1]["episode_id"]))


def _of_the_longest(records: list[_Record]) -> list[_Record]:
    """Return the records that begin as the longest one does, or that share a part with it or with each other.

    Records of a conversation with a sliding window share the first two messages of one of them.
    """
    longest = max(records, key=lambda record: len(record["messages"]))
    own = [record for record in records if _opening(record) == _opening(longest)]
    others = [record for record in records if _opening(record) != _opening(longest)]
    if not others:
        return own
    pairs = {id(record): _pairs(record) for record in records}
    joining = own
    while joining:
        known = {pair for record in own for pair in pairs[id(record)]}
        starts = {pair for record in own for pair in pairs[id(record)][:1]}
        joining = [
            record
            for record in others
            if known.intersection(pairs[id(record)][:1]) or starts.intersection(pairs[id(record)])
        ]
        own += joining
        others = [record for record in others if all(record is not one for one in joining)]
    return own


def _opening(record: _Record) -> Any:
    return next((turn["content"] for turn in record["messages"] if turn["role"] == "user"), None)


def _pairs(record: _Record) -> list[str]:
    """Return each two messages that follow each other, without those of the system, as text."""
    texts = [
        json.dumps([turn["content"], turn.get("tool_calls")])
        for turn in record["messages"]
        if turn["role"] != "system"
    ]
    return [first + second for first, second in pairwise(texts)]
