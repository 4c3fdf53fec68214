"""The same two episodes as message lists, OpenTelemetry spans, a dataset on disk and recorded steps."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from datasets import Dataset, DatasetDict

from components.errors import DataError
from components.trajectories.imports import json_lines
from components.trajectories.imports.dataset import NOTHING, TooFewTasks, build
from components.trajectories.imports.json_lines import LONG_DOCUMENT, LONG_LINE
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped
from components.trajectories.imports.otel.export import ODD_ATTRIBUTE
from components.trajectories.imports.otel.spans import OTHER_CONVERSATION
from components.trajectories.imports.outcomes import outcome_rule

EXAMPLES = Path(__file__).parents[3] / "examples" / "logs"
STEPS = (
    LoggedStep("", "open box", "It is locked."),
    LoggedStep("", "use key", "The box is open."),
)


def message_records():
    messages = [
        {"role": "user", "content": "A box."},
        {"role": "assistant", "content": "open box"},
        {"role": "user", "content": "It is locked."},
        {"role": "assistant", "content": "use key"},
        {"role": "user", "content": "The box is open."},
    ]
    return [
        {"id": "a", "task": "open it", "messages": messages, "success": True},
        {"id": "b", "task": "open it", "messages": messages[:3], "success": False},
    ]


def read(path, form, outcome=""):
    entries = list(logged_episodes([path], form, outcome_rule(outcome, 1.0), lambda text: text))
    episodes = [entry for entry in entries if isinstance(entry, LoggedEpisode)]
    return episodes, [entry for entry in entries if isinstance(entry, Skipped)]


def require_both(episodes):
    won, lost = episodes
    assert (won.id, won.instruction, won.first_observation) == ("a", "open it", "A box.")
    assert (won.steps, won.success) == (STEPS, True)
    assert (lost.id, lost.steps, lost.success) == ("b", STEPS[:1], False)


def as_step_lines(*, after=True):
    lines = []
    for record in message_records():
        texts = [message["content"] for message in record["messages"]]
        for number in range(len(texts) // 2):
            before, action, following = texts[2 * number : 2 * number + 3]
            is_last = 2 * number + 3 == len(texts)
            line = {"episode_id": record["id"], "step": number, "task": "open it", "observation": before}
            line |= {"action": action, "reward": float(is_last and record["success"]), "terminated": is_last}
            lines.append(line | ({"next_observation": following} if after or is_last else {}))
    return lines


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_message_lists(tmp_path):
    require_both(read(write_lines(tmp_path / "log.jsonl", message_records()), "openai")[0])


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("order", [1, -1])
def test_steps_in_any_order_with_and_without_the_observation_after_them(tmp_path, after, order):
    lines = as_step_lines(after=after)[::order]
    episodes, skipped = read(write_lines(tmp_path / "log.jsonl", lines), "steps")
    require_both(sorted(episodes, key=lambda episode: episode.id))
    assert not skipped


def test_one_line_with_the_steps_of_an_episode_and_structured_actions(tmp_path):
    steps = [
        {"obs": {"door": "shut"}, "action": {"kind": "open"}, "reward": "1", "info": {"success": "yes"}},
    ]
    line = {"id": "x", "goal": "get in", "observation": "A door.", "steps": steps}
    (episode,), _ = read(write_lines(tmp_path / "log.jsonl", [line]), "steps")
    assert episode.steps == (LoggedStep("", '{"kind": "open"}', None),)
    assert (episode.first_observation, episode.success) == ("A door.", True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"episode_id": None}, "a step without the name of its episode"),
        ({"action": ""}, "a step without an action"),
        ({"observation": ""}, "nothing that the agent saw before its first action"),
        ({"reward": "much"}, "a reward that is no number"),
    ],
)
def test_steps_that_cannot_be_used_are_named(tmp_path, change, reason):
    line = as_step_lines()[0] | change
    episodes, skipped = read(write_lines(tmp_path / "log.jsonl", [line]), "steps")
    assert not episodes and [entry.reason for entry in skipped] == [reason]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({1: {"step": 0}}, "a step's number that occurs twice in an episode"),
        ({0: {"terminated": True}}, "a step after the end of its episode"),
        ({1: {"observation": "Fog."}}, "a step that begins with another observation than came back"),
    ],
)
def test_steps_that_do_not_follow_each_other_are_named(tmp_path, changes, reason):
    lines = [line | changes.get(number, {}) for number, line in enumerate(as_step_lines()[:2])]
    episodes, skipped = read(write_lines(tmp_path / "log.jsonl", lines), "steps")
    assert not episodes and [entry.reason for entry in skipped] == [reason]


def test_two_runs_that_number_their_episodes_alike_stay_apart_by_their_files(tmp_path):
    files = [write_lines(tmp_path / f"run{number}.jsonl", as_step_lines()[:2]) for number in (1, 2)]
    entries = list(logged_episodes(files, "steps", outcome_rule("", 1.0), str))
    assert [entry.steps for entry in entries] == [STEPS, STEPS]


@pytest.mark.parametrize("field", ["env_id", "environment", "env"])
def test_the_environment_of_an_episode_is_kept(tmp_path, field):
    lines = [line | {field: f"world of {line['episode_id']}"} for line in as_step_lines()]
    episodes, _ = read(write_lines(tmp_path / "log.jsonl", lines), "steps")
    assert [one.world for one in episodes] == ["world of a", "world of b"]
    more = [LoggedEpisode(str(n), f"l:{n}", "", f"t{n}", "B", STEPS, True) for n in range(3)]
    imported = build([*episodes, *more], "recorded", held_out=0.1, longest_text=4000)
    assert imported.worlds == {"world of a": 1, "world of b": 1}
    records = [record | {"metadata": {field: "x"}} for record in message_records()]
    episodes, _ = read(write_lines(tmp_path / "log.jsonl", records), "openai")
    assert {one.world for one in episodes} == {"x"}


def test_numbers_of_steps_may_be_text_and_the_id_of_a_row_is_no_episode(tmp_path):
    lines = [
        {**line, "step": str(line["step"]), "episode": line["episode_id"], "id": f"row-{number}"}
        for number, line in enumerate(as_step_lines())
    ][::-1]
    for line in lines:
        del line["episode_id"]
    episodes, _ = read(write_lines(tmp_path / "log.jsonl", lines), "steps")
    assert sorted((one.id, one.steps) for one in episodes) == [("a", STEPS), ("b", STEPS[:1])]


def test_an_end_that_the_world_told_is_kept_and_is_no_beginning_of_another_episode(tmp_path):
    short = [{**as_step_lines()[0], "episode_id": "short", "terminated": True}]
    episodes = logged_episodes(
        [write_lines(tmp_path / "log.jsonl", [*short, *as_step_lines()])], "steps", outcome_rule("", 1.0), str
    )
    more = [LoggedEpisode(str(n), f"l:{n}", "", f"t{n}", "A box.", STEPS, True) for n in range(3)]
    imported = build([*episodes, *more], "recorded", held_out=0.1, longest_text=4000)
    steps = [step for split in imported.transitions.values() for step in split]
    ends = {step.episode_id.partition("#")[0]: step.done for step in steps}
    assert imported.outcomes["failure"] == 1 and ends["short"], "b is a copy of it, and a is not its end"


def test_calls_of_a_judge_in_a_trace_are_no_episodes_of_its_agent(tmp_path):
    record = message_records()[0]
    guard = {
        "id": "a",
        "task": "x",
        "success": True,
        "messages": [{"role": "user", "content": "Is this safe?"}, {"role": "assistant", "content": "yes"}],
    }
    both = as_spans(record, "t")
    both["resourceSpans"] += as_spans(guard, "t")["resourceSpans"]
    episodes, skipped = read(write_lines(tmp_path / "spans.jsonl", [both]), "otel")
    assert {episode.first_observation for episode in episodes} == {"A box."}
    assert [entry.reason for entry in skipped] == [OTHER_CONVERSATION]


def test_odd_attributes_are_left_out_alone_and_counted(tmp_path):
    export = as_spans(message_records()[0], "t")
    odd = [
        {"key": "d", "value": {"intValue": float("inf")}},
        {"key": "a", "value": {"intValue": "NaN"}},
        {"key": "b", "value": {"intValue": None}},
        {"key": "c", "value": {"kvlistValue": {"values": [{"value": {"stringValue": "x"}}]}}},
    ]
    export["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]["attributes"] += odd
    line = json.dumps(export).replace("Infinity", "1e999")
    (tmp_path / "spans.jsonl").write_text(line)
    episodes, skipped = read(tmp_path / "spans.jsonl", "otel")
    assert episodes and [(entry.reason, entry.found) for entry in skipped] == [
        (ODD_ATTRIBUTE, key) for key in "dabc"
    ]


def test_thoughts_that_later_calls_leave_out_are_put_back():
    first = LoggedEpisode("a", "l:1", "", "t", "A box.", (LoggedStep("locked?", "open box", None),), True)
    whole = LoggedEpisode("a", "l:2", "", "t", "A box.", (STEPS[0], LoggedStep("so", "use key", None)), True)
    others = [LoggedEpisode(str(n), f"l:{n}", "", f"t{n}", "B", STEPS, True) for n in range(3)]
    imported = build([first, whole, *others], "recorded", held_out=0.1, longest_text=4000)
    steps = [step for split in imported.transitions.values() for step in split if step.state == "A box."]
    assert [step.thought for step in steps] == ["locked?"]
    assert imported.outcomes == {"success": 4}


def test_parquet_files_in_folders_of_the_hub(tmp_path):
    (tmp_path / "data").mkdir()
    for number, record in enumerate(message_records()):
        parquet.write_table(pa.Table.from_pylist([record]), tmp_path / "data" / f"train-{number}.parquet")
    require_both(read(tmp_path, "datasets")[0])


def test_an_empty_answer_of_the_world_is_a_state(tmp_path):
    records = message_records()
    records[0]["messages"][2]["content"] = ""
    (episode, *_) = read(write_lines(tmp_path / "log.jsonl", records), "openai")[0]
    others = [LoggedEpisode(str(n), f"l:{n}", "", f"t{n}", "B", STEPS, True) for n in range(3)]
    imported = build([episode, *others], "recorded", held_out=0.1, longest_text=4000)
    states = {step.next_state for split in imported.transitions.values() for step in split}
    assert NOTHING in states and not imported.skipped


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("[\n {\n", "jq -c '.[]' FILE"),
        ('{"chat": []}\n', "Name the list `messages`"),
        ('[{"messages": []}]\n', "jq -c '.[]' FILE"),
        ("", "Add episodes of other tasks"),
    ],
)
def test_a_log_that_cannot_be_used_says_what_to_do(tmp_path, text, advice):
    (tmp_path / "log.jsonl").write_text(text)
    episodes = logged_episodes([tmp_path / "log.jsonl"], "openai", outcome_rule("", 1.0), str)
    with pytest.raises(TooFewTasks) as refused:
        build(episodes, "recorded", held_out=0.1, longest_text=4000)
    assert advice in str(refused.value)


def test_a_nan_reward_is_an_unknown_outcome(tmp_path):
    line = as_step_lines()[0] | {"reward": float("nan")}
    (episode,), _ = read(write_lines(tmp_path / "log.jsonl", [line]), "steps")
    assert episode.success is None


@pytest.mark.parametrize("kind", ["dataset", "splits", "parquet"])
def test_datasets_on_disk(tmp_path, kind):
    records = message_records()
    path = tmp_path / "data"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(records), path)
    elif kind == "splits":
        DatasetDict(
            {"one": Dataset.from_list(records[:1]), "two": Dataset.from_list(records[1:])}
        ).save_to_disk(path)
    else:
        Dataset.from_list(records).save_to_disk(path)
    require_both(read(path, "datasets")[0])


def test_a_column_of_messages_may_be_json_text(tmp_path):
    records = [record | {"messages": json.dumps(record["messages"])} for record in message_records()]
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "log.parquet")
    require_both(read(tmp_path / "log.parquet", "datasets")[0])


def test_messages_with_and_without_calls_in_one_dataset(tmp_path):
    call = {"id": "1", "function": {"name": "open", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "A box."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "Open.", "tool_call_id": "1"},
    ]
    Dataset.from_list([{"id": "a", "messages": messages}]).save_to_disk(tmp_path / "data")
    (episode,), _ = read(tmp_path / "data", "datasets")
    assert episode.steps == (LoggedStep("", "open({})", "Open."),)


def test_what_is_no_dataset_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(DataError, match="cannot be read as a dataset"):
        read(tmp_path / "text.txt", "datasets")


def part(text):
    return {"type": "text", "content": text}


def as_spans(record, trace, *, as_text=True):
    """The episode as one span a model call, and a last span with the outcome."""

    def attribute(key, value):
        return {"key": key, "value": value}

    def structured(messages):
        if as_text:
            return {"stringValue": json.dumps(messages)}
        return {"arrayValue": {"values": [otlp(message) for message in messages]}}

    def otlp(value):
        if isinstance(value, dict):
            values = [{"key": key, "value": otlp(item)} for key, item in value.items()]
            return {"kvlistValue": {"values": values}}
        if isinstance(value, list):
            return {"arrayValue": {"values": [otlp(item) for item in value]}}
        return {"stringValue": value}

    turns = [{"role": turn["role"], "parts": [part(turn["content"])]} for turn in record["messages"]]
    spans = []
    for number in range(1, len(turns), 2):
        attributes = [
            attribute("gen_ai.operation.name", {"stringValue": "chat"}),
            attribute("gen_ai.conversation.id", {"stringValue": record["id"]}),
            attribute("gen_ai.system_instructions", structured([part("Boxes.")])),
            attribute("gen_ai.input.messages", structured(turns[:number])),
            attribute("gen_ai.output.messages", structured(turns[number : number + 1])),
        ]
        spans.append({"traceId": trace, "spanId": str(number), "name": "chat", "attributes": attributes})
    outcome = [
        attribute("evaluation.success", {"boolValue": record["success"]}),
        attribute("task", {"stringValue": record["task"]}),
        attribute("steps", {"intValue": "2"}),
    ]
    spans.append({"traceId": trace, "spanId": "root", "name": "agent", "attributes": outcome})
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("layout", ["lines", "document"])
def test_spans_of_model_calls(tmp_path, as_text, layout):
    exports = [as_spans(record, record["id"] * 4, as_text=as_text) for record in message_records()]
    path = tmp_path / "spans.json"
    if layout == "lines":
        write_lines(path, exports)
    else:
        both = [resource for export in exports for resource in export["resourceSpans"]]
        path.write_text(json.dumps({"resourceSpans": both}, indent=2))
    episodes, skipped = read(path, "otel", "field:evaluation.success")
    longest = {episode.id: episode for episode in sorted(episodes, key=lambda episode: len(episode.steps))}
    won, lost = longest["a"], longest["b"]
    assert (won.system, won.instruction, won.success) == ("Boxes.", "open it", True)
    assert won.steps == (STEPS[0], LoggedStep("", "use key", None))
    assert (lost.steps, lost.success) == ((LoggedStep("", "open box", None),), False)
    assert not skipped


def test_calls_and_responses_of_tools_in_spans(tmp_path):
    call = {"type": "tool_call", "id": "1", "name": "open", "arguments": {"box": 1}}
    response = {"type": "tool_call_response", "id": "1", "response": {"state": "open"}}
    record = message_records()[0]
    export = as_spans(record, "t")
    (span,) = [span for span in export["resourceSpans"][0]["scopeSpans"][0]["spans"] if span["spanId"] == "3"]
    turns = [
        {"role": "user", "parts": [part("A box.")]},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "try"}, call]},
        {"role": "tool", "parts": [response]},
    ]
    span["attributes"][3]["value"] = {"stringValue": json.dumps(turns)}
    episodes, _ = read(write_lines(tmp_path / "spans.jsonl", [export]), "otel")
    episode = max(episodes, key=lambda one: len(one.steps))
    assert episode.steps[0] == LoggedStep("try", 'open({"box": 1})', '{"state": "open"}')


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
@pytest.mark.parametrize(("indent", "reason"), [(None, LONG_LINE), (1, LONG_DOCUMENT)])
def test_what_is_advised_for_a_long_export_makes_it_readable(tmp_path, monkeypatch, indent, reason):
    exports = [json.loads(line) for line in (EXAMPLES / "spans.jsonl").read_text().splitlines()]
    spans = [one for export in exports for one in export["resourceSpans"]]
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": spans}, indent=indent))
    whole, _ = read(path, "otel", "field:evaluation.success")
    longest = max(len(json.dumps(span)) for one in spans for span in one["scopeSpans"][0]["spans"])
    monkeypatch.setattr(json_lines, "MOST_LINE_BYTES", longest + 100)
    with pytest.raises(TooFewTasks) as refused:
        entries = logged_episodes([path], "otel", outcome_rule("", 1.0), str)
        build(entries, "recorded", held_out=0.1, longest_text=4000)
    assert refused.value.imported.reasons == {reason: 1}
    command = str(refused.value).partition("jq -c ")[2].removesuffix(".")
    subprocess.run(f"jq -c {command}".replace("FILE", path.name), shell=True, cwd=tmp_path, check=True)
    split, skipped = read(tmp_path / "spans.jsonl", "otel", "field:evaluation.success")
    assert not skipped and len(whole) > 3
    assert [replace(one, place="") for one in split] == [replace(one, place="") for one in whole]


def test_traces_without_messages_and_other_json_are_named(tmp_path):
    empty = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "attributes": []}]}]}]}
    _, skipped = read(write_lines(tmp_path / "spans.jsonl", [empty, {"a": 1}, {"resourceSpans": 3}]), "otel")
    assert sorted(entry.reason for entry in skipped) == [
        *["an export without spans (resourceSpans)"] * 2,
        "spans without messages (gen_ai.input.messages)",
    ]


@pytest.mark.parametrize(
    ("file", "form", "outcome"),
    [
        ("spans.jsonl", "otel", "field:evaluation.success"),
        ("messages.parquet", "datasets", ""),
        ("steps.jsonl", "steps", ""),
    ],
)
def test_the_example_logs_become_the_same_tasks_and_outcomes(file, form, outcome):
    episodes = logged_episodes([EXAMPLES / file], form, outcome_rule(outcome, 1.0), str)
    imported = build(episodes, "recorded", held_out=0.1, longest_text=4000)
    assert imported.outcomes == {"success": 6, "failure": 2}
    instructions = {task.instruction for tasks in imported.tasks.values() for task in tasks}
    assert instructions == {f"light the {room}" for room in ("kitchen", "hall", "cellar", "attic")}
