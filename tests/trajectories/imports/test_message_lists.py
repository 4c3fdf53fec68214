"""Message lists as agents log them, and each kind that cannot be used."""

from __future__ import annotations

import json

import pytest

from components.trajectories.imports.conversations import whole_records
from components.trajectories.imports.logged_episode import LoggedStep, Skipped, Unusable
from components.trajectories.imports.message_lists import NO_RESULT, episode_of
from components.trajectories.imports.outcomes import outcome_rule

RULE = outcome_rule("", 1.0)


def turn(role, content=None, **fields):
    return {"role": role, "content": content, **fields}


def tool_call(name, arguments="{}", call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(*messages, **fields):
    return episode_of({"messages": list(messages), **fields}, "log.jsonl:1", RULE)


SEEN = turn("user", "Open the door.")


def test_tool_calls_are_the_action_and_the_text_beside_them_the_thought():
    reply = turn("assistant", "It may be locked.", tool_calls=[tool_call("open", '{"door": 2}')])
    episode = read(
        turn("system", "A house."),
        SEEN,
        reply,
        turn("tool", "It opens.", tool_call_id="c1"),
        success=True,
    )
    assert episode.steps == (LoggedStep("It may be locked.", 'open({"door": 2})', "It opens."),)
    assert (episode.system, episode.instruction, episode.first_observation) == (
        "A house.",
        "Open the door.",
        "Open the door.",
    )
    assert episode.success is True


def test_results_of_parallel_calls_are_in_the_order_of_the_calls():
    reply = turn("assistant", tool_calls=[tool_call("look"), tool_call("listen", call_id="c2")])
    answers = [turn("tool", "Silence.", tool_call_id="c2"), turn("tool", "A wall.", tool_call_id="c1")]
    (step,) = read(SEEN, reply, *answers).steps
    assert (step.action, step.observation) == ("look({}); listen({})", "A wall.\n\nSilence.")


def test_a_parallel_call_without_a_result_is_named_and_none_is_invented():
    reply = turn("assistant", tool_calls=[tool_call("look"), tool_call("listen", call_id="c2")])
    with pytest.raises(Unusable, match=NO_RESULT) as refused:
        read(SEEN, reply, turn("tool", "A wall.", tool_call_id="c1"))
    assert refused.value.found == "listen({})"
    (step,) = read(SEEN, reply).steps
    assert step.observation is None, "the log ends with the calls"
    (step,) = read(SEEN, reply, turn("user", "Both done.")).steps
    assert step.observation == "Both done."


@pytest.mark.parametrize(
    ("content", "observation"),
    [
        ({"ok": True, "text": "é"}, '{"ok": true, "text": "é"}'),
        (12, "12"),
        (False, "false"),
        ({}, "{}"),
    ],
    ids=str,
)
def test_the_result_of_a_tool_may_be_json(content, observation):
    reply = turn("assistant", tool_calls=[tool_call("open")])
    (step,) = read(SEEN, reply, turn("tool", content, tool_call_id="c1")).steps
    assert step.observation == observation


@pytest.mark.parametrize("name", ["messages", "conversations"])
def test_a_list_of_messages_may_be_json_text(name):
    messages = [SEEN, turn("assistant", "open"), turn("user", "It opens.")]
    record = {name: json.dumps(messages), "success": True}
    assert episode_of(record, "x:1", RULE).steps == (LoggedStep("", "open", "It opens."),)
    with pytest.raises(Unusable, match="no list of messages"):
        episode_of({name: "[not JSON"}, "x:1", RULE)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (turn("assistant", "Thought: try it\nAction: open door"), ("try it", "open door")),
        (turn("assistant", "Try it.\nAction: open door\nwith care"), ("Try it.", "open door\nwith care")),
        (turn("assistant", "Action: open door"), ("", "open door")),
        (turn("assistant", "open door"), ("", "open door")),
        (turn("assistant", "<think>hm</think>\nopen door"), ("hm", "open door")),
        (turn("assistant", "open door", reasoning_content="hm"), ("hm", "open door")),
        (turn("assistant", [{"type": "text", "text": "open door"}]), ("", "open door")),
        (turn("assistant", None, function_call={"name": "open", "arguments": ""}), ("", "open({})")),
        (turn("assistant", None, tool_calls=[tool_call("open", "{door: 2}")]), ("", "open({door: 2})")),
        ({"from": "gpt", "value": "open door"}, ("", "open door")),
    ],
    ids=str,
)
def test_thought_and_action_of_a_reply(reply, expected):
    (step,) = read(SEEN, reply, turn("user", "It opens.")).steps
    assert (step.thought, step.action) == expected


def test_a_text_and_the_calls_behind_it_are_one_reply():
    reply = [turn("assistant", "I try it."), turn("assistant", None, tool_calls=[tool_call("open")])]
    (step,) = read(SEEN, *reply, turn("tool", "It opens.")).steps
    assert (step.thought, step.action) == ("I try it.", "open({})")


def test_a_log_may_end_with_an_action():
    steps = read(SEEN, turn("assistant", "open"), turn("user", "Locked."), turn("assistant", "leave")).steps
    assert [step.observation for step in steps] == ["Locked.", None]


def test_a_logged_call_is_its_request_with_its_answer():
    record = {
        "request": {"messages": [SEEN]},
        "response": {"choices": [{"message": turn("assistant", "open")}]},
    }
    assert episode_of(record, "x:1", RULE).steps == (LoggedStep("", "open", None),)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "an empty list of messages"),
        ([SEEN], "no reply of an agent"),
        ([turn("assistant", "open")], "nothing that the agent saw before its first reply"),
        ([SEEN, "hello"], "a message that is no object"),
        ([SEEN, turn("ghost", "boo")], "an unknown role"),
        (
            [SEEN, turn("assistant", "open"), turn("assistant", "close")],
            "two replies without an observation",
        ),
        ([SEEN, turn("assistant", " ")], "an empty reply"),
        ([SEEN, turn("assistant", None, tool_calls=[{"id": "x"}])], "a tool call without a name"),
        ([SEEN, turn("assistant", None, tool_calls="open")], "tool calls that are no list"),
        (
            [turn("user", [{"type": "image_url"}]), turn("assistant", "open")],
            "content that is not text",
        ),
        ([turn("user", 3), turn("assistant", "open")], "content that is not text"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_named(messages, reason):
    with pytest.raises(Unusable, match=reason):
        read(*messages)
    with pytest.raises(Unusable, match="no list of messages"):
        episode_of({"text": "hello"}, "x:1", RULE)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"success": True}, True),
        ({"success": "false"}, False),
        ({"reward": 1}, True),
        ({"reward": "0.5"}, False),
        ({"reward": float("nan")}, None),
        ({"reward": "NaN"}, None),
        ({"reward": float("inf")}, None),
        ({"reward": float("-inf")}, None),
        ({"score": "Infinity"}, None),
        ({"reward": 10**400}, None),
        ({"score": "very good"}, None),
        ({"metadata": {"outcome": "passed"}}, True),
        ({"reward": None, "metadata": {"success": False}}, False),
        ({}, None),
    ],
    ids=str,
)
def test_usual_fields_tell_the_outcome_and_nothing_else_does(fields, expected):
    assert read(SEEN, turn("assistant", "open"), turn("user", "It opens."), **fields).success is expected


def test_rules_of_outcomes():
    record = {"messages": [SEEN, turn("assistant", "open"), turn("user", "It opens.")], "a": {"b": 0.6}}

    def outcome(rule, threshold=1.0):
        return episode_of(record, "x:1", outcome_rule(rule, threshold)).success

    assert outcome("field:a.b", 0.5) is True and outcome("field:a.b") is False
    assert outcome("field:a.c") is None and outcome("unknown") is None
    assert outcome("last:opens") is True and outcome("last:(?i)locked") is False


def test_interleaved_messages_are_put_together():
    lines = [
        ("x:1", {"conversation_id": "a", **SEEN, "timestamp": 3.0}),
        ("x:2", {"conversation_id": "b", **turn("user", "Light the lamp."), "timestamp": 1.0}),
        ("x:3", {"conversation_id": "a", **turn("user", "It opens."), "timestamp": 5.0, "success": True}),
        ("x:4", {"conversation_id": "a", **turn("assistant", "open"), "timestamp": 4.0}),
        ("x:5", {"conversation_id": "b", **turn("assistant", "light"), "timestamp": 2.0}),
        ("x:6", turn("user", "Who am I?")),
        Skipped("a line that is not JSON", "x:7"),
        ("x:8", {"messages": [SEEN]}),
    ]
    found = list(whole_records(lines))
    assert [entry.reason for entry in found if isinstance(entry, Skipped)] == [
        "a message without the name of its conversation",
        "a line that is not JSON",
    ]
    first, second = (episode_of(record, place, RULE) for place, record in found[-2:])
    assert (first.id, first.place, first.success) == ("a", "x:1", True)
    assert first.steps == (LoggedStep("", "open", "It opens."),)
    assert second.steps == (LoggedStep("", "light", None),)
