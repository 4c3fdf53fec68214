"""Replicas behind one address: real servers, OpenEnv's own client, and servers that end in the middle."""

from __future__ import annotations

import json
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
