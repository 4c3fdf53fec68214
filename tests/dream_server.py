"""A real OpenEnv server with a dream, in a thread of the test."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import uvicorn
from builders import make_task

from components.config import RetrievalConfig
from components.experience.dream import Dream
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.serving.dream_session import Limits
from components.serving.server import ServerSettings, application, listen, uvicorn_config
from components.serving.shared_dream import SharedDream
from components.serving.task_choice import Catalogue


@contextmanager
def serving(learnt, lessons, *, rows=2, steps=20, token="", idle_seconds=60.0, buffer=None):
    """Start a server on a free port in a thread; yields its address."""
    shared = SharedDream(Dream(learnt, buffer or ReplayBuffer(RetrievalConfig(k=0))), rows)
    tasks = [lessons[0].task, make_task(5, instruction="put a hot mug in desk")]
    catalogue = Catalogue("train", tasks, lambda task: "no template" if "happy" in task.instruction else "")
    listening = listen("127.0.0.1", 0)
    limits = Limits(steps, 100)
    app = application(shared, catalogue, limits, ServerSettings("127.0.0.1", 0, token, idle_seconds))
    server = uvicorn.Server(uvicorn_config(app, limits, idle_seconds))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        shared.close()
        assert not thread.is_alive()
