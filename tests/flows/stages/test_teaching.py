"""The `llm` teacher inside the stage, with a real server and a tiny vocabulary."""

from __future__ import annotations

import json
import logging

import pytest
from builders import WORLD, make_episode, make_task
from chat_server import ChatServer, Reply
from prefect.logging import disable_run_logger

from components.config import Config, ExperienceModelConfig
from components.errors import EndpointError
from components.tracking.manifest import Costs
from flows.run.training.teacher_annotations import ANSWERS, teach
from flows.training_log import tenths_logger

EPISODES = [
    make_episode(make_task(), ("go to shelf 1", "At shelf 1: nothing. Holding nothing."), episode="a"),
    make_episode(make_task(), ("look", "Looked around in the room. Holding nothing."), episode="b"),
]
TUTORIAL = {
    "Overall Plan": "Find it.",
    "Success Mode": "It lies there.",
    "Failure Mode": "It is another one.",
}


def plan(words):
    return Reply({"task_tutorial": TUTORIAL, "state_transitions": [{"step_id": 0, "transition_plan": words}]})


def teach_with(server, work, episodes=EPISODES, **changes):
    """Return what the stage gets from the `llm` teacher at `server`; answers are kept next to `work`."""
    work.mkdir(exist_ok=True)
    config = Config(
        experience_model={"teacher": "llm", "max_new_tokens": 100, **changes},
        endpoint=server.config(corrections=1),
    )
    with disable_run_logger():
        return teach(config, work.parent, work, WORLD, episodes)


def test_the_programmatic_teacher_leaves_the_episodes_as_they_are(tmp_path):
    taught, outcome = teach(Config(), tmp_path, tmp_path, WORLD, EPISODES)
    assert taught is EPISODES and not outcome.outputs and not outcome.costs and not outcome.metrics


def test_annotations_are_recorded_counted_and_paid_for_once(tmp_path):
    with ChatServer(plan("works, new")) as server:
        taught, outcome = teach_with(server, tmp_path / "one")
        again, second = teach_with(server, tmp_path / "two")
        assert len(server.requests) == 2
    assert [step.reasoning for episode in taught for step in episode.steps] == ["works, new"] * 2
    assert again == taught and (tmp_path / ANSWERS).is_dir()
    record = json.loads((tmp_path / "one" / outcome.outputs["annotations"]).read_text())
    assert record["reasoning"] == {"a": ["works, new"], "b": ["works, new"]} and record["model"] == "m"
    assert record["tutorials"]["a"] == TUTORIAL and record["left_out"] == {}
    costs = Costs(**outcome.costs)
    assert (costs.endpoint_calls, costs.endpoint_prompt_tokens, costs.endpoint_completion_tokens) == (
        2,
        22,
        6,
    )
    assert (second.costs["endpoint_calls"], second.costs["endpoint_cached_calls"]) == (0, 2)
    assert outcome.metrics["teacher/prompt_tokens"].value == 22
    assert (
        outcome.metrics["teacher/unannotated_rate"].value,
        outcome.metrics["teacher/unannotated_rate"].n,
    ) == (0, 2)


def test_a_repeated_episode_is_annotated_once(tmp_path):
    with ChatServer(plan("works")) as server:
        taught, outcome = teach_with(server, tmp_path / "one", [*EPISODES, EPISODES[0]])
        assert len(server.requests) == 2
    assert [episode.steps[0].episode_id for episode in taught] == ["a", "b", "a"]
    assert {step.reasoning for episode in taught for step in episode.steps} == {"works"}
    assert outcome.metrics["teacher/unannotated_rate"].n == 2


def test_a_plan_that_the_model_could_never_write_is_refused_with_the_option_to_raise(tmp_path):
    with ChatServer(plan("why " * 300)) as server:
        words = (
            r"step 0 cannot be learnt: it makes an answer of \d+ tokens, more than "
            r"experience_model\.max_new_tokens=100"
        )
        with pytest.raises(EndpointError, match=words):
            teach_with(server, tmp_path / "one")
        asked_again = [body["messages"] for body in server.requests if len(body["messages"]) == 4]
        assert asked_again and "experience_model.max_new_tokens=100" in asked_again[0][-1]["content"]


def test_an_interrupted_training_resumes_with_the_same_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(ExperienceModelConfig, "max_unannotated_share", 0.5)

    def dumb(body):
        return Reply("no") if "go to shelf 1" in body["messages"][1]["content"] else plan("works")

    with ChatServer(answer=dumb) as server:
        first, outcome = teach_with(server, tmp_path / "one")
    assert [e.steps[0].episode_id for e in first] == ["b"] and outcome.metrics[
        "teacher/unannotated_rate"
    ].value == 0.5
    (tmp_path / "one" / "checkpoint.pt").touch()
    with ChatServer(plan("works")) as server:
        second, outcome = teach_with(server, tmp_path / "one")
        assert second == first and not server.requests
        assert outcome.metrics["teacher/unannotated_rate"].value == 0.5
        (tmp_path / "one" / "checkpoint.pt").unlink()
        assert len(teach_with(server, tmp_path / "one")[0]) == 2


def test_progress_is_logged_at_each_tenth(caplog, monkeypatch):
    log = logging.getLogger("progress")
    monkeypatch.setattr("flows.training_log.get_run_logger", lambda: log)
    tell = tenths_logger("steps were dreamed")
    with caplog.at_level(logging.INFO, logger="progress"):
        for done in range(1, 2001):
            tell(done, 2000)
    assert len(caplog.messages) == 10 and caplog.messages[-1] == "2,000 of 2,000 steps were dreamed"
