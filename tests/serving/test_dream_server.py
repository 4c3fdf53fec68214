"""The dream behind a real OpenEnv server, with OpenEnv's own client and a model that knows two episodes."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from dream_server import serving
from openenv.core import GenericEnvClient
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from components.config import RetrievalConfig
from components.errors import ConfigError
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.serving.guard import check_token
from components.serving.server import listen

TOKEN = "a-secret-of-some-length"
PASS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def address(learnt, lessons):
    with serving(learnt, lessons, rows=6) as url:
        yield url


def client(url, **options):
    return GenericEnvClient(base_url=url, **options).sync()


def play(url, episode, pause=0.0):
    with client(url) as env:
        states = [env.reset(task_id=episode.task.id).observation["state"]]
        for step in episode.steps:
            time.sleep(pause)
            result = env.step({"action": step.action})
            states.append(result.observation["state"])
        return states, result.reward, result.done


def test_openenvs_own_client_plays_an_episode(address, lessons):
    with client(address) as env:
        first = env.reset(task_id=lessons[0].task.id, episode_id="mine")
        assert (
            first.observation["state"] == lessons[0].task.initial_state
            and first.observation["instruction"] == "put a mug in desk"
        )
        assert (first.reward, first.done, first.metadata) == (None, False, {"max_steps": 20})
        for step in lessons[0].steps:
            result = env.step({"action": step.action})
            assert (result.observation["state"], result.reward, result.done) == (
                step.next_state,
                step.reward,
                step.done,
            )
            assert result.metadata == {"reasoning": step.reasoning, "demonstrations": []}
        assert env.state() == {"episode_id": "mine", "step_count": 4}
        with pytest.raises(RuntimeError, match="The episode is over. Expected reset before step"):
            env.step({"action": "look"})
        assert env.reset(index=0).observation["task_id"] == lessons[0].task.id


def test_simultaneous_sessions_are_independent(address, lessons):
    with ThreadPoolExecutor(6) as pool:
        played = list(pool.map(lambda number: play(address, lessons[0], 0.01 * (number % 3)), range(12)))
    assert played == [(lessons[0].states, 1.0, True)] * 12


def test_the_seed_draws_the_task(address):
    with client(address) as env:
        ids = [env.reset(seed=seed).observation["task_id"] for seed in range(8)]
        assert ids == [env.reset(seed=seed).observation["task_id"] for seed in range(8)] and set(ids) == {
            "t0",
            "t5",
        }


def test_an_invalid_request_is_refused_and_the_session_goes_on(address, lessons):
    with client(address) as env:
        with pytest.raises(RuntimeError, match="There is no episode. Expected reset before step"):
            env.step({"action": "look"})
        env.reset(index=0)
        for wishes, words in (
            ({"task": "t0"}, "task: Extra inputs"),
            ({"task_id": "t0", "instruction": "be happy"}, "no template"),
        ):
            with pytest.raises(RuntimeError, match=words):
                env.reset(**wishes)
        with pytest.raises(RuntimeError, match="An action of 101 characters. Expected at most 100"):
            env.step({"action": "x" * 101})
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            env.step({"message": "look"})
        assert (
            env.step({"action": lessons[0].steps[0].action}).observation["state"]
            == lessons[0].steps[0].next_state
        )


def test_half_of_a_surrogate_pair_ends_no_episode(address, lessons):
    """A client that cuts a surrogate pair gets an error; simultaneous requests of others are answered."""
    with client(address) as broken_client, client(address) as env:
        for one in (broken_client, env):
            one.reset(index=0)
        with pytest.raises(RuntimeError, match="half of a surrogate pair"):
            broken_client.step({"action": "look \ud83d"})
        with pytest.raises(RuntimeError, match="instruction with half of a surrogate pair"):
            broken_client.reset(index=0, instruction="put \ud83d")
        for one in (env, broken_client):
            assert (
                one.step({"action": lessons[0].steps[0].action}).observation["state"]
                == lessons[0].steps[0].next_state
            )
        assert env.step({"action": "\U0001f600" * 100}).observation["state"] is not None, (
            "the longest action, twelve bytes a character"
        )


def test_invalid_messages_are_answered_and_a_too_large_one_ends_the_session(address):
    with connect(address.replace("http", "ws") + "/ws") as socket:
        for message in ("{", '{"type": "fly"}', '{"type": "step"}'):
            socket.send(message)
            assert json.loads(socket.recv(timeout=20))["type"] == "error", message
    for message in ('"words"', "[]"):  # these may end the session, and nothing else
        with connect(address.replace("http", "ws") + "/ws") as socket, suppress(ConnectionClosed):
            socket.send(message)
            assert json.loads(socket.recv(timeout=20))["type"] == "error", message
    with client(address) as env:
        assert env.reset(index=0).observation["task_id"] == "t0"
    with (
        connect(address.replace("http", "ws") + "/ws") as socket,
        pytest.raises(ConnectionClosed, match="1009|no close frame"),
    ):
        socket.send(json.dumps({"type": "step", "data": {"action": "x" * 5_000_000}}))
        socket.recv(timeout=20)


def test_the_step_limit_ends_an_episode(learnt, lessons):
    with serving(learnt, lessons, steps=2) as url, client(url) as env:
        env.reset(index=0)
        assert not env.step({"action": lessons[0].steps[0].action}).done
        cut = env.step({"action": lessons[0].steps[1].action})
        assert cut.done and cut.reward == 0.0 and cut.metadata["truncated"] is True


def test_there_are_as_many_sessions_as_rows(learnt, lessons):
    with serving(learnt, lessons, rows=2) as url:
        with client(url) as one, client(url) as two:
            one.reset(index=0), two.reset(index=0)
            with client(url) as three, pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
                three.reset(index=0)
            assert one.step({"action": "go to desk 1"}).observation["state"] == lessons[0].steps[0].next_state
        deadline = time.monotonic() + 20
        while True:  # the server notices the closed sessions a moment later
            try:
                assert play(url, lessons[0])[0] == lessons[0].states
                break
            except RuntimeError:
                assert time.monotonic() < deadline


def test_an_idle_session_is_closed_and_its_row_is_released(learnt, lessons):
    with (
        serving(learnt, lessons, rows=1, idle_seconds=0.5) as url,
        connect(url.replace("http", "ws") + "/ws") as socket,
    ):
        socket.send('{"type": "reset", "data": {}}')
        assert json.loads(socket.recv(timeout=20))["type"] == "observation"
        with pytest.raises(ConnectionClosed, match="4008.*idle for 0.5 s"):
            socket.recv(timeout=20)
        with client(url) as env:
            assert env.reset(index=0).observation["task_id"] == "t0"


def test_demonstrations_are_in_the_metadata(learnt, lessons):
    buffer = ReplayBuffer(RetrievalConfig(k=1))
    buffer.add([replace(step, task_id="t9") for step in lessons[0].steps])
    with serving(learnt, lessons, buffer=buffer) as url, client(url) as env:
        env.reset(index=0)
        (demonstration,) = env.step({"action": "go to desk 1"}).metadata["demonstrations"]
        assert (
            demonstration["state"] == lessons[0].task.initial_state
            and demonstration["action"] == "go to desk 1"
        )
        assert demonstration["next_state"] == "At desk 1: mug 1. Holding nothing." and len(demonstration) == 3


def fetch(url, headers=None, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_listed_tasks_hold_only_what_an_agent_may_see(address, lessons):
    assert fetch(f"{address}/list_environments") == ["dream"]
    assert fetch(f"{address}/dream/splits") == [{"name": "train", "type": "train"}]
    assert fetch(f"{address}/dream/num_tasks", body={"split": "train"}) == {"num_tasks": 2}
    listed = fetch(f"{address}/dream/tasks", body={"split": "train"})["tasks"]
    task = lessons[0].task
    assert listed[0] == {
        "id": "t0",
        "instruction": task.instruction,
        "initial_state": task.initial_state,
        "family": task.family,
    }
    assert fetch(f"{address}/dream/tasks", body={"split": "test"})["tasks"] == []


@pytest.mark.parametrize("path", ["/mcp", "/harness", "/other", "/ws?session_id=1"])
def test_other_websocket_paths_are_refused(address, path):
    with pytest.raises(InvalidStatus, match="HTTP 404"):
        connect(address.replace("http", "ws") + path)


def test_a_too_large_request_is_refused_unread(address):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(f"{address}/dream/tasks", body={"split": "x" * 70_000})
    assert refused.value.code == 413


@pytest.mark.parametrize(
    ("path", "body"),
    [("/reset", {}), ("/step", {"action": {"action": "look"}}), ("/mcp", {}), ("/state", None)],
)
def test_episode_calls_over_http_are_refused(address, path, body):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(address + path, body=body)
    assert refused.value.code == 404 and "WebSocket /ws" in json.loads(refused.value.read())["detail"]


def test_a_web_page_cannot_reach_a_server_without_a_token(address):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(f"{address}/schema", {"Origin": "http://example.org"})
    assert refused.value.code == 403
    with pytest.raises(Exception, match="HTTP 403"):
        connect(address.replace("http", "ws") + "/ws", origin="http://example.org")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}x"},
    ],
)
def test_requests_without_the_token_are_refused(learnt, lessons, headers):
    with serving(learnt, lessons, token=TOKEN) as url:
        with pytest.raises(ConnectionError, match="HTTP 401"):
            client(url, headers=headers).connect()
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{url}/schema", headers)
        assert (
            refused.value.code == 401 and "DREAMGYM_SERVE_TOKEN" in json.loads(refused.value.read())["detail"]
        )
        assert fetch(f"{url}/health") == {"status": "healthy"}, "a load balancer sends no token"
        with client(url, headers=PASS) as env:
            assert env.reset(index=0).observation["task_id"] == "t0"


@pytest.mark.parametrize(
    ("token", "host", "words"),
    [
        (
            "",
            "0.0.0.0",
            "DREAMGYM_SERVE_TOKEN is not set, and --host 0.0.0.0 can be reached from other machines.*export",
        ),
        ("short", "127.0.0.1", "DREAMGYM_SERVE_TOKEN holds 5 characters. Expected at least 16"),
        ("with a blank in the middle", "127.0.0.1", "without blanks"),
        ("ümläute-in-a-long-token", "127.0.0.1", "printable ASCII"),
    ],
)
def test_an_invalid_token_is_refused(token, host, words):
    with pytest.raises(ConfigError, match=words) as refused:
        check_token(token, host)
    assert not token or token not in str(refused.value), "the message does not repeat the secret"
    assert check_token(TOKEN, "0.0.0.0") == TOKEN and check_token("", "127.0.0.1") == ""


def test_a_port_in_use_is_an_error_that_names_it():
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with pytest.raises(
        ConfigError, match=f"127.0.0.1:{port} cannot be listened on: .*in use.*--port {port + 1}"
    ):
        listen("127.0.0.1", port)
    listening.close()
    with pytest.raises(ConfigError, match="no such address: dreamgym serve --host 127.0.0.1"):
        listen("192.0.2.1", 0)
    with pytest.raises(
        ConfigError, match="Name another address: dreamgym serve --host 127.0.0.1 --port 8000"
    ):
        listen("no-such-host.invalid", 65535)


def test_an_async_client_works_too(address, lessons):
    async def episode():
        async with GenericEnvClient(base_url=address) as env:
            await env.reset(index=0)
            return [
                (await env.step({"action": step.action})).observation["state"] for step in lessons[0].steps
            ]

    assert asyncio.run(episode()) == lessons[0].states[1:]
