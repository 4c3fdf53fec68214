"""`dreamgym import` in a new repository: from a log to validated data, and the mistakes that people make."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from chat_server import ChatServer, Reply
from small_job import ROOT, command_of
from typer.testing import CliRunner

from components.config import load_config
from components.environments import make_adapter
from components.errors import DataError, EnvironmentFailure
from components.records import Task
from components.trajectories.store import DataLayout, read_tasks, read_transitions
from flows.cli import app as cli
from flows.jobs import import_logs

LOG = ROOT / "examples" / "logs" / "openai.jsonl"


@pytest.fixture
def repository(tmp_path):
    for command in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "new"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def run(repository, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        command_of(*words), cwd=repository, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_example_log_becomes_valid_data(repository):
    done = run(repository, "import", str(LOG), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcomes"] == {"success": 4, "failure": 2, "unknown": 1} and found["masked"] == 1
    layout = DataLayout.of(repository, "recorded")
    names = ("train", "fidelity", "test")
    tasks = {name: read_tasks(layout.tasks(name)) for name in names}
    steps = {name: read_transitions(layout.trajectories(name)) for name in names}
    assert all(tasks[name] and steps[name] for name in names)
    everything = [step for name in names for step in steps[name]]
    assert not any("sk-" in step.next_state + step.action for step in everything)
    assert 'read_file({"path": "notes.txt"})' in {step.action for step in everything}
    skipped = [json.loads(line) for line in (repository / ".dreamgym/import/skipped.jsonl").open()]
    assert {entry["reason"] for entry in skipped} == {
        "a copy, or the beginning of a longer episode",
        "no reply of an agent",
        "a line that is not JSON",
    }
    checked = run(repository, "validate", "environment.name=recorded")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    again = run(repository, "import", str(LOG), "--json")
    assert json.loads(again.stdout)["dvc_hash"] == found["dvc_hash"], "the same log gives the same data"
    unknown = run(repository, "import", str(LOG), "--outcome", "unknown", "--json")
    assert json.loads(unknown.stdout)["outcomes"] == {"unknown": 7}
    assert not any(
        step.reward or step.done for name in names for step in read_transitions(layout.trajectories(name))
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.jsonl"], "There is no file gone.jsonl"),
        ([str(LOG), "--outcome", "maybe"], "--outcome is 'maybe'. Expected field:PATH"),
        ([str(LOG), "--outcome", "last:("], "is no regular expression"),
        ([str(LOG), "data.mask=[(]"], "data.mask has '('"),
    ],
    ids=str,
)
def test_mistakes_are_named(repository, monkeypatch, words, message):
    monkeypatch.chdir(repository)
    done = CliRunner().invoke(cli.app, ["import", *words, "--root", str(repository)])
    assert done.exit_code, done.output
    assert message in " ".join(done.output.split())
    assert not (repository / "data").exists()


def test_a_log_below_the_least_success_is_refused_with_the_highest_number(repository):
    log = repository / "scores.jsonl"
    log.write_text("".join(conversation(n, "A house.", success=None, score=n / 10) for n in range(9)))
    options = import_logs.ImportOptions(needs_success=True)
    words = r"9 failure.* highest number among the outcomes is 0\.8; --success is 1\..*--success 0\.8\."
    with pytest.raises(DataError, match=words):
        import_logs.import_logs([log], load_config(), repository, options)
    unknown = import_logs.ImportOptions(outcome="unknown", needs_success=True)
    with pytest.raises(DataError, match=r"one step, of which.*\(9\).*--outcome field:PATH"):
        import_logs.import_logs([log], load_config(), repository, unknown)
    assert not (repository / "data").exists()


class Prepared(Exception):
    """Ends a command where the import would begin."""


def test_retrain_reads_logs_with_the_options_of_import(monkeypatch):
    given = []

    def prepare(page, logs, options, *further):
        given.append(options)
        raise Prepared

    monkeypatch.setattr(cli, "prepare_run_on_logs", prepare)
    words = ["--as", "steps", "--outcome", "field:score", "--success", "0.8", "--held-out", "0.2"]
    words += ["--behaviour", "expert", "--cut"]
    CliRunner().invoke(cli.app, ["retrain", "--logs", "a.jsonl", *words, "--debug"])
    CliRunner().invoke(cli.app, ["retrain", "--logs", "a.jsonl", "--debug"])
    assert given == [
        import_logs.ImportOptions("steps", "field:score", 0.8, 0.2, "expert", True, needs_success=True),
        import_logs.ImportOptions(needs_success=True),
    ]
    done = CliRunner().invoke(cli.app, ["retrain", "--success", "0.8", "--cut"])
    assert done.exit_code and "--success and --cut without --logs" in " ".join(done.output.split())


def test_the_recorded_world_says_what_it_has_not():
    adapter = make_adapter(load_config(None, ["environment.name=recorded"]).environment)
    task = Task("recorded/log/1", "recorded", "train", "open the door", "You see a door.")
    for attempt in (
        lambda: adapter.open(),
        lambda: adapter.tasks("train", 1, 0),
        lambda: adapter.behaviour("expert", task, 0),
    ):
        with pytest.raises(EnvironmentFailure, match="recorded, which has logs and no live world"):
            attempt()


def conversation(number, system, *, state="Box 1: a coin.", **fields):
    first = f"{system} Room {number}."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": first}]
    messages += [{"role": "assistant", "content": "open box 1"}, {"role": "user", "content": state}]
    record = {"id": f"{system} {number}", "task": f"find coin {number}", "success": number % 2 == 0}
    return json.dumps(record | {"messages": messages} | fields) + "\n"


def test_a_huge_observation_is_a_named_skip_and_two_worlds_in_a_log_are_pointed_at(repository, tmp_path):
    log = tmp_path / "mixed.jsonl"
    with log.open("w") as lines:
        lines.writelines(conversation(number, "A house of boxes.", env_id="house") for number in range(40))
        lines.writelines(conversation(number, "A web shop.", env_id="shop") for number in range(10))
        lines.write(conversation(99, "A house of boxes.", state="x" * 10_000_000))
    done = run(repository, "import", str(log))
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "40 of 50 episodes have the same system message" in said and "A house of boxes." in said
    assert "1 other system messages: 'A web shop.' in 10 episodes" in said
    assert "2 environments are named: 'house' in 40 episodes, 'shop' in 10 episodes" in said
    (skipped,) = [json.loads(line) for line in (repository / ".dreamgym/import/skipped.jsonl").open()]
    assert skipped["reason"] == "a text that is too long" and skipped["place"].endswith(":51")


def invoke(repository, *words):
    """`dreamgym import` in this process, which is quicker than `run`."""
    done = CliRunner().invoke(cli.app, ["import", *words, "--root", str(repository)])
    return done.exit_code, " ".join(done.output.split())


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_failed_import_leaves_the_data_as_it_was(repository, tmp_path, monkeypatch):
    code, text = invoke(repository, str(LOG))
    assert code == 0, text
    before = files_of(repository / "data")
    assert "recorded/description.txt" in before

    def refuse(path, text):
        raise DataError(f"{path} cannot be written.")

    monkeypatch.setattr(import_logs, "write_text", refuse)
    log = tmp_path / "other.jsonl"
    log.write_text("".join(conversation(number, "A web shop.") for number in range(9)))
    code, text = invoke(repository, str(log))
    assert code and "description.txt cannot be written" in text
    assert files_of(repository / "data") == before
    monkeypatch.undo()

    open_ended = tmp_path / "open.jsonl"
    open_ended.write_text(log.read_text().replace('"success"', '"other"'))
    with ChatServer(Reply('{"error": "no such field"}', status=400)) as server:
        words = ["--outcome", "judge", f"endpoint.url={server.url}", "endpoint.model=m"]
        code, text = invoke(repository, str(open_ended), *words)
    assert code and "None of the judge's first 9 answers" in text
    assert files_of(repository / "data") == before


def test_secrets_are_masked_in_the_list_of_what_was_left_out_and_patterns_may_be_long(repository, tmp_path):
    log = tmp_path / "log.jsonl"
    lines = [conversation(number, "A house.") for number in range(10)]
    lines[9] = lines[9].replace('"A house."', r'"A house. \ud800"')
    log.write_text("".join(lines) + 'calling with tok_1234 and password=hunter22\n{"id": "cut')
    pattern = "|".join(f"tok_{number}" for number in range(1200, 1300))
    patterns = rf"data.mask=['(?:{pattern})','password=(\S+)']"
    assert len(patterns) > 255
    code, text = invoke(repository, str(log), patterns)
    assert code == 0 and " 0 secrets masked" in text, text
    found = [json.loads(line) for line in (repository / ".dreamgym/import/skipped.jsonl").open()]
    assert {entry["found"] for entry in found} == {
        "calling with [masked] and password=[masked]",
        '{"id": "cut',
        "system message",
    }


EPISODES, STEPS = 5_000, 20
MOST_SECONDS, MOST_GB = 120, 2.0


def large_record(number):
    """An episode of 20 steps of one of 250 tasks, with texts of some 100 letters."""
    room = number % 250
    messages = [{"role": "user", "content": f"You are in room {room}. Shelf {room % 17} has a cup."}]
    for step in range(STEPS):
        thought = f"The cup may be behind door {(number * step) % 97} of the long corridor."
        state = f"Door {(number * step) % 97} is open. You see box {number} and lamp {step}, and no cup."
        messages += [
            {"role": "assistant", "content": f"Thought: {thought}\nAction: open door {step}"},
            {"role": "user", "content": state},
        ]
    record = {"id": f"e{number}", "task": f"find the cup of room {room}", "success": number % 3 == 0}
    return record | {"messages": messages}


def large_spans(number):
    """The span of each model call of such an episode, with the conversation so far, and last their root."""
    record = large_record(number)
    messages = [
        {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}
        for message in record["messages"]
    ]
    for end in range(1, len(messages) + 1, 2):
        values = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(messages[:end]),
            "gen_ai.output.messages": json.dumps(messages[end : end + 1]),
        }
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
        is_last = end == len(messages)
        yield {
            **{"traceId": record["id"], "spanId": f"s{end}", "parentSpanId": "root"},
            "attributes": attributes[:-1] if is_last else attributes,
        }
    values = {
        "task": {"stringValue": record["task"]},
        "success": {"boolValue": record["success"]},
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    yield {"traceId": record["id"], "spanId": "root", "attributes": attributes}


def write_large_log(path, form):
    """A log of 100,000 transitions in 5,000 episodes; the spans of 50 traces are mixed."""
    with path.open("w") as log:
        if form == "openai":
            log.writelines(json.dumps(large_record(number)) + "\n" for number in range(EPISODES))
            return
        for first in range(0, EPISODES, 50):
            for spans in zip(*map(large_spans, range(first, first + 50)), strict=True):
                export = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
                log.write(json.dumps(export) + "\n")


@pytest.mark.long
@pytest.mark.parametrize("form", ["openai", "otel"])
def test_a_hundred_thousand_transitions_import_in_two_minutes_and_two_gigabytes(
    repository, tmp_path, capsys, form
):
    write_large_log(tmp_path / "large.jsonl", form)
    program = (
        "import pathlib, runpy, sys, time\n"
        "began = time.monotonic()\n"
        "sys.argv = ['dreamgym', *sys.argv[1:]]\n"
        "try:\n    runpy.run_module('flows.cli', run_name='__main__')\n"
        "finally:\n"
        "    status = pathlib.Path('/proc/self/status').read_text()\n"
        "    kilobytes = status.partition('VmHWM:')[2].split()[0]\n"
        "    print('MEASURED', time.monotonic() - began, int(kilobytes) / 1e6, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "import", str(tmp_path / "large.jsonl"), "--as", form, "--json"],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    steps = sum(
        len(read_transitions(DataLayout.of(repository, "recorded").trajectories(name)))
        for name in ("train", "fidelity", "test")
    )
    assert steps == EPISODES * STEPS
    seconds, gigabytes = map(float, done.stderr.rpartition("MEASURED ")[2].split())
    with capsys.disabled():
        print(f"\n{form}: {steps:,} transitions in {seconds:.0f} s and {gigabytes:.2f} GB")
    assert seconds < MOST_SECONDS and gigabytes < MOST_GB
