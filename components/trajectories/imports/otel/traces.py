"""Traces of OpenTelemetry: the conversation of each span, and the fields that tell a conversation's outcome.

An outcome or a task is taken from

- the root span of a trace, the outermost `invoke_agent` span, or the first span of a conversation;
- evaluations: spans or events with `gen_ai.evaluation.*`, and spans with `evaluation.*`.

It belongs to the span's `gen_ai.conversation.id`, or to that of its nearest ancestor with one. Without one it
belongs to the conversation that the trace begins with, so not to a sub-agent's. A trace without calls of a
conversation may hold its evaluation. Tools and model calls tell no outcome; a call that is the root of its
trace does, if nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from components.trajectories.imports.otel.export import CONVERSATION, EVALUATION, INPUT, Span
from components.trajectories.imports.outcomes import read_outcome

_OUTCOME_NAME = re.compile(r"success|complet|outcome|resol|solv|correct|goal|reward|pass", re.I)
"""Names of evaluations that tell whether a task was done."""


class Trace:
    """The spans of one trace.

    Attributes:
        id: of the trace.
        spans: in the order of the log.
        calls: the spans with the input of a model call.
        names: the conversations of these calls.
    """

    def __init__(self, trace_id: str, spans: Sequence[Span]) -> None:
        self.id = trace_id
        self.spans = spans
        self._by_id = {span.id: span for span in spans if span.id}
        self.calls = [span for span in spans if INPUT in span.attributes]
        self._first_calls: dict[str, Span] = {}
        for call in sorted(self.calls, key=lambda call: (len(self._ancestors(call)), call.start)):
            self._first_calls.setdefault(self._own_conversation(call) or trace_id, call)
        self.names = set(self._first_calls)

    def conversation(self, span: Span) -> str:
        """The conversation of a span: its own, an ancestor's, or the one that the trace begins with.

        "" if the trace has no call and no span names a conversation.
        """
        if own := self._own_conversation(span):
            return own
        return self.id if INPUT in span.attributes else next(iter(self._first_calls), "")

    @cached_property
    def fields(self) -> dict[str, dict[str, Any]]:
        """For each conversation the attributes that tell its task and its outcome."""
        fields: dict[str, dict[str, Any]] = {}
        sources = [span for span in self.spans if not span.is_tool and not span.is_call and self._tells(span)]
        told = {self.conversation(span) for span in sources}
        sources += [call for call in self._roots if call.is_call and self.conversation(call) not in told]
        for span in sorted(sources, key=lambda span: len(self._ancestors(span))):
            plain = {name: value for name, value in span.attributes.items() if not name.startswith("gen_ai.")}
            fields.setdefault(self.conversation(span), {}).update(plain)
        fields.pop("", None)
        return fields

    @cached_property
    def evaluations(self) -> dict[str, list[Mapping[str, Any]]]:
        """The evaluations of each conversation."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for span in self.spans:
            for evaluation in () if span.is_tool else span.evaluations:
                name = str(evaluation.get(CONVERSATION) or self.conversation(span))
                found.setdefault(name, []).append(evaluation)
        found.pop("", None)
        return found

    @property
    def described_conversations(self) -> set[str]:
        """The conversations that the trace tells something of."""
        return {*self.fields, *self.evaluations}

    def _own_conversation(self, span: Span) -> str:
        """The conversation that a span or its nearest ancestor with one names; "" if there is none."""
        return next((one.conversation for one in (span, *self._ancestors(span)) if one.conversation), "")

    def _ancestors(self, span: Span) -> list[Span]:
        """The spans above a span, the nearest first."""
        ancestors: list[Span] = []
        parent = self._by_id.get(span.parent)
        while parent is not None and parent is not span and parent not in ancestors:
            ancestors.append(parent)
            parent = self._by_id.get(parent.parent)
        return ancestors

    @cached_property
    def _roots(self) -> list[Span]:
        roots = [span for span in self.spans if not span.parent]
        return roots or [span for span in self.spans if span.parent not in self._by_id]

    def _tells(self, span: Span) -> bool:
        """Whether a span, which is no tool and no model call, tells about the whole of its conversation."""
        if span.is_evaluation or span in self._roots:
            return True
        name = self.conversation(span)
        above = [one for one in self._ancestors(span) if self.conversation(one) == name]
        if not span.is_agent:
            return bool(span.conversation) and not any(one.conversation for one in above)
        if any(one.is_agent for one in above):
            return False
        first = self._first_calls.get(name)
        return bool(span.conversation) or (first is not None and span in self._ancestors(first))


class FieldsOfCalls:
    """The fields of conversations in several traces.

    What a trace tells of other conversations than its own belongs to their calls in all traces.
    """

    def __init__(self) -> None:
        self._fields_elsewhere: dict[str, dict[str, Any]] = {}
        self._evaluations_elsewhere: dict[str, list[Mapping[str, Any]]] = {}

    def add(self, trace: Trace) -> None:
        """Take up what a trace tells of other conversations than its own."""
        for name in trace.described_conversations - trace.names:
            self._fields_elsewhere.setdefault(name, {}).update(trace.fields.get(name, {}))
            self._evaluations_elsewhere.setdefault(name, []).extend(trace.evaluations.get(name, ()))

    def of(self, trace: Trace) -> dict[str, dict[str, Any]]:
        """Return the fields of the conversations that a trace has calls of, after all traces were added."""
        return {
            name: _evaluation_fields(
                [*self._evaluations_elsewhere.get(name, ()), *trace.evaluations.get(name, ())]
            )
            | _nested(self._fields_elsewhere.get(name, {}) | trace.fields.get(name, {}))
            for name in trace.names
        }


def _evaluation_fields(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of evaluations by their names as `evaluations`, and the one that is the `outcome`.

    A name with different values has none. The outcome is that of the only name that speaks of success, or of
    the only name if its value is a word such as `pass`.
    """
    values: dict[str, Any] = {}
    for evaluation in evaluations:
        name = str(evaluation.get(f"{EVALUATION}name", ""))
        value = _value(evaluation)
        values[name] = value if values.get(name, value) == value else None
    telling = [name for name in values if not name or _OUTCOME_NAME.search(name)]
    if not telling and len(values) == 1 and all(isinstance(value, str) for value in values.values()):
        telling = list(values)
    outcome = {"outcome": values[telling[0]]} if len(telling) == 1 else {}
    return outcome | ({"evaluations": values} if values else {})


def _value(evaluation: Mapping[str, Any]) -> Any:
    """Return the label of an evaluation if it spells an outcome, else its score."""
    label = evaluation.get(f"{EVALUATION}score.label")
    score = evaluation.get(f"{EVALUATION}score.value")
    return label if score is None or read_outcome(label, 1.0) is not None else score


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
