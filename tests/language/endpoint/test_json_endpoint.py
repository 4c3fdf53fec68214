"""Questions with strict JSON answers to a real HTTP server: corrections, cache, concurrency, limits."""

from __future__ import annotations

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
def test_an_answer_of_the_wrong_form_is_requested_again_with_the_reason(cache, bad, wrong):
    with ChatServer(bad, Reply(RIGHT)) as server:
        result, usage = ask(server, cache)
    assert result == BLUE
    assert (usage.calls, usage.rejected, usage.prompt_tokens) == (2, 1, 22)
    *first, answer, complaint = server.requests[1]["messages"]
    assert first == server.requests[0]["messages"] and answer["role"] == "assistant"
    assert wrong in complaint["content"] and "JSON object alone" in complaint["content"]
    assert len(cached_files(cache)) == 1


@pytest.mark.parametrize(
    "body", ["<html>Welcome</html>", "{}", '{"choices": []}', '{"choices": [{"message": {"content": null}}]}']
)
def test_a_reply_without_a_completion_repeats_the_request_unchanged(cache, body):
    with ChatServer(Reply(body=body), Reply(RIGHT)) as server:
        result, usage = ask(server, cache)
    assert result == BLUE and server.requests[0] == server.requests[1]
    assert usage.unmetered == 1


def test_answers_that_stay_unusable_end_in_one_error(cache):
    with ChatServer(Reply("I would rather\nnot.")) as server:
        result, usage = ask(server, cache, corrections=1)
    assert f"m at {server.url} gave 2 answers that cannot be used; the last: Invalid JSON" in str(result)
    assert "'I would rather not.'" in str(result) and "endpoint.corrections" in result.next_step
    assert usage.calls == usage.rejected == 2 and not cached_files(cache)
    with ChatServer(Reply("{", finish="length")) as server:
        result, _ = ask(server, cache)
    assert result.next_step == "Raise endpoint.max_tokens."


def test_the_check_of_the_question_is_applied(cache):
    def bluish(value):
        return "" if value.colour == "blue" else "it must be blue"

    with ChatServer(Reply({"colour": "red", "strength": 1}), Reply(RIGHT)) as server:
        result, _ = ask(server, cache, question(check=bluish))
    assert result == BLUE and "it must be blue" in server.requests[1]["messages"][-1]["content"]


def test_a_code_fence_around_the_object_is_accepted(cache):
    with ChatServer(Reply('```json\n{"colour": "blue",\n "strength": 2}\n```')) as server:
        assert ask(server, cache)[0] == BLUE


def test_an_answered_question_is_not_asked_again(cache):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache)
        result, usage = ask(server, cache, timeout_seconds=50, retries=0, backoff_seconds=1.0, concurrency=9)
        assert result == BLUE and len(server.requests) == 1
        assert usage.costs() == NO_COSTS | {"endpoint_cached_calls": 1}
        for changed in ({"model": "n"}, {"temperature": 1.0}, {"max_tokens": 5}):
            ask(server, cache, **changed)
        ask(server, cache, question(version="colours-2"))
        ask(server, cache, question("sea"))
        assert len(server.requests) == 6


def test_equal_questions_are_asked_once(cache):
    with ChatServer(Reply(RIGHT, seconds=0.05)) as server, Endpoint(server.config(), cache) as endpoint:
        assert endpoint.ask_all([question()] * 8) == [BLUE] * 8
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "damage", ["", "{", '{"content": 3}', '{"content": "not JSON"}', '{"content": "{}"}']
)
def test_a_damaged_or_outdated_answer_is_asked_again(cache, damage):
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache)
        (path,) = cache.rglob("*.json")
        path.write_text(damage)
        assert ask(server, cache)[0] == BLUE and ask(server, cache)[0] == BLUE
    assert len(server.requests) == 2


def test_with_all_answers_cached_no_key_is_needed(cache, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer(Reply(RIGHT)) as server:
        ask(server, cache, key_variable="MY_KEY")
        monkeypatch.delenv("MY_KEY")
        assert ask(server, cache, key_variable="MY_KEY")[0] == BLUE


def test_concurrency_limits_open_requests_and_answers_keep_their_order(cache):
    def answer(body):
        number = int(body["messages"][1]["content"])
        return Reply({"colour": "blue", "strength": number}, seconds=0.1 + 0.05 * (number % 3))

    with ChatServer(answer=answer) as server, Endpoint(server.config(concurrency=3), cache) as endpoint:
        results = endpoint.ask_all([question(str(n)) for n in range(12)])
        assert [value.strength for value in results] == list(range(12))
        assert endpoint.usage.calls == 12 and endpoint.usage.prompt_tokens == 12 * 11
    assert 1 < server.most_at_once <= 3


def test_too_many_failures_end_all_questions_and_answers_are_kept(cache):
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


def test_without_a_limit_every_failure_is_returned(cache):
    with ChatServer(Reply("no")) as server, Endpoint(server.config(corrections=0), cache) as endpoint:
        results = endpoint.ask_all([question("a"), question("b")])
    assert all(isinstance(failure, UnansweredError) for failure in results)
    assert Endpoint(EndpointConfig(), cache).ask_all([]) == []
