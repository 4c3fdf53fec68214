"""Five hundred episodes in a pool of browsers, of which five are killed on purpose.

Run it by hand:

    python -m pytest -m slow -s tests/environments/browser/test_browser_endurance.py
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import psutil
import pytest
from real_browser import settings
from test_browser_pool import chromium_of, folders

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.records import Trajectory, Transition

EPISODES, ROWS, KILLS, LIMIT = 500, 20, 5, 12
BEHAVIOURS = ("expert", "noisy", "near_miss", "random")


def of_browsers() -> set[int]:
    """Return all processes that run a browser or its driver, whoever started them."""
    processes = set()
    for process in psutil.process_iter():
        try:
            driver = "run-driver" in process.cmdline()
            if ("chrom" in process.name() or driver) and process.status() != psutil.STATUS_ZOMBIE:
                processes.add(process.pid)
        except psutil.Error:
            continue
    return processes


def kill_one(environment, rng) -> None:
    """Kill a browser, or the worker that drives it."""
    folder, worker = rng.choice(
        list(zip(folders(environment.browsers), environment.browsers.processes(), strict=True))
    )
    way = rng.choice(("browser", "worker"))
    (chromium_of(folder).kill if way == "browser" else lambda: os.kill(worker, signal.SIGKILL))()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_five_hundred_episodes_and_five_killed_browsers():
    settings()
    before, rng = of_browsers(), random.Random(0)
    adapter = BrowserAdapter(load_config(None, ["environment.name=browser"]).environment)
    tasks = adapter.tasks("train", EPISODES // len(BEHAVIOURS), 0)
    plan = [(task, name) for task in tasks for name in BEHAVIOURS]
    environment, ends, most, began = adapter.open(workers=2), Counter(), 0.0, time.monotonic()
    kills = set(rng.sample(range(1, EPISODES // ROWS), KILLS))
    failures = []
    try:
        for number, start in enumerate(range(0, EPISODES, ROWS)):
            batch = plan[start : start + ROWS]
            environment.reset([task for task, _ in batch])
            actors = [adapter.behaviour(name, task, 0) for task, name in batch]
            played, alive = [Trajectory(task) for task, _ in batch], set(range(ROWS))
            for step in range(LIMIT):
                if step == 1 and number in kills:
                    kill_one(environment, rng)
                actions = [
                    actors[row](played[row], environment.admissible[row])[1] if row in alive else None
                    for row in range(ROWS)
                ]
                for row, answer in enumerate(environment.step(actions)):
                    if answer is None:
                        continue
                    step = Transition(
                        batch[row][0].id,
                        "",
                        step,
                        played[row].states[-1],
                        actions[row],
                        answer.state,
                        answer.reward,
                        answer.done,
                    )
                    played[row] = played[row].with_step(step)
                    if answer.done:
                        alive.discard(row)
                        ends["failed" if "failed" in answer.info else "won" if answer.reward else "lost"] += 1
                        failures += [answer.info["failed"]] if "failed" in answer.info else []
                        assert "failed" not in answer.info or answer.reward == 0
                if not alive:
                    break
            ends["cut off"] += len(alive)
            most = max(most, memory_of(of_browsers() - before))
    finally:
        environment.close()
    seconds = time.monotonic() - began
    print(f"\n{EPISODES} episodes in {seconds:.0f} s, {environment.interactions} steps: {dict(ends)}")
    print(
        f"browsers given up: {environment.browsers.replaced}; most memory of both browsers (unique): "
        f"{most:.0f} MB"
    )
    print("failures:", Counter(failures))
    remaining = of_browsers() - before
    print("processes left behind:", len(remaining))
    assert sum(ends.values()) == EPISODES
    assert not remaining
    assert 0 < ends["failed"] <= KILLS * ROWS and len(kills) == KILLS
    assert ends["won"] > EPISODES / 4


def memory_of(processes) -> float:
    """Return the MB that only these processes use."""
    total = 0.0
    for process in processes:
        try:
            total += psutil.Process(process).memory_full_info().uss / 1e6
        except psutil.Error:
            continue
    return total
