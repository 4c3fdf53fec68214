"""The index on a real Chroma server: same answers as in this process, no leftovers, and clear errors."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import make_transition
from ports import free_port

from components.config import load_config
from components.errors import ConfigError, ServiceUnreachable
from components.experience.retrieval.replay_buffer import ReplayBuffer


class Server:
    """A `chroma run` on one port, which can be stopped and started again on any directory."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.start("first")

    def start(self, name):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        program = str(Path(sys.executable).with_name("chroma"))
        command = [program, "run", "--path", str(place), "--host", "127.0.0.1", "--port", str(self.port)]
        with (place / "log").open("wb") as log:
            self.child = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self.child.wait(30)


@pytest.fixture
def restartable(tmp_path):
    """A server for one test."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """host:port of `chroma run`."""
    running = Server(tmp_path_factory.mktemp("chroma"))
    yield running.address
    running.stop()


def make_log():
    return [
        make_transition(
            step,
            f"e{episode}",
            f"t{episode}",
            state=f"At desk {episode}: mug {step}.",
            action=f"go to desk {episode + step}",
        )
        for episode in range(40)
        for step in range(5)
    ]


def settings(*overrides):
    return load_config(
        None, ["retrieval.index=chroma", "retrieval.dimensions=64", "retrieval.k=2", *overrides]
    ).retrieval


def test_a_server_finds_the_same_as_the_index_in_this_process(server):
    import chromadb

    log = make_log()
    queries, own = [(step.state, step.action) for step in log], [step.task_id for step in log]
    near, far = ReplayBuffer(settings(), log), ReplayBuffer(settings(f"retrieval.server={server}"), log)
    host, _, port = server.partition(":")
    client = chromadb.HttpClient(host, int(port))
    assert [collection.count() for collection in client.list_collections()] == [far.steps]
    pairs = zip(near.retrieve(queries, own), far.retrieve(queries, own), strict=True)
    assert sum(one == other for one, other in pairs) > 0.95 * len(log)
    near.close()
    far.close()
    assert not client.list_collections(), "closing deletes the run's collection"


def test_a_stopped_or_emptied_server_is_an_error_and_a_repeated_run_continues(restartable):
    log = make_log()
    config, query = (
        settings(f"retrieval.server={restartable.address}"),
        ([(log[0].state, log[0].action)], ["other"]),
    )
    buffer = ReplayBuffer(config, log[:100])
    demonstrations_before = buffer.retrieve(*query)
    restartable.stop()
    for use in (lambda: buffer.retrieve(*query), lambda: buffer.add(log[100:])):
        with pytest.raises(
            ServiceUnreachable, match=rf"{restartable.address} does not answer.*chroma run --host 127.0.0.1"
        ) as raised:
            use()
        assert "type the same command again" in raised.value.next_step
    restartable.start("empty")
    with pytest.raises(
        ServiceUnreachable, match="does not have this run's collection any more.*restarted without its data"
    ):
        buffer.retrieve(*query)
    buffer.close()
    again = ReplayBuffer(config, log[:100])  # what the same command does
    assert again.retrieve(*query) == demonstrations_before
    again.close()


def test_a_buffer_can_be_closed_after_its_server_stopped(restartable):
    buffer = ReplayBuffer(settings(f"retrieval.server={restartable.address}"), make_log())
    restartable.stop()
    buffer.close()


def test_an_unreachable_server_is_an_error():
    with pytest.raises(ServiceUnreachable, match=r"127.0.0.1:9 does not answer.*chroma run"):
        ReplayBuffer(settings("retrieval.server=127.0.0.1:9"), make_log())


def test_a_server_without_chroma_index_or_with_a_wrong_address_is_refused():
    with pytest.raises(ConfigError, match="server has no effect with index: exact"):
        load_config(None, ["retrieval.server=localhost:8000"])
    with pytest.raises(ConfigError, match="retrieval.server"):
        settings("retrieval.server=http://localhost")
