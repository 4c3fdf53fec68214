"""A text environment with Gymnasium's interface, the same one over OpenEnv, and recorded solutions."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

FACTORY = "text_worlds:Counting"
TASK = "count to the goal"


class Counting:
    """A counter that must reach a goal, which depends on the seed: "Count: 0. Goal: 3."

    The actions are "add" and "subtract"; all others are refused.
    """

    def reset(self, *, seed=None, options=None):
        self.count, self.goal = 0, 2 + seed % 5
        return self._state(), {"instruction": TASK, "admissible": ["add", "subtract"]}

    def step(self, action):
        if action not in ("add", "subtract"):
            return f"Nothing happens. {self._state()}", 0.0, False, False, {"admissible": ["add", "subtract"]}
        self.count += 1 if action == "add" else -1
        won = self.count == self.goal
        return self._state(), float(won), won, self.count < -20, {"admissible": ["add", "subtract"]}

    def _state(self):
        return f"Count: {self.count}. Goal: {self.goal}."


class Dying(Counting):
    """A counter whose process ends at the action "die"."""

    def step(self, action):
        if action == "die":
            os._exit(1)
        return super().step(action)


class Hanging(Counting):
    """A counter that does not answer the action "wait"."""

    def step(self, action):
        if action == "wait":
            time.sleep(600)
        return super().step(action)


class SlowCounting(Counting):
    """A counter whose steps take 50 ms, as those of a world that waits for something else."""

    def step(self, action):
        time.sleep(0.05)
        return super().step(action)


def write_solutions(path: Path, seeds, prefix="gymnasium/") -> Path:
    """Write the solution of each seed's task, in the format of `demonstrations`."""
    lines = [json.dumps({"task": f"{prefix}{seed}", "actions": ["add"] * (2 + seed % 5)}) for seed in seeds]
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def counting_server(*, sessions=16, ruin=None):
    """Serve the counting environment over OpenEnv in a thread, with two splits of tasks; yields its address.

    Args:
        ruin: called with an action; it may return an exception to raise, or a state to answer instead.
    """
    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    class Move(Action):
        action: str

    class Seen(Observation):
        state: object = ""
        instruction: str = ""

    class CountingServer(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, split="train", index=0, **kwargs):
            self.world = Counting()
            state, _ = self.world.reset(seed=2 * index + (split == "test"))
            return Seen(state=state, instruction=TASK, metadata={"admissible": ["add", "subtract"]})

        def step(self, action, timeout_s=None, **kwargs):
            replacement = ruin(action.action) if ruin else None
            if isinstance(replacement, Exception):
                raise replacement
            state, reward, won, cut, _ = self.world.step(action.action)
            return Seen(
                state=state if replacement is None else replacement,
                reward=reward,
                done=won or cut,
                metadata={"admissible": ["add", "subtract"]},
            )

        @property
        def state(self):
            return State()

        def list_splits(self):
            return ["train", "test"]

        def list_tasks(self, split):
            return [{"id": f"task-{number}"} for number in range(100)]

    app = create_fastapi_app(CountingServer, Move, Seen, max_concurrent_envs=sessions, env_name="counting")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
