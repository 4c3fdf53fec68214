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
from components.serving.balancer import Balancer
from components.serving.dream_session import Limits
from components.serving.guard import Guard
from components.serving.replicas import Replica, Replicas
from components.serving.server import ServerSettings, application, listen, uvicorn_config
from components.serving.shared_dream import SharedDream
from components.serving.task_choice import Catalogue


@contextmanager
def serving(
    learnt, lessons, *, rows=2, steps=20, token="", idle_seconds=60.0, buffer=None, version="", port=0
):
    """Start a server in a thread, on a free port if none is named; yields its address."""
    shared = SharedDream(Dream(learnt, buffer or ReplayBuffer(RetrievalConfig(k=0))), rows, version=version)
    tasks = [lessons[0].task, make_task(5, instruction="put a hot mug in desk")]
    catalogue = Catalogue("train", tasks, lambda task: "no template" if "happy" in task.instruction else "")
    limits = Limits(steps, 100)
    app = application(shared, catalogue, limits, ServerSettings("127.0.0.1", 0, token, idle_seconds))
    try:
        with in_thread(app, limits, idle_seconds, port) as address:
            yield address
    finally:
        shared.close()


@contextmanager
def balancing(addresses, *, token=""):
    """Start a balancer of these servers in a thread, on a free port; yields its address and itself."""
    balancer = Balancer(Replicas(token, [Replica(address) for address in addresses]))
    limits = Limits(20, 100)
    with in_thread(Guard(balancer.app, token, 60.0), limits, 60.0) as address:
        yield address, balancer


@contextmanager
def in_thread(app, limits, idle_seconds, port=0):
    """Serve an application in a thread; yields its address."""
    listening = listen("127.0.0.1", port)
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
        assert not thread.is_alive()
