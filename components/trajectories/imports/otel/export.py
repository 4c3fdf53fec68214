"""Spans of OpenTelemetry exports in OTLP's JSON form, with plain attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.trajectories.imports.logged_episode import Skipped, shortened

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
CONVERSATION = "gen_ai.conversation.id"
EVALUATION = "gen_ai.evaluation."
"""Beginning of the attributes of an evaluation."""
ODD_ATTRIBUTE = "an attribute of a span that cannot be read"
_MODEL_CALLS = ("chat", "text_completion", "generate_content", "embeddings")
_KINDS = ("openinference.span.kind", "traceloop.span.kind")
_ERRORS = (2, "2", "STATUS_CODE_ERROR", "ERROR")
_ERROR_TEXTS = ("gen_ai.tool.call.result", "exception.message", "error.message")


@dataclass(frozen=True, eq=False)
class Span:
    """One span.

    Attributes:
        place: where its export stands.
        trace: id of its trace.
        id: of the span; `parent` is that of the span above, "" for a root.
        start: time in nanoseconds; 0 if it is not told.
        operation: `gen_ai.operation.name`, such as `chat`, `invoke_agent` or `execute_tool`; without it, the
            first word of the span's name.
        attributes: those of the span and of its events, without those of evaluations in events.
        evaluations: attributes of each evaluation.
        error: what is said of its failure, "" if nothing is; None if it did not fail.
    """

    place: str
    trace: str
    id: str
    parent: str
    start: int
    operation: str
    attributes: Mapping[str, Any]
    evaluations: tuple[Mapping[str, Any], ...]
    error: str | None

    @property
    def conversation(self) -> str:
        """The conversation that the span itself names; "" if it names none."""
        return str(self.attributes.get(CONVERSATION) or "")

    @property
    def is_call(self) -> bool:
        """Whether it is a call of a model."""
        return INPUT in self.attributes or self.operation in _MODEL_CALLS

    @property
    def is_tool(self) -> bool:
        """Whether a tool was used."""
        is_tool = any(str(self.attributes.get(name, "")).lower() == "tool" for name in _KINDS)
        has_name = "gen_ai.tool.name" in self.attributes or "gen_ai.tool.call.id" in self.attributes
        return not self.is_call and (is_tool or has_name or self.operation == "execute_tool")

    @property
    def is_agent(self) -> bool:
        """Whether an agent worked on a task."""
        return self.operation in ("invoke_agent", "invoke_workflow")

    @property
    def is_evaluation(self) -> bool:
        """Whether the span itself is an evaluation: by the conventions, or by attributes `evaluation.*`."""
        return any(name.startswith((EVALUATION, "evaluation.")) for name in self.attributes)


def read_spans(export: Any, place: str) -> Iterator[Span | Skipped]:
    """Return the spans of an export, and their attributes that cannot be read."""
    for resource in _list_at(export, "resourceSpans"):
        for scope in _list_at(resource, "scopeSpans"):
            for span in _list_at(scope, "spans"):
                if isinstance(span, Mapping):
                    skipped: list[Skipped] = []
                    yield _read_span(span, place, skipped)
                    yield from skipped


def _read_span(span: Mapping[str, Any], place: str, skipped: list[Skipped]) -> Span:
    attributes = _attributes(span, place, skipped)
    evaluations = [attributes] if any(name.startswith(EVALUATION) for name in attributes) else []
    for event in _list_at(span, "events"):
        of_event = _attributes(event, place, skipped)
        if any(name.startswith(EVALUATION) for name in of_event):
            evaluations.append(of_event)
        else:
            attributes = attributes | of_event
    start = str(span.get("startTimeUnixNano", ""))
    first_word = str(span.get("name") or "").partition(" ")[0]
    return Span(
        place,
        str(span.get("traceId") or ""),
        str(span.get("spanId") or ""),
        str(span.get("parentSpanId") or ""),
        int(start) if start.isdecimal() else 0,
        str(attributes.get("gen_ai.operation.name") or first_word),
        attributes,
        tuple(evaluations),
        _error(span, attributes),
    )


def _error(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> str | None:
    """Return what is said of the failure of a span; None if it did not fail."""
    status = span.get("status")
    status = status if isinstance(status, Mapping) else {}
    if status.get("code") not in _ERRORS and not attributes.keys() & {"error.type", "exception.type"}:
        return None
    texts = [*(attributes.get(name) for name in _ERROR_TEXTS), status.get("message")]
    return next((str(text) for text in (*texts, attributes.get("error.type")) if text), "")


def _list_at(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else []


def _attributes(owner: Any, place: str, skipped: list[Skipped]) -> dict[str, Any]:
    """Return the attributes of a span or an event by name; one that cannot be read is left out alone."""
    attributes = {}
    for entry in _list_at(owner, "attributes"):
        try:
            attributes[str(entry["key"])] = _plain(entry.get("value"))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            found = entry.get("key") if isinstance(entry, Mapping) else entry
            skipped.append(Skipped(ODD_ATTRIBUTE, place, shortened(found)))
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
