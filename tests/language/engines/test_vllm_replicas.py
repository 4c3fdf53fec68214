"""Replicas that answer slowly, fail, or come back. The servers are ours: vLLM is never slow on demand."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from components.errors import TrainingError
from components.language.engines.vllm.replicas import Replicas

PATH = "/v1/completions"
TIMEOUT = 0.3


class Answers:
    """What a server does with a request: seconds until it answers, and the status."""

    def __init__(self):
        self.seconds, self.status, self.asked = 0.0, 200, 0


@contextmanager
def server():
    state = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer()

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            state.asked += 1
            time.sleep(state.seconds)
            self._answer()

        def _answer(self):
            body = json.dumps({"text": "ok"}).encode()
            try:
                self.send_response(state.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the client has gone
                pass

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", state
    finally:
        running.shutdown()
        running.server_close()


@pytest.fixture
def two():
    with ExitStack() as stack:
        first, second = (stack.enter_context(server()) for _ in range(2))
        replicas = stack.enter_context(closing(Replicas([first[0], second[0]], TIMEOUT)))
        yield replicas, dict([first, second])


def ask(replicas, rows=range(8)):
    return replicas.ask_each(PATH, [(row, {}) for row in rows], lambda answer: answer["text"])


def test_a_replica_that_answers_too_slowly_is_left_out_and_its_rows_go_on_elsewhere(two):
    replicas, states = two
    slow, fast = states
    states[slow].seconds = 10 * TIMEOUT
    began = time.monotonic()
    assert ask(replicas) == ["ok"] * 8
    assert time.monotonic() - began < 20 * TIMEOUT
    assert (replicas.alive, replicas.lost) == ([fast], [slow])
    asked = states[slow].asked
    assert ask(replicas) == ["ok"] * 8 and states[slow].asked == asked, "it is not asked again"
    states[slow].seconds = 0
    prepared = []
    replicas.take_back(prepared.append)
    assert prepared == [slow] and set(replicas.alive) == {slow, fast} and not replicas.lost


def test_replicas_that_all_answer_too_slowly_end_the_stage_with_what_to_type(two):
    replicas, states = two
    for state in states.values():
        state.seconds = 10 * TIMEOUT
    with pytest.raises(TrainingError, match="None of the 2 vLLM servers answers.*type the same command"):
        ask(replicas, [0])


def test_a_replica_that_cannot_be_prepared_stays_left_out(two):
    replicas, states = two
    broken, _ = states
    states[broken].status = 500
    assert ask(replicas) == ["ok"] * 8 and replicas.lost == [broken]
    replicas.take_back(lambda url: pytest.fail("it is not healthy"))
    states[broken].status = 200

    def refuses(url):
        raise TrainingError("other weights")

    replicas.take_back(refuses)
    assert replicas.lost == [broken]


def test_a_refusal_is_an_error_and_no_reason_to_go_elsewhere(two):
    replicas, states = two
    for state in states.values():
        state.status = 422
    with pytest.raises(TrainingError, match="refuses /v1/completions: status 422"):
        ask(replicas, [0])
    assert len(replicas.alive) == 2
