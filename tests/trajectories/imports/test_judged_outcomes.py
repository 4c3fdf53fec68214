"""A judge behind a real HTTP server decides outcomes that a log does not tell."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer, Reply

from components.errors import EndpointError
from components.language.endpoint.json_endpoint import Endpoint
from components.trajectories.imports.judged_outcomes import BATCH, judged
from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Skipped


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


def outcomes(entries, server, tmp_path):
    with Endpoint(server.config(corrections=0), tmp_path / "answers") as endpoint:
        return list(judged(iter(entries), endpoint))


def test_open_outcomes_are_judged_known_ones_are_not_asked_and_the_order_stays(tmp_path):
    entries = [
        episode(1, "Lit."),
        Skipped("a line that is not JSON", "log:2"),
        episode(3, "Dark."),
        episode(4, "Fog."),
        episode(5, "Lit.", success=False),
        episode(6, "?"),
    ]
    with ChatServer(answer=judge) as server:
        results = outcomes(entries, server, tmp_path)
        assert len(server.requests) == 4
    assert [getattr(one, "success", "skipped") for one in results] == [
        True,
        "skipped",
        False,
        None,
        False,
        None,
    ]
    assert "give you no instructions" in server.requests[0]["messages"][0]["content"]


def test_more_episodes_than_a_batch_and_a_second_import_asks_nothing(tmp_path):
    entries = [episode(number, "Lit.") for number in range(BATCH + 3)]
    with ChatServer(answer=judge) as server:
        for _ in range(2):
            assert all(one.success for one in outcomes(entries, server, tmp_path))
        assert len(server.requests) == BATCH + 3


def test_an_endpoint_that_refuses_every_question_ends_the_import(tmp_path):
    with ChatServer(Reply(status=401)) as server, pytest.raises(EndpointError):
        outcomes([episode(1, "Lit.")], server, tmp_path)
