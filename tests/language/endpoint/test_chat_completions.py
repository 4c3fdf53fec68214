"""Requests to a real HTTP server: the protocol, retries, refusals, and the secrecy of the key."""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest
from chat_server import ChatServer, Reply
from language.endpoint_questions import BLUE, KEY, NO_COSTS, RIGHT, ask, cached_files, question

from components.config import EndpointConfig
from components.errors import EndpointError
from components.language.endpoint.chat_completions import UnansweredError
from components.language.endpoint.json_endpoint import Endpoint


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "answers"


def test_a_request_follows_the_protocol_and_its_tokens_are_counted(cache):
    with ChatServer(Reply(RIGHT)) as server:
        result, usage = ask(server, cache, temperature=0.5, max_tokens=77)
    assert result == BLUE
    assert server.paths == ["/v1/chat/completions"] and server.keys == [""]
    assert server.requests == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Say its colour."},
                {"role": "user", "content": "sky"},
            ],
            "temperature": 0.5,
            "max_tokens": 77,
            "response_format": {"type": "json_object"},
        }
    ]
    assert usage.costs() == NO_COSTS | {
        "endpoint_calls": 1,
        "endpoint_prompt_tokens": 11,
        "endpoint_completion_tokens": 3,
    }


def test_json_mode_and_limit_field_change_the_request(cache):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache, json_mode=False, limit_field="max_completion_tokens", max_tokens=9)
    (body,) = server.requests
    assert body["max_completion_tokens"] == 9 and "max_tokens" not in body and "response_format" not in body


def test_the_schema_of_an_answer_is_sent_where_the_server_shall_enforce_it(cache):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache, json_mode="schema")
    (body,) = server.requests
    form = body["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["strict"]
    schema = form["json_schema"]["schema"]
    assert set(schema["properties"]) == set(RIGHT) and schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "first",
    [
        Reply(status=500, body="oops"),
        Reply(status=503, body=""),
        Reply(status=429, body="slow down"),
        Reply(RIGHT, seconds=3),
    ],
    ids=["500", "503", "429", "timeout"],
)
def test_temporary_failures_are_retried(cache, first):
    with ChatServer(first, Reply(RIGHT)) as server:
        result, usage = ask(server, cache, timeout_seconds=1 if first.seconds else 60)
    assert result == BLUE and usage.calls == 1
    assert usage.retried == len(server.requests) - 1 >= 1
    assert server.requests[0] == server.requests[1]


def test_retry_after_is_respected(cache):
    with ChatServer(Reply(status=429, body="", headers={"Retry-After": "1"}), Reply(RIGHT)) as server:
        start_time = time.monotonic()
        result, _ = ask(server, cache)
    assert result == BLUE and time.monotonic() - start_time >= 1


def test_waits_double_with_jitter(cache):
    with Endpoint(EndpointConfig(url="http://127.0.0.1:1", model="m", backoff_seconds=2), cache) as endpoint:
        waits = [[endpoint._chat._delay_seconds(attempt, "") for _ in range(200)] for attempt in range(8)]
    for attempt, seconds in enumerate(waits):
        middle = min(60, 2 * 2**attempt)
        assert middle * 0.5 <= min(seconds) < middle * 0.7 and middle * 1.3 < max(seconds) <= middle * 1.5


def test_an_endpoint_that_never_answers_is_named_with_a_next_step(cache):
    with ChatServer(Reply(RIGHT, seconds=2)) as server:
        result, usage = ask(server, cache, timeout_seconds=0.2, retries=1)
    assert isinstance(result, UnansweredError) and usage.calls == 0
    assert f"m at {server.url} gave no answer in 2 tries: it did not answer within 0.2 s." in str(result)
    assert "endpoint.timeout_seconds" in result.next_step


def test_a_slow_stream_counts_as_a_timeout(cache):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(100):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        config = EndpointConfig(
            url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1", model="m", timeout_seconds=0.5, retries=0
        )
        start_time = time.monotonic()
        with (
            Endpoint(config, cache) as endpoint,
            pytest.raises(UnansweredError, match=r"did not answer within 0\.5 s"),
        ):
            endpoint.ask(question())
    assert time.monotonic() - start_time < 8


def test_an_unreachable_endpoint_is_named(cache):
    with socket.create_server(("127.0.0.1", 0)) as unused_socket:
        port = unused_socket.getsockname()[1]
    config = EndpointConfig(url=f"http://127.0.0.1:{port}/v1", model="m", retries=1, backoff_seconds=0.01)
    with (
        Endpoint(config, cache) as endpoint,
        pytest.raises(UnansweredError, match=r"in 2 tries: ConnectError: .*refused.*endpoint\.url"),
    ):
        endpoint.ask(question())


@pytest.mark.parametrize(
    ("status", "words"), [(401, "Check the key"), (403, "Check the key"), (404, r"often ends in /v1")]
)
def test_a_refusal_of_every_question_ends_all_questions(cache, status, words):
    with (
        ChatServer(Reply(status=status, body="no", seconds=0.1)) as server,
        Endpoint(server.config(concurrency=1), cache) as endpoint,
        pytest.raises(EndpointError, match=rf"refuses\. HTTP {status}: 'no'\. .*{words}") as error_info,
    ):
        endpoint.ask_all([question(str(n)) for n in range(20)])
    assert not isinstance(error_info.value, UnansweredError)
    assert len(server.requests) <= 10  # those already under way may still get out


def test_a_bad_request_fails_one_question_only(cache):
    def answer(body):
        return Reply(status=400, body="too long") if "x" in body["messages"][1]["content"] else Reply(RIGHT)

    with ChatServer(answer=answer) as server, Endpoint(server.config(), cache) as endpoint:
        results = endpoint.ask_all([question("sky"), question("x" * 100), question("sea")])
    assert [results[0], results[2]] == [BLUE, BLUE]
    assert "HTTP 400: 'too long'" in results[1].found and len(server.requests) == 3


def test_the_key_is_sent_as_bearer_and_appears_nowhere_else(cache, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with ChatServer(
        Reply({"colour": "<key>", "strength": 1}), Reply("<key>"), Reply(status=401, body="bad key <key>")
    ) as server:
        result, _ = ask(server, cache, key_variable="MY_KEY")
        assert server.keys == [f"Bearer {KEY}"]
        assert result.colour == "[key]"
        useless, _ = ask(server, cache, question("sea"), key_variable="MY_KEY", corrections=0)
        assert "'[key]'" in str(useless)
        with pytest.raises(EndpointError, match=r"'bad key \[key\]'.*MY_KEY") as error_info:
            ask(server, cache, question("sun"), key_variable="MY_KEY")
    texts = [
        str(useless),
        str(error_info.value),
        caplog.text,
        *cached_files(cache),
        *cached_files(cache).values(),
    ]
    assert not [text for text in texts if KEY in text]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            None,
            r"variable MY_KEY \(endpoint\.key_variable\) is not set\. Expected the API key of .* Type "
            r"`export MY_KEY=",
        ),
        ("  ", "is not set"),
        (f"{KEY}\nHost: x", "holds no key: 28 characters"),
        ("schlüssel-schlüssel", "holds no key: 19 characters"),
    ],
)
def test_a_missing_or_broken_key_is_reported_without_showing_it(cache, monkeypatch, value, words):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with ChatServer(Reply(RIGHT)) as server:
        with pytest.raises(EndpointError, match=words) as error_info:
            ask(server, cache, key_variable="MY_KEY")
        assert not server.requests
    assert KEY not in str(error_info.value) and "schl" not in str(error_info.value)
