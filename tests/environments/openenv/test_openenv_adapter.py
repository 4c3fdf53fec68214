"""An OpenEnv server as a real environment: the counting world behind OpenEnv's own server, the dream's, and
servers that break.
"""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from dream_server import serving
from text_worlds import counting_server
from websockets.sync.server import serve

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.openenv import adapter as openenv_adapter
from components.environments.openenv import client as openenv_client
from components.errors import EnvironmentFailure
from components.trajectories.recording import collect, plan

TOKEN = "a-secret-of-some-length"


def adapter(url, workers=2, text=None, timeout_seconds=60, **settings):
    values = {"workers": workers, "timeout_seconds": timeout_seconds, "text": text or {}}
    return make_adapter(
        EnvironmentConfig.model_validate({"name": "openenv", "openenv": {"url": url, **settings}, **values})
    )


@pytest.fixture(scope="module")
def address():
    with counting_server() as url:
        yield url


@contextmanager
def open_environment(adapter, tasks):
    world = adapter.open()
    try:
        world.reset(tasks)
        yield world
    finally:
        world.close()


def test_tasks_are_those_that_the_server_lists(address):
    found = adapter(address).tasks("train", 100, 0)
    assert {task.id for task in found} == {f"openenv/train/task-{number}" for number in range(100)}
    assert all(
        task.instruction == "count to the goal" and task.initial_state.startswith("Count: 0. Goal:")
        for task in found
    )
    with pytest.raises(
        EnvironmentFailure, match="has 100 tasks of train. Expected at least 101. Lower data.train_tasks"
    ):
        adapter(address).tasks("train", 101, 0)
    with pytest.raises(
        EnvironmentFailure,
        match="has no split 'valid'. It lists train, test. Set environment.openenv.train_split",
    ):
        adapter(address, train_split="valid").tasks("train", 1, 0)


def test_one_split_for_both_holds_out_every_second_task(address):
    shared = adapter(address, test_split="train")
    train, test = ({task.id for task in shared.tasks(split, 50, 0)} for split in ("train", "test"))
    assert not train & test and len(train | test) == 100


def test_a_server_without_a_list_has_a_task_for_each_seed(address):
    seeded = adapter(address, tasks="seeds")
    (task, *_) = seeded.tasks("train", 3, 0)
    assert task.id.startswith("openenv/seed/") and int(task.id.rpartition("/")[2]) % 2 == 0
    assert json.loads(task.spec)["reset"] == {"seed": int(task.id.rpartition("/")[2])}


def test_the_fields_of_the_server_are_configurable(address):
    with pytest.raises(
        EnvironmentFailure,
        match="'text' is None; its fields are .*state.*Set environment.openenv.state_field",
    ):
        adapter(address, state_field="text").tasks("train", 1, 0)
    with pytest.raises(
        EnvironmentFailure,
        match="does not say what is to be done: its first observation has .*instruction_field",
    ):
        adapter(address, instruction_field="goal").tasks("train", 1, 0)
    assert (
        adapter(address, instruction_field="", text={"instruction": "count"})
        .tasks("train", 1, 0)[0]
        .instruction
        == "count"
    )
    wrong = adapter(address, action_field="message")
    with open_environment(wrong, wrong.tasks("train", 1, 0)) as world:
        assert "Invalid message (VALIDATION_ERROR)" in world.step(["add"])[0].info["failed"]


def test_a_failure_on_the_server_is_recorded_and_the_next_episode_plays():
    def ruin(action):
        if action == "sleep":
            time.sleep(2)
        return {"raise": RuntimeError("a bug of the server"), "nothing": "", "number": 7}.get(action)

    with counting_server(ruin=ruin) as url:
        world_of = adapter(url, workers=4, timeout_seconds=1)
        tasks = world_of.tasks("train", 5, 0)
        with open_environment(world_of, tasks) as world:
            answers = world.step(["raise", "nothing", "number", "sleep", "add"])
            for answer, words in zip(
                answers,
                ("a bug of the server (EXECUTION_ERROR)", "'state' is ''", "'state' is 7", "within 1 s"),
                strict=False,
            ):
                assert words in answer.info["failed"] and answer.done and not answer.reward
            assert answers[4].state.startswith("Count: 1.") and "failed" not in answers[4].info
            world.reset(tasks)
            assert all(answer.state.startswith("Count: 1.") for answer in world.step(["add"] * 5))


@contextmanager
def strange_server(answer):
    """A WebSocket server that lets `answer(message, connection)` say what is sent back; None: nothing. It
    lists no tasks.
    """

    def handler(connection):
        for message in connection:
            reply = answer(json.loads(message), connection)
            if reply is not None:
                connection.send(reply)

    with serve(handler, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def seen(state, **more):
    return json.dumps(
        {
            "type": "observation",
            "data": {"observation": {"state": state}, "reward": 0.0, "done": False, **more},
        }
    )


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("no json", "answered with text that is no JSON"),
        ("[" * 100_000, "answered with text that is no JSON"),
        ("[1, 2]", "answered [1, 2], which is no message of OpenEnv's"),
        ('{"type": "observation", "data": {"reward": 1}}', "of type 'observation' without an observation"),
        ('{"type": "state", "data": {"observation": {}}}', "of type 'state'"),
        (
            '{"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}',
            "refuses: full (CAPACITY_REACHED)",
        ),
        (
            '{"type": "observation", "data": {"observation": {"state": "half \\ud800"}, "reward": 0}}',
            "Expected words",
        ),
        (seen("words", reward="much"), "gave the reward 'much'"),
        (seen("words", done="perhaps"), "'perhaps' to whether the episode is over"),
        (
            seen("words", metadata={"failed": "the browser died"}),
            "says that the episode has failed: the browser died",
        ),
        (seen("x" * 9_000_000), "cannot be reached"),
    ],
    ids=range(11),
)
def test_an_answer_that_is_nonsense_is_a_recorded_failure(reply, words):
    with strange_server(lambda message, _: seen("Begun.") if message["type"] == "reset" else reply) as url:
        strange = adapter(url, tasks="seeds", text={"instruction": "do it"}, timeout_seconds=20)
        with open_environment(strange, strange.tasks("train", 2, 0)) as world:
            answers = world.step(["go", None])
            assert words in answers[0].info["failed"] and answers[1] is None
            assert words in world.step(["go", None])[0].info["failed"]


def test_a_lost_session_is_not_continued_in_another_one():
    """OpenEnv's own client would connect anew, and the agent would be judged by the answers of a world that
    it never began.
    """

    def answer(message, connection):
        if message["type"] == "reset":
            return seen("Begun.")
        if message["data"]["action"] == "die":
            connection.close()
            return None
        return seen("Went on.")

    with strange_server(answer) as url:
        strange = adapter(url, tasks="seeds", text={"instruction": "do it"})
        tasks = strange.tasks("train", 1, 0)
        with open_environment(strange, tasks) as world:
            assert world.step(["go"])[0].state == "Went on."
            assert "cannot be reached" in world.step(["die"])[0].info["failed"]
            assert "failed" in world.step(["go"])[0].info
            world.reset(tasks)
            assert world.step(["go"])[0].state == "Went on."


def test_more_episodes_than_sessions_are_played_in_parts():
    with counting_server(sessions=2) as url:
        two = adapter(url, sessions=2)
        episodes = collect(two, plan(two.tasks("train", 6, 0), {"random": 1}, 0), 3)
        assert len(episodes) == 6 and all(episode.steps for episode in episodes)


def test_a_full_server_is_reported_and_costs_no_step():
    """The server closes the connection behind its reason, most often before the client has sent a word."""
    with counting_server(sessions=1) as url:
        greedy = adapter(url)
        tasks = greedy.tasks("train", 6, 0)
        time.sleep(1)  # the session that listed the tasks is gone by then
        with open_environment(greedy, tasks) as world:
            answers = world.step(["add"] * 6)
            refused = [answer.info["failed"] for answer in answers if "failed" in answer.info]
            assert len(refused) == 5 and all("CAPACITY_REACHED" in reason for reason in refused)
            assert world.interactions == 1


def test_a_slow_server_has_the_time_that_the_config_gives():
    """Without pings, which end a connection after 40 s, whatever `timeout_seconds` says."""
    with strange_server(lambda *_: seen("Begun.")) as url:
        session = adapter(url)._open_session()
        session.reset({})
        assert session._connection.ping_interval is None
        session.close()


def test_a_task_list_that_is_too_long_is_reported_as_such(address, monkeypatch):
    monkeypatch.setattr(openenv_client, "MOST_BYTES", 500)
    with pytest.raises(
        EnvironmentFailure, match="answered more than 500 bytes.*environment.openenv.tasks=seeds"
    ):
        adapter(address).tasks("train", 1, 0)


def test_the_token_does_not_follow_a_redirection_to_another_host(monkeypatch):
    monkeypatch.setenv("DREAM_TOKEN", TOKEN)
    asked = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Authorization"))
            self.send_response(200 if "/moved" in self.path else 302)
            self.send_header(
                "Location",
                "/moved" if len(asked) == 1 else f"http://localhost:{self.server.server_port}/moved",
            )
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever).start()
        redirected = adapter(f"http://127.0.0.1:{server.server_port}", token_variable="DREAM_TOKEN")
        with pytest.raises(EnvironmentFailure, match=r"answered \[\]"):
            redirected.tasks("train", 1, 0)
        assert asked == [f"Bearer {TOKEN}"] * 2, "within a host it goes along"
        with pytest.raises(
            EnvironmentFailure, match="answered 302.*redirects to 'http://localhost:.*not sent the token"
        ):
            redirected.tasks("train", 1, 0)
        assert len(asked) == 3
        server.shutdown()


def test_an_unreachable_server_is_named():
    with strange_server(lambda *_: None) as url:
        gone = url
    with pytest.raises(
        EnvironmentFailure,
        match=f"{gone}/list_environments cannot be asked for its tasks: .*refused.*Is it running",
    ):
        adapter(gone).tasks("train", 1, 0)
    with pytest.raises(EnvironmentFailure, match=f"{gone} cannot be reached: .*refused"):
        adapter(gone, tasks="seeds").tasks("train", 1, 0)


def test_a_port_without_http_is_named():
    with socket.create_server(("127.0.0.1", 0)) as odd:

        def greet():
            connection, _ = odd.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(
            EnvironmentFailure,
            match="cannot be asked for its tasks: .*Is it running, and does it speak OpenEnv",
        ):
            adapter(f"http://127.0.0.1:{odd.getsockname()[1]}").tasks("train", 1, 0)
        thread.join(10)


def test_a_trailing_slash_of_the_url_is_ignored(address):
    assert adapter(f"{address}/").tasks("train", 2, 0) == adapter(address).tasks("train", 2, 0)


@pytest.mark.parametrize(
    ("ids", "found"),
    [([None, None, 7], {"train/0", "train/1", "train/7"}), ([3, 7, 7], "two tasks of the id train/7")],
)
def test_task_ids_must_differ(monkeypatch, ids, found):
    monkeypatch.setattr(openenv_adapter, "list_tasks", lambda *_: [{"id": name} for name in ids])
    with strange_server(lambda *_: seen("Begun.")) as url:
        strange = adapter(url, text={"instruction": "do it"}, train_split="train")
        if isinstance(found, str):
            with pytest.raises(EnvironmentFailure, match=found):
                strange.tasks("train", 3, 0)
        else:
            assert {task.id.removeprefix("openenv/") for task in strange.tasks("train", 3, 0)} == found


def test_an_invalid_token_is_not_shown(monkeypatch):
    monkeypatch.setenv("DREAM_TOKEN", "secret\nof two lines")
    with pytest.raises(EnvironmentFailure, match="DREAM_TOKEN holds no token") as refused:
        adapter("http://127.0.0.1:9", token_variable="DREAM_TOKEN")
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("DREAM_TOKEN", f"{TOKEN}\n")
    assert adapter("http://127.0.0.1:9", token_variable="DREAM_TOKEN")._headers == {
        "Authorization": f"Bearer {TOKEN}"
    }


def test_a_server_that_never_answers_ends_in_time():
    with strange_server(lambda *_: None) as url:
        began = time.monotonic()
        with pytest.raises(EnvironmentFailure, match="did not answer within 0.3 s"):
            adapter(url, tasks="seeds", timeout_seconds=0.3).tasks("train", 1, 0)
        assert time.monotonic() - began < 20


def test_a_served_dream_is_an_openenv_world(learnt, lessons, monkeypatch):
    first = lessons[0]
    with serving(learnt, lessons, rows=3, token=TOKEN) as url:
        with pytest.raises(EnvironmentFailure, match="401.*Set environment.openenv.token_variable"):
            adapter(url).tasks("train", 1, 0)
        monkeypatch.delenv("DREAM_TOKEN", raising=False)
        with pytest.raises(EnvironmentFailure, match="DREAM_TOKEN is not set"):
            adapter(url, token_variable="DREAM_TOKEN")
        monkeypatch.setenv("DREAM_TOKEN", TOKEN)
        dreamt = adapter(url, token_variable="DREAM_TOKEN", test_split="train")
        (task,) = dreamt.tasks("train", 1, 0)
        assert (task.id, task.instruction, task.initial_state) == (
            "openenv/train/t0",
            first.task.instruction,
            first.task.initial_state,
        )
        with open_environment(dreamt, [task, task]) as world:
            for step in first.steps:
                for answer in world.step([step.action] * 2):
                    assert (answer.state, answer.reward, answer.done) == (
                        step.next_state,
                        step.reward,
                        step.done,
                    )
