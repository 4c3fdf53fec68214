"""`dreamgym serve` as a process: its address, a session, a signal, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess

import pytest
from builders import VOCABULARY, make_model, make_task, make_transition
from small_job import ROOT, command_of
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from components.config import load_config
from components.environments.alfworld.adapter import AlfworldAdapter
from components.errors import DataError
from components.language.backbone import save_model
from components.trajectories.store import DataLayout, write_tasks, write_transitions
from flows.cli import app as cli
from flows.jobs import serve

SMALL = ["experience_model.max_new_tokens=8", "experience_model.resamples=1", "evaluation.tasks=1"]


@pytest.fixture
def repository(tmp_path):
    """The data of a repository, and an untrained model as a finished stage of it."""
    layout = DataLayout.of(tmp_path, "alfworld")
    for number, name in enumerate(("train", "fidelity", "test")):
        write_tasks(layout.tasks(name), [make_task(number, split="test" if name == "test" else "train")])
    write_transitions(layout.trajectories("train"), [make_transition(step) for step in range(3)])
    write_transitions(layout.trajectories("fidelity"), [make_transition(0, "e1", "t1")])
    stage = tmp_path / ".dreamgym" / "stages" / "experience_model-0123456789ab"
    save_model(make_model(), VOCABULARY, stage / "model")
    (stage / "stage.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_sessions_and_frees_the_port(repository, number):
    """It needs a process: uvicorn handles signals only in a main thread."""
    command = command_of("serve", "--root", str(repository), "--port", "0", "--sessions", "2", *SMALL)
    server = subprocess.Popen(
        command,
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = server.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+) ", line)[1])
        assert (
            "1 tasks of train, 2 sessions" in line
            and "without a token (DREAMGYM_SERVE_TOKEN is not set)" in line
        )
        with connect(f"ws://127.0.0.1:{port}/ws") as session:
            session.send('{"type": "reset", "data": {"task_id": "t0"}}')
            assert "put a mug in desk" in session.recv(timeout=60)
            server.send_signal(number)
            with pytest.raises(ConnectionClosed, match="1012"):
                session.recv(timeout=60)
        assert server.wait(60) == 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
        messages = server.stderr.read()
        assert "all sessions are closed, and the port is free" in messages and "Traceback" not in messages
    finally:
        server.kill()
        server.wait()


def test_what_is_served_is_the_dream_that_rl_trains_in(quiet_process, repository, monkeypatch):
    """It uses the adapter's `revealing` to find what the history leaves open, and samples that."""
    served = []
    monkeypatch.setattr("components.serving.server.serve", lambda shared, *others: served.append(shared))
    done = CliRunner().invoke(cli.app, ["serve", "--root", str(repository), "--port", "0", *SMALL])
    assert done.exit_code == 0, done.output
    (shared,) = served
    shared.close()
    parts = [getattr(shared._dream, name).__func__ for name in ("_contradiction", "_objection", "_revealing")]
    assert parts == [AlfworldAdapter.contradiction, AlfworldAdapter.objection, AlfworldAdapter.revealing]


def test_a_dream_of_some_families_serves_only_their_tasks(tmp_path):
    layout = DataLayout.of(tmp_path, "alfworld")
    write_tasks(
        layout.tasks("train"),
        [make_task(number, family=family) for number, family in enumerate(("clean", "heat", "clean"))],
    )
    served = serve._served_tasks(load_config(None, ["data.families=[clean]"]), layout, "train")
    assert [task.id for task in served] == ["t0", "t2"]
    assert len(serve._served_tasks(load_config(None), layout, "train")) == 3
    with pytest.raises(
        DataError, match=r"No task of train is of data.families=\['cool'\]. There are clean, heat"
    ):
        serve._served_tasks(load_config(None, ["data.families=[cool]"]), layout, "train")


@pytest.mark.parametrize(
    ("arguments", "token", "code", "words"),
    [
        (["--host", "0.0.0.0"], "", 2, "DREAMGYM_SERVE_TOKEN is not set, and --host 0.0.0.0 can be reached"),
        ([], "short", 2, "DREAMGYM_SERVE_TOKEN holds 5 characters"),
        (["--split", "valid"], "", 2, "There is no split 'valid'. Expected one of train, fidelity, test."),
        (["--model", "nowhere"], "", 1, "nowhere holds no experience model"),
        (["--sessions", "0"], "", 2, "Invalid value for '--sessions'"),
        (["experience_model.reasoning=false"], "", 1, ""),
    ],
)
def test_wrong_options_are_reported_before_anything_is_served(
    quiet_process, repository, monkeypatch, arguments, token, code, words
):
    if arguments == ["experience_model.reasoning=false"]:
        (repository / ".dreamgym/stages/experience_model-0123456789ab/model/experience.json").write_text(
            '{"reasoning": true}'
        )
        words = "trained with reasoning=true"
    monkeypatch.setenv("DREAMGYM_SERVE_TOKEN", token)
    done = CliRunner().invoke(
        cli.app, ["serve", "--root", str(repository), "--port", "0", *arguments, *SMALL]
    )
    assert done.exit_code == code and words in " ".join(done.output.split()), done.output
    assert "Traceback" not in done.output


def test_a_port_in_use_is_reported(quiet_process, repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(cli.app, ["serve", "--root", str(repository), "--port", str(port), *SMALL])
    assert done.exit_code == 2 and f"127.0.0.1:{port} cannot be listened on" in done.output
