"""Replicas behind one address: real servers, OpenEnv's own client, and servers that end in the middle."""

from __future__ import annotations

import json
import socketserver
import threading
import time
import urllib.request
from contextlib import ExitStack

import pytest
from dream_server import balancing, serving
from openenv.core import GenericEnvClient
from websockets.sync.client import connect

from components.serving import balancer as balancer_module
from components.serving import replicas as replicas_module
from components.serving.balancer import Episode

SESSIONS = 64


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(replicas_module, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(balancer_module, "WAIT_SECONDS", 3.0)


def client(url):
    return GenericEnvClient(base_url=url).sync()


def metadata(url):
    with urllib.request.urlopen(url + "/metadata", timeout=20) as answer:  # noqa: S310
        return json.load(answer)


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_an_episode_goes_on_after_its_history(learnt, lessons):
    episode = lessons[0]
    with serving(learnt, lessons) as url, client(url) as env:
        env.reset(task_id=episode.task.id, seed=1)
        whole = [env.step({"action": step.action}).observation["state"] for step in episode.steps]
        history = [[step.action, state] for step, state in zip(episode.steps, whole, strict=True)]
        for cut in range(1, len(history)):
            begun = env.reset(task_id=episode.task.id, seed=1, history=history[:cut])
            assert begun.observation["state"] == whole[cut - 1]
            rest = [env.step({"action": step.action}).observation["state"] for step in episode.steps[cut:]]
            assert rest == whole[cut:]
            assert env.state()["step_count"] == len(history)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([["look", "a", "b"]], "history"),
        ([["look"]], "history"),
        ([["x" * 101, "a"]], "characters"),
        ([["look", "a"]] * 20, "fewer than 20"),
        ([["\ud800", "a"]], "surrogate"),
    ],
)
def test_a_history_that_is_none_is_refused(learnt, lessons, history, reason):
    with serving(learnt, lessons) as url, connect(url.replace("http", "ws") + "/ws") as socket:
        socket.send(json.dumps({"type": "reset", "data": {"history": history}}))
        answer = json.loads(socket.recv(timeout=20))
        assert answer["type"] == "error" and reason in answer["data"]["message"]


def test_sessions_are_spread_and_end(learnt, lessons):
    with ExitStack() as opened:
        servers = [opened.enter_context(serving(learnt, lessons, rows=4)) for _ in range(2)]
        url, balancer = opened.enter_context(balancing(servers))
        until(lambda: len(balancer.replicas.available) == 2)
        clients = [opened.enter_context(client(url)) for _ in range(6)]
        for env in clients:
            env.reset(index=0)
        assert [one["sessions"] for one in metadata(url)["replicas"]] == [3, 3]
        for env in clients:
            env.close()
        until(lambda: [one["sessions"] for one in metadata(url)["replicas"]] == [0, 0])


def test_sixty_four_sessions_outlive_a_replica(learnt, lessons):
    """One of two servers ends in the middle: no client sees an error, nothing is crossed."""
    halfway = threading.Barrier(SESSIONS + 1)
    goes_on = threading.Event()
    problems: list[str] = []
    episodes = [lessons[number % len(lessons)] for number in range(SESSIONS)]

    def play(url, number):
        episode = episodes[number]
        try:
            with client(url) as env:
                found = [env.reset(task_id=episode.task.id, episode_id=f"mine {number}").observation["state"]]
                for place, step in enumerate(episode.steps):
                    if place == 1:
                        halfway.wait(120)
                        goes_on.wait(120)
                    result = env.step({"action": step.action})
                    found.append(result.observation["state"])
                if found != list(episode.states) or result.done != episode.success:
                    problems.append(f"{number}: {found}")
        except Exception as error:
            problems.append(f"{number}: {error!r}")
            halfway.abort()

    with serving(learnt, lessons, rows=SESSIONS) as first, ExitStack() as second:
        servers = [second.enter_context(serving(learnt, lessons, rows=SESSIONS)), first]
        with balancing(servers) as (url, balancer):
            until(lambda: len(balancer.replicas.available) == 2)
            threads = [threading.Thread(target=play, args=(url, number)) for number in range(SESSIONS)]
            for thread in threads:
                thread.start()
            halfway.wait(120)
            assert [one["sessions"] for one in metadata(url)["replicas"]] == [SESSIONS // 2] * 2
            second.close()
            goes_on.set()
            for thread in threads:
                thread.join(120)
            assert problems == []
            assert balancer.moved == SESSIONS // 2
            assert metadata(url)["replicas"][0]["fault"]


def test_a_replaced_server_is_used_again_and_another_dream_is_not(learnt, lessons):
    with serving(learnt, lessons, version="one") as first, ExitStack() as other:
        second = other.enter_context(serving(learnt, lessons, version="one"))
        with balancing([first, second]) as (_, balancer):
            until(lambda: len(balancer.replicas.available) == 2)
            other.close()
            until(lambda: "does not answer" in balancer.replicas.all[1].fault)
            port = int(second.rpartition(":")[2])
            with serving(learnt, lessons, version="another", port=port):
                until(lambda: "serves another dream (another, " in balancer.replicas.all[1].fault)
            with serving(learnt, lessons, version="one", port=port):
                until(lambda: not balancer.replicas.all[1].fault)


def test_the_dream_that_was_served_first_stays_although_the_first_server_has_another(learnt, lessons):
    with ExitStack() as opened, serving(learnt, lessons, version="one") as second:
        first = opened.enter_context(serving(learnt, lessons, version="one"))
        port = int(first.rpartition(":")[2])
        opened.close()
        with balancing([first, second]) as (_, balancer):
            until(lambda: [one.fault == "" for one in balancer.replicas.all] == [False, True])
            with serving(learnt, lessons, version="another", port=port):
                until(
                    lambda: "another dream (another, the others serve one)" in balancer.replicas.all[0].fault
                )
                assert not balancer.replicas.all[1].fault
            with serving(learnt, lessons, version="one", port=port):
                until(lambda: len(balancer.replicas.available) == 2)


@pytest.mark.parametrize("body", [b"{", b"[1]", b"nonsense"])
def test_a_server_with_half_an_answer_is_left_out_and_the_others_serve_on(learnt, lessons, body):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"

    class Half(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(body if body == b"nonsense" else head + body)

    with socketserver.TCPServer(("127.0.0.1", 0), Half) as other, serving(learnt, lessons) as good:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            with balancing([f"http://127.0.0.1:{other.server_address[1]}", good]) as (_, balancer):
                until(lambda: not balancer.replicas.all[1].fault)
                assert "does not answer" in balancer.replicas.all[0].fault
        finally:
            other.shutdown()
            thread.join(20)


def test_an_episode_in_progress_waits_for_room(learnt, lessons):
    episode = lessons[0]
    with ExitStack() as first, serving(learnt, lessons, rows=1) as second:
        servers = [first.enter_context(serving(learnt, lessons, rows=1)), second]
        with balancing(servers) as (url, balancer), client(url) as env, ExitStack() as other:
            until(lambda: len(balancer.replicas.available) == 2)
            env.reset(task_id=episode.task.id)
            taken = other.enter_context(client(second))
            taken.reset(index=0)
            first.close()
            threading.Timer(0.5, other.close).start()
            result = env.step({"action": episode.steps[0].action})
            assert result.observation["state"] == episode.states[1]


def test_a_server_that_does_not_go_on_with_an_episode_stays_in_use(learnt, lessons):
    """It has a lower step limit, which is no part of a dream's version."""
    episode = lessons[0]
    with ExitStack() as first, serving(learnt, lessons, steps=2) as second:
        servers = [first.enter_context(serving(learnt, lessons)), second]
        with balancing(servers) as (url, balancer), connect(url.replace("http", "ws") + "/ws") as socket:
            until(lambda: len(balancer.replicas.available) == 2)
            messages = [{"type": "reset", "data": {"task_id": episode.task.id}}]
            messages += [
                {"type": "step", "data": {"action": step.action}} for step in [*episode.steps, *episode.steps]
            ][:3]
            for message in messages[:-1]:
                socket.send(json.dumps(message))
                assert json.loads(socket.recv(timeout=20))["type"] == "observation"
            first.close()
            socket.send(json.dumps(messages[-1]))
            answer = json.loads(socket.recv(timeout=20))
            assert answer["type"] == "error" and "fewer than 2" in answer["data"]["message"]
            assert not balancer.replicas.all[1].fault


def test_full_servers_refuse_and_one_with_room_is_found(learnt, lessons):
    with ExitStack() as opened:
        servers = [opened.enter_context(serving(learnt, lessons, rows=1)) for _ in range(2)]
        url, balancer = opened.enter_context(balancing(servers))
        until(lambda: len(balancer.replicas.available) == 2)
        with client(servers[0]) as taken:
            taken.reset(index=0)
            with client(url) as env:
                assert env.reset(index=0).observation["task_id"] == "t0"
                with connect(url.replace("http", "ws") + "/ws") as socket:
                    socket.send(json.dumps({"type": "reset", "data": {}}))
                    assert json.loads(socket.recv(timeout=30))["data"]["code"] == "CAPACITY_REACHED"


def test_without_any_server_a_client_is_told(learnt, lessons):
    with balancing(["http://127.0.0.1:9"]) as (url, _):
        with urllib.request.urlopen(url + "/health", timeout=20) as answer:
            assert json.load(answer) == {"status": "unhealthy"}
        with connect(url.replace("http", "ws") + "/ws") as socket:
            socket.send(json.dumps({"type": "reset", "data": {}}))
            assert "No replica of the dream answers" in json.loads(socket.recv(timeout=60))["data"]["message"]


def test_a_token_is_asked_for_and_passed_on(learnt, lessons):
    token = "a-secret-of-some-length"
    with (
        serving(learnt, lessons, token=token) as server,
        balancing([server], token=token) as (url, balancer),
    ):
        until(lambda: balancer.replicas.available)
        headers = {"Authorization": f"Bearer {token}"}
        with connect(url.replace("http", "ws") + "/ws", additional_headers=headers) as socket:
            socket.send(json.dumps({"type": "reset", "data": {"index": 0}}))
            assert json.loads(socket.recv(timeout=20))["type"] == "observation"


def test_an_episode_is_told_from_its_seed_and_its_steps():
    episode = Episode()
    assert episode.beginning is None
    reset = episode.outgoing('{"type": "reset", "data": {"index": 3}}')
    seed = json.loads(reset)["data"]["seed"]
    assert (
        episode.outgoing('{"type": "reset", "data": {"seed": 5}}') == '{"type": "reset", "data": {"seed": 5}}'
    )
    observation = {"observation": {"state": "a"}, "reward": None, "done": False}
    episode.note(reset, json.dumps({"type": "observation", "data": observation}))
    step = json.dumps({"type": "step", "data": {"action": "look"}})
    episode.note(step, json.dumps({"type": "error", "data": {}}))
    assert json.loads(episode.beginning)["data"] == {"index": 3, "seed": seed, "history": []}
    episode.note(
        step, json.dumps({"type": "observation", "data": {**observation, "observation": {"state": "b"}}})
    )
    assert json.loads(episode.beginning)["data"]["history"] == [["look", "b"]]
    for text in ("{", "[]", '"words"', '{"type": "step"}'):
        assert episode.outgoing(text) == text
