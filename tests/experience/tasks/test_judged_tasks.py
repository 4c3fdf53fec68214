"""A judge behind a real HTTP server says of made-up tasks whether they can be done."""

from __future__ import annotations

import json

import pytest
from builders import make_task
from chat_server import ChatServer, Reply

from components.config import load_config
from components.errors import ConfigError
from components.experience.tasks.judged_tasks import JudgedFeasibility
from components.language.endpoint.json_endpoint import Endpoint

WORLD = "A room with boxes."


def judge(body):
    asked = json.loads(body["messages"][1]["content"])
    assert asked["world"] == WORLD and asked["first_state"] == "Box 1 is closed."
    if asked["instruction"] == "hum":
        return Reply("hm")
    return Reply({"reasoning": "as I see it", "possible": asked["instruction"] == "open box 1"})


def rule(task):
    return "has a word that no recorded task has" if task.instruction == "fly" else ""


def test_the_judge_is_asked_where_the_rule_has_no_objection_and_once(tmp_path):
    with ChatServer(answer=judge) as server:
        for _ in range(2):
            with Endpoint(server.config(corrections=0), tmp_path / "answers") as endpoint:
                feasible = JudgedFeasibility(rule, endpoint, WORLD)
                reasons = {
                    instruction: feasible(
                        make_task(0, instruction=instruction, initial_state="Box 1 is closed.")
                    )
                    for instruction in ("open box 1", "open box 9", "hum", "fly")
                }
            assert reasons["open box 1"] == ""
            assert reasons["open box 9"] == "cannot be done, says the judge"
            assert reasons["hum"] == "has no answer of the judge"
            assert reasons["fly"] == rule(make_task(0, instruction="fly"))
        assert [json.loads(r["messages"][1]["content"])["instruction"] for r in server.requests] == [
            *("open box 1", "open box 9", "hum"),
            "hum",
        ], "usable answers are kept, a rule's refusal is never asked about"


def test_a_judge_needs_an_endpoint_and_a_curriculum():
    with pytest.raises(ConfigError, match=r"curriculum\.judge"):
        load_config(None, ["curriculum.judge=true"])
    with pytest.raises(ConfigError, match="judge has no effect with enabled: false"):
        load_config(None, ["curriculum.judge=true", "curriculum.enabled=false"])
