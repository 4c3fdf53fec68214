"""Which span tells an outcome, calls and tools that failed, and windows in traces of OpenTelemetry."""

from __future__ import annotations

import functools
import json
import tempfile
import tracemalloc
from collections import Counter

import pytest

from components.errors import DataError
from components.trajectories.imports.copies.episode_copies import MIDDLE, SHORTER_COPY, without_copies
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped
from components.trajectories.imports.otel.spans import (
    NO_ANSWER,
    NO_ERROR_TEXT,
    NO_INPUT,
    NO_MESSAGES,
    span_records,
)
from components.trajectories.imports.outcomes import outcome_rule


def attributes_of(values):
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()]


def span(name, parent="", *, trace="t", conversation="", events=(), status=None, **values):
    """A span with the id `name` and the attributes `values`."""
    if conversation:
        values["gen_ai.conversation.id"] = conversation
    return {
        **{"traceId": trace, "spanId": f"{trace}-{name}", "name": name, "status": status or {}},
        **({"parentSpanId": f"{trace}-{parent}"} if parent else {}),
        "attributes": attributes_of(values),
        "events": [{"name": "e", "attributes": attributes_of(event)} for event in events],
    }


def turn(role, *texts):
    parts = [{"type": "text", "content": text} if isinstance(text, str) else text for text in texts]
    return {"role": role, "parts": parts}


def chat(name, *texts, parent="root", answer=True, **fields):
    """The span of a model call with turns of user and assistant; without `answer`, it has failed."""
    turns = [
        text if isinstance(text, dict) else turn("assistant" if number % 2 else "user", text)
        for number, text in enumerate(texts)
    ]
    messages = {"gen_ai.input.messages": json.dumps(turns[:-1] if answer else turns)}
    if answer:
        messages["gen_ai.output.messages"] = json.dumps(turns[-1:])
    return span(name, parent, **{"gen_ai.operation.name": "chat"} | messages | fields)


def agent(name="root", parent="", **fields):
    return span(name, parent, **{"gen_ai.operation.name": "invoke_agent"} | fields)


def read(tmp_path, *spans, outcome=""):
    export = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "spans.json").write_text(json.dumps(export))
    entries = list(logged_episodes([tmp_path / "spans.json"], "otel", outcome_rule(outcome, 1.0), str))
    episodes = {entry.id: entry for entry in entries if isinstance(entry, LoggedEpisode)}
    return episodes, [entry for entry in entries if isinstance(entry, Skipped)]


def outcome_of(tmp_path, *spans, **options):
    (episode,) = read(tmp_path, *spans, **options)[0].values()
    return episode.success


CALL = chat("call", "A box.", "open")


@pytest.mark.parametrize("parent", ["root", ""])
@pytest.mark.parametrize(
    "fields",
    [
        {"gen_ai.operation.name": "execute_tool"},
        {"gen_ai.tool.name": "look"},
        {"traceloop.span.kind": "tool"},
    ],
)
def test_a_tool_tells_no_outcome(tmp_path, parent, fields):
    tool = span("tool", parent, success=True, task="look around", **fields)
    assert outcome_of(tmp_path, CALL, tool, agent()) is None
    assert outcome_of(tmp_path, CALL, tool, agent(success=False)) is False
    assert outcome_of(tmp_path, chat("call", "A box.", "open", success=True), agent()) is None


def test_the_root_the_outermost_agent_and_a_call_alone_tell_the_outcome(tmp_path):
    assert outcome_of(tmp_path, CALL, span("root", success=True)) is True
    server = [span("root"), agent("main", "root", success=True), chat("c", "A box.", "open", parent="main")]
    assert outcome_of(tmp_path, *server) is True
    below = [agent("sub", "main", success=False), span("step", "main", success=False)]
    assert outcome_of(tmp_path, *server, *below) is True
    assert outcome_of(tmp_path, *server, agent("other", "root", success=False)) is True
    assert outcome_of(tmp_path, chat("c", "A box.", "open", parent="", success=True)) is True


@pytest.mark.parametrize("is_flat", [False, True])
def test_a_sub_agent_has_neither_the_outcome_nor_the_task_of_its_trace(tmp_path, is_flat):
    spans = [
        chat("call", "A box.", "open", parent="" if is_flat else "root", conversation="main"),
        chat("other", "Lamps?", "none", parent="" if is_flat else "sub", conversation="sub"),
        span("root", success=True, task="open the box"),
    ]
    spans += [] if is_flat else [agent("sub", "call", conversation="sub", success=False)]
    episodes, _ = read(tmp_path, *spans)
    assert (episodes["main"].success, episodes["main"].instruction) == (True, "open the box")
    assert (episodes["sub"].success, episodes["sub"].instruction) == (None if is_flat else False, "Lamps?")


def test_the_conversation_of_an_agent_is_that_of_its_calls(tmp_path):
    episodes, _ = read(tmp_path, CALL, agent(conversation="a", success=True))
    assert episodes["a"].success is True


def evaluation(name="", **values):
    return {f"gen_ai.evaluation.{key.replace('_', '.')}": value for key, value in values.items()} | (
        {"gen_ai.evaluation.name": name} if name else {}
    )


def test_an_evaluation_in_its_own_trace_belongs_to_its_conversation(tmp_path):
    calls = [
        chat("one", "A box.", "open", trace="t1", parent="", conversation="a"),
        chat("two", "A box.", "open", "Locked.", "use key", trace="t2", parent="", conversation="a"),
        chat("x", "A lamp.", "light", trace="t3", parent="", conversation="b"),
    ]
    for told in (
        span("judge", trace="t4", conversation="a", **{"evaluation.success": True}),
        span("judge", trace="t4", conversation="a", **evaluation("task_success", score_label="pass")),
        span("judge", trace="t4", events=[{"gen_ai.conversation.id": "a"} | evaluation(score_value=1.0)]),
    ):
        rule = "field:evaluation.success" if "evaluation.success" in str(told) else ""
        episodes, skipped = read(tmp_path, *calls, told, outcome=rule)
        assert (episodes["a"].success, episodes["b"].success, skipped) == (True, None, [])
    _, skipped = read(tmp_path, *calls, span("judge", trace="t4", success=True))
    assert [entry.reason for entry in skipped] == [NO_MESSAGES]


@pytest.mark.parametrize(
    ("evaluations", "success"),
    [
        ([evaluation("task_success", score_value=0.0)], False),
        ([evaluation("Relevance", score_value=5.0)], None),
        ([evaluation("Quality", score_label="pass", score_value=0.2)], True),
        ([evaluation("Quality", score_label="pass"), evaluation("Tone", score_label="fail")], None),
        ([evaluation("Tone", score_label="fail"), evaluation("solved", score_label="yes")], True),
        ([evaluation("solved", score_label="yes"), evaluation("solved", score_label="no")], None),
    ],
)
def test_the_evaluation_that_tells_the_outcome(tmp_path, evaluations, success):
    assert outcome_of(tmp_path, chat("call", "A box.", "open", events=evaluations), agent()) is success


def test_evaluations_are_fields_and_those_of_tools_are_none(tmp_path):
    events = [evaluation("Quality", score_value=0.7), evaluation("Tone", score_value=0.1)]
    root = agent(events=events)
    assert outcome_of(tmp_path, CALL, root, outcome="field:evaluations.Quality") is False
    assert outcome_of(tmp_path, CALL, root) is None
    tool = span("execute_tool x", "root", events=[evaluation("solved", score_label="yes")])
    assert outcome_of(tmp_path, CALL, tool, agent()) is None
    check = span("check", "root", **{"evaluation.success": True})
    assert outcome_of(tmp_path, CALL, check, agent(), outcome="field:evaluation.success") is True


def test_a_model_call_that_failed_gives_the_last_observation_or_is_counted(tmp_path):
    limit = {"answer": False, "status": {"code": 2, "message": "429"}}
    episodes, skipped = read(tmp_path, CALL, chat("two", "A box.", "open", "It is locked.", **limit))
    assert episodes["t"].steps == (LoggedStep("", "open", "It is locked."),) and not skipped
    episodes, skipped = read(tmp_path, chat("one", "A box.", **limit))
    assert not episodes and [(entry.reason, entry.found) for entry in skipped] == [(NO_ANSWER, "429")]
    output = span("one", **{"gen_ai.output.messages": json.dumps([turn("assistant", "open")])})
    assert [entry.reason for entry in read(tmp_path, CALL, output)[1]] == [NO_INPUT]


def tool_call(number):
    return {"type": "tool_call", "id": f"c{number}", "name": "open", "arguments": {"box": number}}


def response(number, text):
    return turn("tool", {"type": "tool_call_response", "id": f"c{number}", "response": text})


def tool_span(number, *, has_id=True, **fields):
    own = {"gen_ai.tool.name": "open"} | ({"gen_ai.tool.call.id": f"c{number}"} if has_id else {})
    return span("execute_tool open", "root", **own, **fields)


ERROR = {"code": "STATUS_CODE_ERROR", "message": "timed out"}
FIRST = (turn("user", "Boxes."), turn("assistant", tool_call(1)))
SECOND = (*FIRST, response(1, "Empty."), turn("assistant", tool_call(2)))


@pytest.mark.parametrize(
    "failure",
    [
        tool_span(2, status=ERROR),
        tool_span(2, has_id=False, status=ERROR),
        tool_span(2, events=[{"exception.type": "Timeout", "exception.message": "timed out"}]),
    ],
)
def test_the_error_of_a_tool_is_the_observation_of_its_call(tmp_path, failure):
    episodes, skipped = read(
        tmp_path, chat("one", *FIRST), chat("two", *SECOND), failure, agent(success=False)
    )
    assert [step.observation for step in episodes["t"].steps] == ["Empty.", "timed out"]
    assert episodes["t"].success is False and not skipped


def test_an_error_that_the_messages_tell_is_not_told_twice(tmp_path):
    third = (*SECOND, response(2, "Error: timed out."), turn("assistant", "I stop."))
    spans = [chat("one", *FIRST), chat("two", *SECOND), chat("three", *third), tool_span(2, status=ERROR)]
    entries, skipped = read(tmp_path, *spans)
    assert [step.observation for step in entries["t"].steps] == ["Empty.", "Error: timed out.", None]
    assert not skipped


def test_a_call_between_others_without_an_answer_gets_its_error(tmp_path):
    calls = turn("assistant", tool_call(1), tool_call(2))
    turns = (turn("user", "Boxes."), calls, response(1, "Empty."), turn("assistant", "I stop."))
    episodes, _ = read(tmp_path, chat("one", *turns), tool_span(2, status=ERROR))
    assert [step.observation for step in episodes["t"].steps] == ["Empty.\n\ntimed out", None]


def test_an_error_without_a_text_leaves_the_episode_out_by_name(tmp_path):
    failure = tool_span(2, status={"code": 2})
    episodes, skipped = read(tmp_path, chat("one", *FIRST), chat("two", *SECOND), failure)
    assert not episodes and [entry.reason for entry in skipped] == [NO_ERROR_TEXT] * 2
    episodes, skipped = read(tmp_path, chat("one", *FIRST), chat("two", *SECOND), tool_span(2))
    assert len(episodes["t"].steps) == 2 and not skipped, "it did not fail: the log ends with the call"


def test_windows_of_a_conversation_in_one_trace_are_found_as_such(tmp_path):
    texts = [text for number in range(6) for text in (f"room {number}", f"walk {number}")]
    windows = [texts[:2], texts[:4], texts[2:8], texts[4:12]]
    calls = [chat(f"c{number}", *window) for number, window in enumerate(windows)]
    export = {"resourceSpans": [{"scopeSpans": [{"spans": [*calls, agent(success=True)]}]}]}
    (tmp_path / "spans.json").write_text(json.dumps(export))
    entries = list(logged_episodes([tmp_path / "spans.json"], "otel", outcome_rule("", 1.0), str))
    assert all(isinstance(entry, LoggedEpisode) for entry in entries)
    kept, skipped = without_copies(entries)
    assert [(one.first_observation, len(one.steps), one.success) for one in kept] == [("room 0", 2, None)]
    assert Counter(entry.reason for entry in skipped) == {SHORTER_COPY: 1, MIDDLE: 2}


def interleaved_calls(conversations, calls):
    """The spans of calls of all conversations by turns, and last the roots of their traces."""
    words = "You see a long corridor with many doors. " * 5
    for number in range(calls):
        for name in range(conversations):
            texts = [f"{words} {name} {place}" for place in range(2 * number + 2)]
            yield chat(f"c{number}", *texts, trace=f"t{name}", conversation=f"c{name}")
    for name in range(conversations):
        yield agent(trace=f"t{name}", success=True)


def test_one_trace_at_a_time_is_in_memory():
    conversations, calls, most = 60, 8, 500_000
    exports = (
        ("e", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
        for span in interleaved_calls(conversations, calls)
    )
    tracemalloc.start()
    try:
        records = sum(record["success"] for _, record in span_records(exports))
        assert records == conversations * calls
        assert tracemalloc.get_traced_memory()[1] < most, "all spans take several MB"
    finally:
        tracemalloc.stop()


def test_a_full_disk_is_told_with_the_folder(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", functools.partial(open, "/dev/full", "r+b"))
    exports = [("e", {"resourceSpans": [{"scopeSpans": [{"spans": [CALL] * 100}]}]})]
    with pytest.raises(DataError, match=r"temporary file in .* No space left.*TMPDIR"):
        list(span_records(exports))


def test_a_value_as_deep_as_json_reads_it_is_read():
    """`pickle` cannot write it."""
    deep = "[" * 900 + "]" * 900
    deep_call = chat("call", "A box.", "open", other="deep")
    export = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [deep_call]}]}]}).replace('"deep"', deep)
    ((_, record),) = span_records([("e", json.loads(export))])
    assert [message["role"] for message in record["messages"]] == ["user", "assistant"]
