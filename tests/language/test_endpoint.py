"""The endpoint's client against a real HTTP server: what it asks, repeats, keeps, counts, says and never
says.
"""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest
from chat_server import ChatServer, Reply

from components.config import EndpointConfig, load_config
from components.errors import ConfigError, EndpointError
from components.language.endpoint.chat_completions import Unanswered
from components.language.endpoint.json_endpoint import Endpoint, Question, StrictAnswer

KEY = "sk-secret-0123456789"
NO_COSTS = {
    "endpoint_calls": 0,
    "endpoint_cached_calls": 0,
    "endpoint_prompt_tokens": 0,
    "endpoint_completion_tokens": 0,
}


class Colour(StrictAnswer):
    colour: str
    strength: int


def question(user="sky", version="colours-1", **changes):
    return Question("Say its colour.", user, version, Colour, **changes)


RIGHT = {"colour": "blue", "strength": 2}
BLUE = Colour(**RIGHT)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "answers"


def ask(server, cache, asked=None, **config):
    """(answer or failure, the endpoint's usage)."""
    with Endpoint(server.config(**config), cache) as endpoint:
        (result,) = endpoint.ask_all([asked or question()])
        return result, endpoint.usage


def kept(cache):
    return {path.name: path.read_text() for path in cache.rglob("*") if path.is_file()}


def test_a_question_goes_out_as_the_protocol_wants_it_and_its_tokens_are_counted(cache):
    with ChatServer(Reply(RIGHT)) as server:
        found, usage = ask(server, cache, temperature=0.5, max_tokens=77)
    assert found == BLUE
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


def test_settings_that_some_endpoints_need_change_the_request(cache):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache, json_mode=False, limit_field="max_completion_tokens", max_tokens=9)
    (body,) = server.requests
    assert body["max_completion_tokens"] == 9 and "max_tokens" not in body and "response_format" not in body


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
def test_what_may_pass_by_itself_is_tried_again(cache, first):
    with ChatServer(first, Reply(RIGHT)) as server:
        found, usage = ask(server, cache, timeout_seconds=1 if first.seconds else 60)
    assert found == BLUE and usage.calls == 1
    assert usage.retried == len(server.requests) - 1 >= 1
    assert server.requests[0] == server.requests[1]


def test_the_endpoint_may_say_how_long_to_wait(cache):
    with ChatServer(Reply(status=429, body="", headers={"Retry-After": "1"}), Reply(RIGHT)) as server:
        began = time.monotonic()
        found, _ = ask(server, cache)
    assert found == BLUE and time.monotonic() - began >= 1


def test_the_waits_double_with_jitter(cache):
    with Endpoint(EndpointConfig(url="http://127.0.0.1:1", model="m", backoff_seconds=2), cache) as endpoint:
        waits = [[endpoint._chat._delay(attempt, "") for _ in range(200)] for attempt in range(8)]
    for attempt, drawn in enumerate(waits):
        middle = min(60, 2 * 2**attempt)
        assert middle * 0.5 <= min(drawn) < middle * 0.7 and middle * 1.3 < max(drawn) <= middle * 1.5


def test_an_endpoint_that_stays_silent_is_named_with_what_to_do(cache):
    with ChatServer(Reply(RIGHT, seconds=2)) as server:
        found, usage = ask(server, cache, timeout_seconds=0.2, retries=1)
    assert isinstance(found, Unanswered) and usage.calls == 0
    assert f"m at {server.url} gave no answer in 2 tries: it did not answer within 0.2 s." in str(found)
    assert "endpoint.timeout_seconds" in found.next_step


def test_a_reply_that_drips_is_no_answer_in_time(cache):
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
        began = time.monotonic()
        with (
            Endpoint(config, cache) as endpoint,
            pytest.raises(Unanswered, match=r"did not answer within 0\.5 s"),
        ):
            endpoint.ask(question())
    assert time.monotonic() - began < 8


def test_an_endpoint_that_is_not_there_is_named(cache):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config = EndpointConfig(url=f"http://127.0.0.1:{port}/v1", model="m", retries=1, backoff_seconds=0.01)
    with (
        Endpoint(config, cache) as endpoint,
        pytest.raises(Unanswered, match=r"in 2 tries: ConnectError: .*refused.*endpoint\.url"),
    ):
        endpoint.ask(question())


@pytest.mark.parametrize(
    ("status", "words"), [(401, "Check the key"), (403, "Check the key"), (404, r"often ends in /v1")]
)
def test_a_refusal_that_would_meet_every_question_ends_all_at_once(cache, status, words):
    with (
        ChatServer(Reply(status=status, body="no", seconds=0.1)) as server,
        Endpoint(server.config(concurrency=1), cache) as endpoint,
        pytest.raises(EndpointError, match=rf"refuses\. HTTP {status}: 'no'\. .*{words}") as caught,
    ):
        endpoint.ask_all([question(str(n)) for n in range(20)])
    assert not isinstance(caught.value, Unanswered)
    assert len(server.requests) <= 10  # those already under way may still get out


def test_a_request_that_is_at_fault_itself_is_the_matter_of_one_question(cache):
    def answer(body):
        return Reply(status=400, body="too long") if "x" in body["messages"][1]["content"] else Reply(RIGHT)

    with ChatServer(answer=answer) as server, Endpoint(server.config(), cache) as endpoint:
        found = endpoint.ask_all([question("sky"), question("x" * 100), question("sea")])
    assert [found[0], found[2]] == [BLUE, BLUE]
    assert "HTTP 400: 'too long'" in found[1].found and len(server.requests) == 3


@pytest.mark.parametrize(
    ("bad", "wrong"),
    [
        (Reply("Blue, I think!"), "Invalid JSON"),
        (Reply({"colour": "blue"}), "strength: Field required"),
        (Reply({**RIGHT, "why": "air"}), "why: Extra inputs are not permitted"),
        (Reply({"colour": "blue", "strength": "2"}), "strength: Input should be a valid integer"),
        (Reply([RIGHT]), "Input should be an object"),
        (Reply('{"colour": "bl', finish="length"), "cut off at its limit of tokens"),
    ],
    ids=["garbage", "missing", "extra", "type", "list", "cut"],
)
def test_an_answer_of_the_wrong_shape_is_asked_for_again_with_what_is_wrong(cache, bad, wrong):
    with ChatServer(bad, Reply(RIGHT)) as server:
        found, usage = ask(server, cache)
    assert found == BLUE
    assert (usage.calls, usage.rejected, usage.prompt_tokens) == (2, 1, 22)
    *first, answer, complaint = server.requests[1]["messages"]
    assert first == server.requests[0]["messages"] and answer["role"] == "assistant"
    assert wrong in complaint["content"] and "JSON object alone" in complaint["content"]
    assert len(kept(cache)) == 1


@pytest.mark.parametrize(
    "body", ["<html>Welcome</html>", "{}", '{"choices": []}', '{"choices": [{"message": {"content": null}}]}']
)
def test_a_reply_that_is_no_completion_is_asked_for_again_as_it_was(cache, body):
    with ChatServer(Reply(body=body), Reply(RIGHT)) as server:
        found, usage = ask(server, cache)
    assert found == BLUE and server.requests[0] == server.requests[1]
    assert usage.unmetered == 1


def test_answers_that_stay_useless_end_in_one_clear_failure(cache):
    with ChatServer(Reply("I would rather\nnot.")) as server:
        found, usage = ask(server, cache, corrections=1)
    assert f"m at {server.url} gave 2 answers that cannot be used; the last: Invalid JSON" in str(found)
    assert "'I would rather not.'" in str(found) and "endpoint.corrections" in found.next_step
    assert usage.calls == usage.rejected == 2 and not kept(cache)
    with ChatServer(Reply("{", finish="length")) as server:
        found, _ = ask(server, cache)
    assert found.next_step == "Raise endpoint.max_tokens."


def test_the_questions_own_check_decides_too(cache):
    def bluish(value):
        return "" if value.colour == "blue" else "it must be blue"

    with ChatServer(Reply({"colour": "red", "strength": 1}), Reply(RIGHT)) as server:
        found, _ = ask(server, cache, question(check=bluish))
    assert found == BLUE and "it must be blue" in server.requests[1]["messages"][-1]["content"]


def test_a_code_fence_around_the_object_is_let_pass(cache):
    with ChatServer(Reply('```json\n{"colour": "blue",\n "strength": 2}\n```')) as server:
        assert ask(server, cache)[0] == BLUE


def test_what_is_answered_is_never_asked_again(cache):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache)
        found, usage = ask(server, cache, timeout_seconds=50, retries=0, backoff_seconds=1.0, concurrency=9)
        assert found == BLUE and len(server.requests) == 1
        assert usage.costs() == NO_COSTS | {"endpoint_cached_calls": 1}
        for changed in ({"model": "n"}, {"temperature": 1.0}, {"max_tokens": 5}):
            ask(server, cache, **changed)
        ask(server, cache, question(version="colours-2"))
        ask(server, cache, question("sea"))
        assert len(server.requests) == 6


def test_the_same_question_is_asked_once_however_often_it_comes(cache):
    with ChatServer(Reply(RIGHT, seconds=0.05)) as server, Endpoint(server.config(), cache) as endpoint:
        assert endpoint.ask_all([question()] * 8) == [BLUE] * 8
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "damage", ["", "{", '{"content": 3}', '{"content": "not JSON"}', '{"content": "{}"}']
)
def test_a_damaged_or_outdated_answer_is_asked_for_again(cache, damage):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache)
        (path,) = cache.rglob("*.json")
        path.write_text(damage)
        assert ask(server, cache)[0] == BLUE and ask(server, cache)[0] == BLUE
    assert len(server.requests) == 2


def test_the_key_is_sent_as_bearer_and_appears_nowhere_else(cache, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with ChatServer(
        Reply({"colour": "<key>", "strength": 1}), Reply("<key>"), Reply(status=401, body="bad key <key>")
    ) as server:
        found, _ = ask(server, cache, key_variable="MY_KEY")
        assert server.keys == [f"Bearer {KEY}"]
        assert found.colour == "[key]"
        useless, _ = ask(server, cache, question("sea"), key_variable="MY_KEY", corrections=0)
        assert "'[key]'" in str(useless)
        with pytest.raises(EndpointError, match=r"'bad key \[key\]'.*MY_KEY") as caught:
            ask(server, cache, question("sun"), key_variable="MY_KEY")
    shown = [str(useless), str(caught.value), caplog.text, *kept(cache), *kept(cache).values()]
    assert not [text for text in shown if KEY in text]


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
def test_a_missing_or_broken_key_is_told_without_showing_it(cache, monkeypatch, value, words):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with ChatServer(Reply(RIGHT)) as server:
        with pytest.raises(EndpointError, match=words) as caught:
            ask(server, cache, key_variable="MY_KEY")
        assert not server.requests
    assert KEY not in str(caught.value) and "schl" not in str(caught.value)


def test_with_all_answers_kept_no_key_is_needed(cache, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache, key_variable="MY_KEY")
        monkeypatch.delenv("MY_KEY")
        assert ask(server, cache, key_variable="MY_KEY")[0] == BLUE


def test_as_many_questions_as_allowed_are_asked_at_the_same_time_and_answers_keep_their_order(cache):
    def answer(body):
        number = int(body["messages"][1]["content"])
        return Reply({"colour": "blue", "strength": number}, seconds=0.1 + 0.05 * (number % 3))

    with ChatServer(answer=answer) as server, Endpoint(server.config(concurrency=3), cache) as endpoint:
        found = endpoint.ask_all([question(str(n)) for n in range(12)])
        assert [value.strength for value in found] == list(range(12))
        assert endpoint.usage.calls == 12 and endpoint.usage.prompt_tokens == 12 * 11
    assert 1 < server.most_at_once <= 3


def test_too_many_failures_end_the_asking_early_and_what_was_answered_is_kept(cache):
    def answer(body):
        return Reply("no", seconds=0.05) if body["messages"][1]["content"].startswith("bad") else Reply(RIGHT)

    questions = [question(f"good {n}") for n in range(4)] + [question(f"bad {n}") for n in range(40)]
    with ChatServer(answer=answer) as server:
        words = (
            r"3 of 44 questions have no usable answer\. The last one: .*At most 2 may stay "
            r"without\..*asks only for the rest"
        )
        with (
            Endpoint(server.config(concurrency=2, corrections=0), cache) as endpoint,
            pytest.raises(EndpointError, match=words),
        ):
            endpoint.ask_all(questions, most_unanswered=2)
        assert len(server.requests) < 30
        with Endpoint(server.config(concurrency=2, corrections=0), cache) as endpoint:
            assert endpoint.ask_all(questions[:4], most_unanswered=0) == [BLUE] * 4
            assert endpoint.usage.cached_calls == 4


def test_all_failures_are_told_one_by_one_where_any_number_is_allowed(cache):
    with ChatServer(Reply("no")) as server, Endpoint(server.config(corrections=0), cache) as endpoint:
        found = endpoint.ask_all([question("a"), question("b")])
    assert all(isinstance(failure, Unanswered) for failure in found)
    assert Endpoint(EndpointConfig(), cache).ask_all([]) == []


@pytest.mark.parametrize(
    "override",
    [
        f"endpoint.key_variable={KEY}",
        f"endpoint.url=http://user:{KEY}@host/v1",
        f"endpoint.url=http://host/v1?key={KEY}",
    ],
)
def test_a_key_in_the_config_is_refused_and_not_repeated(override):
    with pytest.raises(ConfigError, match="key_variable") as caught:
        url = [] if override.startswith("endpoint.url") else ["endpoint.url=http://localhost/v1"]
        load_config(None, ["experience_model.teacher=llm", *url, "endpoint.model=m", override])
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "http://host:port/v1", "http://[::1/v1"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match=r"url is not a plain http\(s\) address"):
        load_config(None, ["experience_model.teacher=llm", "endpoint.model=m", f"endpoint.url='{url}'"])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["endpoint.model=m"], r"endpoint\.model has no effect: nothing asks an endpoint.*teacher=llm"),
        (
            ["experience_model.teacher=llm", "endpoint.model=m"],
            r"but endpoint\.url is empty.*endpoint\.url=http://localhost:8000/v1",
        ),
        (["experience_model.teacher=llm"], r"endpoint\.url and endpoint\.model is empty"),
        (["experience_model.max_unannotated_share=0.5"], "has no effect with teacher: programmatic"),
        (
            ["experience_model.reasoning=false", "experience_model.teacher=llm"],
            "teacher has no effect with reasoning: false",
        ),
        (
            ["endpoint.retries=0", "endpoint.backoff_seconds=3"],
            "backoff_seconds has no effect with retries: 0",
        ),
    ],
)
def test_an_endpoint_without_effect_or_without_a_name_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)
