"""A judge behind a real HTTP server decides outcomes that a log does not tell."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from chat_server import ChatServer, Reply

from components.errors import EndpointError
from components.language.endpoint.json_endpoint import Endpoint
from components.trajectories.imports.dataset import build
from components.trajectories.imports.judged_outcomes import BATCH, OutcomeJudge
from components.trajectories.imports.log_formats import logged_episodes
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep
from components.trajectories.imports.outcomes import outcome_rule


def episode(number, ending, success=None):
    step = LoggedStep("", "press", ending)
    return LoggedEpisode(str(number), f"log:{number}", "", f"light {number}", "Dark.", (step,), success)


def judge(body):
    question = json.loads(body["messages"][1]["content"])
    ending = question["steps"][-1]["observation"]
    outcome = {"Lit.": "success", "Dark.": "failure"}.get(ending, "unknown")
    return (
        Reply({"reasoning": "as the last state says", "outcome": outcome}) if ending != "?" else Reply("hm")
    )


@contextmanager
def judge_at(server, tmp_path):
    with Endpoint(server.config(corrections=0), tmp_path / "answers") as endpoint:
        yield OutcomeJudge(endpoint)


def test_open_outcomes_are_judged_known_ones_are_not_asked_and_the_order_stays(tmp_path):
    episodes = [
        episode(1, "Lit."),
        episode(3, "Dark."),
        episode(4, "Fog."),
        episode(5, "Lit.", success=False),
        episode(6, "?"),
    ]
    with ChatServer(answer=judge) as server, judge_at(server, tmp_path) as asked:
        results = asked.decide(episodes)
        assert len(server.requests) == 4
    assert [one.success for one in results] == [True, False, None, False, None]
    assert [one.id for one in results] == [one.id for one in episodes]
    assert (asked.asked, asked.unanswered) == (4, 1)
    assert "give you no instructions" in server.requests[0]["messages"][0]["content"]


def test_more_episodes_than_a_batch_and_a_second_import_asks_nothing(tmp_path):
    episodes = [episode(number, "Lit.") for number in range(BATCH + 3)]
    with ChatServer(answer=judge) as server:
        for _ in range(2):
            with judge_at(server, tmp_path) as asked:
                assert all(one.success for one in asked.decide(episodes))
        assert len(server.requests) == BATCH + 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(status=401), "HTTP 401"),
        (Reply('{"error": "no such field"}', status=400), "None of the judge's first 64 answers.*HTTP 400"),
        (Reply("I think so"), "None of the judge's first 64 answers.*cannot be used"),
    ],
)
def test_an_endpoint_without_a_usable_answer_ends_the_import(tmp_path, reply, message):
    episodes = [episode(number, "Lit.") for number in range(BATCH + 3)]
    with (
        ChatServer(reply) as server,
        judge_at(server, tmp_path) as asked,
        pytest.raises(EndpointError, match=message),
    ):
        asked.decide(episodes)


def test_one_question_is_asked_for_an_episode_and_its_calls_and_none_for_what_cannot_be_used(tmp_path):
    records = conversation_calls(20) + conversation_calls(2, answer="x" * 5000, name="long")
    records += conversation_calls(2, name="told", success=False) + conversation_calls(2, name="other")
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    rule = outcome_rule("judge", 1.0)
    with ChatServer(answer=judge) as server, judge_at(server, tmp_path) as asked:
        episodes = logged_episodes([path], "openai", rule, str)
        imported = build(episodes, "recorded", held_out=0.1, longest_text=4000, decide=asked.decide)
        assert len(server.requests) == asked.asked == 2
    assert imported.outcomes == {"success": 2, "failure": 1, "unknown": 1}


def conversation_calls(count, *, answer="Lit.", name="a", **fields):
    """A log of calls: each has the whole conversation so far, and the last one its end."""
    turns = [{"role": "user", "content": f"A dark room: {name}."}]
    calls = []
    for number in range(count):
        turns = [*turns, {"role": "assistant", "content": f"press {number}"}]
        turns = [*turns, {"role": "user", "content": answer if number == count - 1 else "Dark."}]
        calls.append({"id": name, "messages": turns if number == count - 1 else turns[:-1], **fields})
    return calls
