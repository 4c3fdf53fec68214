"""Sixteen sessions for five minutes with the real model: no error, no mixed episodes, constant memory.

    nice pytest -m slow -s tests/serving/test_soak.py            # DREAMGYM_SOAK_SECONDS=60 for a shorter one

It serves the newest experience model of this repository (`dreamgym retrain` makes one) in a process of its
own. Every session plays recorded actions of its task. Its states are compared with those of the same episode
played alone. Nothing is sampled at first (temperature 0), but refused answers are sampled again, from one
random stream for all sessions. So a few states may differ; a state of another episode would differ in most
cases.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil
import pytest
from openenv.core import GenericEnvClient
from small_job import ROOT, command_of

from components.environments.alfworld.states import read_state
from components.trajectories.store import DataLayout, read_tasks, read_transitions, trajectories

SECONDS = float(os.environ.get("DREAMGYM_SOAK_SECONDS", "300"))
SESSIONS, SCRIPTS, STEPS = 16, 48, 12
TOKEN = "a-secret-for-the-soak-test"


@dataclass
class Tally:
    """Counts over all sessions."""

    steps: int = 0
    resets: int = 0
    same: int = 0
    strangers: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture(scope="module")
def scripts():
    """Recorded episodes of tasks in different rooms."""
    layout = DataLayout.of(ROOT, "alfworld")
    episodes = trajectories(read_tasks(layout.tasks("train")), read_transitions(layout.trajectories("train")))
    by_room = {
        e.task.initial_state: e
        for e in episodes
        if e.steps[0].behaviour in ("noisy", "near_miss") and len(e.steps) >= 4
    }
    return random.Random(0).sample(sorted(by_room.values(), key=lambda e: e.task.id), SCRIPTS)


@pytest.fixture(scope="module")
def server():
    if not any((ROOT / ".dreamgym" / "stages").glob("experience_model-*/stage.json")):
        pytest.skip("there is no experience model here; `dreamgym retrain` makes one")
    environment = {**os.environ, "DREAMGYM_SERVE_TOKEN": TOKEN}
    command = command_of(
        "serve",
        "--root",
        str(ROOT),
        "--port",
        "0",
        "--sessions",
        str(SESSIONS),
        "experience_model.temperature=0",
    )
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"(http://\S+)", process.stdout.readline())[1], psutil.Process(process.pid)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def client(url):
    return GenericEnvClient(
        base_url=url,
        headers={"Authorization": f"Bearer {TOKEN}"},
        message_timeout_s=300.0,
        connect_timeout_s=120.0,
    ).sync()


def play(env, episode, tally, until=None):
    """Play recorded actions of one episode, up to its end or the time `until`; its states."""
    first = env.reset(task_id=episode.task.id, seed=7)
    states = [first.observation["state"]]
    if first.observation["state"] != episode.task.initial_state:
        tally.strangers.append(f"{episode.task.id} began with {states[0]}")
    for step in episode.steps[:STEPS]:
        if until is not None and time.monotonic() > until:
            break
        began = time.monotonic()
        result = env.step({"action": step.action})
        states.append(result.observation["state"])
        with tally.lock:
            tally.steps += 1
            tally.seconds.append(time.monotonic() - began)
        place = read_state(states[-1]).place
        rooms = set(read_state(episode.task.initial_state).contents) | {"", None, "the room"}
        if result.observation["task_id"] != episode.task.id or place not in rooms:
            tally.strangers.append(f"{episode.task.id}: {states[-1]}")
        if result.done:
            break
    return states


def report(tally, took, alone, rate_alone, memory):
    """Print what the sessions measured."""
    waits = sorted(tally.seconds)
    print(f"\nalone: {alone.steps} steps, {rate_alone:.1f} steps/s")
    print(
        f"{SESSIONS} sessions, {took:.0f} s: {tally.steps} steps, {tally.steps / took:.1f} steps/s, "
        f"{tally.resets} episodes"
    )
    print(
        f"wait for a step: median {waits[len(waits) // 2]:.2f} s, 95 % {waits[int(0.95 * len(waits))]:.2f} "
        f"s, longest {waits[-1]:.2f} s"
    )
    print(
        f"states as when played alone: {tally.same} of {tally.steps} ({100 * tally.same / tally.steps:.2f} %)"
    )
    print(f"errors: {tally.errors}; strangers: {Counter(tally.strangers).most_common(5)}")
    print(
        "memory of the server, MB at second: " + ", ".join(f"{rss:.0f} at {second}" for second, rss in memory)
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_sixteen_sessions_for_five_minutes(server, scripts):
    url, process = server
    alone = Tally()
    with client(url) as env:
        began = time.monotonic()
        states_alone = {episode.task.id: play(env, episode, alone) for episode in scripts}
        rate_alone = alone.steps / (time.monotonic() - began)
    tally, until = Tally(), time.monotonic() + SECONDS

    def session(number):
        rng = random.Random(number)
        try:
            while time.monotonic() < until:
                with client(url) as env:
                    for _ in range(rng.randint(1, 4)):
                        if time.monotonic() > until:
                            break
                        episode = rng.choice(scripts)
                        states = play(env, episode, tally, until)
                        with tally.lock:
                            tally.resets += 1
                            tally.same += sum(
                                a == b
                                for a, b in zip(states[1:], states_alone[episode.task.id][1:], strict=False)
                            )
        except Exception as error:  # reported at the end with the others
            tally.errors.append(f"session {number}: {error!r}")

    threads = [threading.Thread(target=session, args=(number,)) for number in range(SESSIONS)]
    began, memory = time.monotonic(), []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append((round(time.monotonic() - began), process.memory_info().rss / 1e6))
        time.sleep(min(10, SECONDS / 10))
    took = time.monotonic() - began
    report(tally, took, alone, rate_alone, memory)
    assert not tally.errors and not tally.strangers and not alone.strangers
    assert tally.same >= 0.9 * tally.steps
    warm = [rss for second, rss in memory if second >= took / 5]
    assert max(warm) - warm[0] < max(30.0, 0.05 * warm[0]), "memory grows"
