"""The `llm` teacher with a real HTTP server: plans become the reasoning, or the episode is left out."""

from __future__ import annotations

import json

import pytest
from builders import make_episode, make_task, with_unknown_outcome
from chat_server import ChatServer, Reply

from components.errors import EndpointError
from components.experience.teachers.llm_teacher import UNKNOWN, VERSION, annotate, render
from components.language.endpoint.json_endpoint import Endpoint

TUTORIAL = {
    "Overall Plan": "Find it.",
    "Success Mode": "It lies there.",
    "Failure Mode": "It is another one.",
}


def make(name: str, steps: int, won: bool = False):
    moves = [(f"go to shelf {n}", f"At shelf {n}: nothing. Holding nothing.") for n in range(1, steps + 1)]
    return make_episode(make_task(), *moves, won=won, episode=name)


def annotation(steps, **changes):
    plans = [{"step_id": n, "transition_plan": f"works,\n  step {n}"} for n in steps]
    return {"task_tutorial": TUTORIAL, "state_transitions": plans, **changes}


def right(body):
    """The answer of a correct teacher to any episode."""
    return Reply(
        annotation([step["step_id"] for step in json.loads(body["messages"][1]["content"])["steps"]])
    )


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "answers"


def ask(server, cache, episodes, most_left_out=0.0, **options):
    with Endpoint(server.config(corrections=options.pop("corrections", 1)), cache) as endpoint:
        return annotate(endpoint, episodes, most_left_out=most_left_out, **options), endpoint.usage


def test_each_steps_plan_becomes_its_reasoning_and_nothing_else_changes(cache):
    episodes = [make("a", 3, won=True), make("b", 2)]
    with ChatServer(answer=right) as server:
        annotated, usage = ask(server, cache, episodes)
    assert [[step.reasoning for step in e.steps] for e in annotated.episodes] == [
        ["works, step 0", "works, step 1", "works, step 2"],
        ["works, step 0", "works, step 1"],
    ]
    for before, after in zip(episodes, annotated.episodes, strict=True):
        assert (after.task, after.states, after.success) == (before.task, before.states, before.success)
    assert annotated.tutorials == {"a": TUTORIAL, "b": TUTORIAL} and not annotated.left_out
    assert usage.calls == 2


def test_the_teacher_reads_task_success_and_every_state_and_action(cache):
    episode = make("a", 2, won=True)
    assert json.loads(render(episode)) == {
        "task": "put a mug in desk",
        "success": True,
        "steps": [
            {"step_id": 0, "state": episode.states[0], "action": "go to shelf 1"},
            {"step_id": 1, "state": "At shelf 1: nothing. Holding nothing.", "action": "go to shelf 2"},
        ],
        "last_state": "At shelf 2: nothing. Holding nothing.",
    }
    with ChatServer(answer=right) as server:
        ask(server, cache, [episode])
    system, user = server.requests[0]["messages"]
    assert user["content"] == render(episode)
    for words in (
        "task_tutorial",
        "Overall Plan",
        "Success Mode",
        "Failure Mode",
        "state_transitions",
        "step_id",
        "transition_plan",
    ):
        assert words in system["content"]
    assert "no instructions" in system["content"]


@pytest.mark.parametrize(
    ("bad", "wrong"),
    [
        (annotation([0, 1]), r"has the step_ids [0, 1], expected exactly one entry for each of [0, 1, 2]"),
        (annotation([0, 1, 2, 3]), "has the step_ids [0, 1, 2, 3]"),
        (annotation([0, 1, 1]), "has the step_ids [0, 1, 1]"),
        (annotation([1, 2, 3]), "has the step_ids [1, 2, 3]"),
        (
            annotation([0, 1], task_tutorial={"Overall Plan": "x"}),
            "task_tutorial.Success Mode: Field required",
        ),
        (
            {
                **annotation([0]),
                "state_transitions": [{"step_id": n, "transition_plan": " \n"} for n in range(3)],
            },
            "of step 0 is blank",
        ),
        ({"task_tutorial": TUTORIAL}, "state_transitions: Field required"),
    ],
    ids=["too few", "too many", "twice", "from one", "tutorial", "blank", "missing"],
)
def test_an_annotation_that_does_not_fit_the_episode_is_requested_again(cache, bad, wrong):
    with ChatServer(Reply(bad), Reply(annotation([2, 0, 1]))) as server:
        annotated, usage = ask(server, cache, [make("a", 3)])
    assert wrong in server.requests[1]["messages"][-1]["content"]
    assert [step.reasoning for step in annotated.episodes[0].steps] == [
        "works, step 0",
        "works, step 1",
        "works, step 2",
    ]
    assert (usage.calls, usage.rejected) == (2, 1)


def test_a_plan_that_cannot_be_learnt_is_requested_again_even_from_the_cache(cache):
    long = annotation([0])
    long["state_transitions"][0]["transition_plan"] = "well " * 50
    with ChatServer(Reply(long), Reply(annotation([0]))) as server:
        assert len(ask(server, cache, [make("a", 1)])[0].episodes[0].steps[0].reasoning) == 249

        def refuse(step):
            return "too long" if len(step.reasoning) > 99 else ""

        annotated, usage = ask(server, cache, [make("a", 1)], refuse=refuse)
    assert annotated.episodes[0].steps[0].reasoning == "works, step 0"
    assert (usage.calls, usage.cached_calls) == (1, 0)


def test_a_second_run_makes_no_request(cache):
    episodes = [make("a", 3), make("b", 2)]
    with ChatServer(answer=right) as server:
        first, _ = ask(server, cache, episodes)
        again, usage = ask(server, cache, episodes)
        assert len(server.requests) == 2
    assert again == first
    assert (usage.calls, usage.cached_calls, usage.prompt_tokens, usage.completion_tokens) == (0, 2, 0, 0)
    assert all(f'"version": "{VERSION}"' in path.read_text() for path in cache.rglob("*.json"))


def test_up_to_a_share_of_episodes_is_left_out_without_annotation(cache):
    def answer(body):
        return Reply("I cannot.") if "shelf 3" in body["messages"][1]["content"] else right(body)

    episodes = [make("a", 1), make("b", 2), make("c", 3), make("d", 1, won=True)]
    with ChatServer(answer=answer) as server:
        annotated, _ = ask(server, cache, episodes, most_left_out=0.25)
        assert [e.steps[0].episode_id for e in annotated.episodes] == ["a", "b", "d"]
        assert list(annotated.left_out) == ["c"] and "'I cannot.'" in annotated.left_out["c"]
        with pytest.raises(
            EndpointError, match=r"1 of 4 questions have no usable answer.*At most 0 may stay without"
        ):
            ask(server, cache, episodes, most_left_out=0.2)
        before = len(server.requests)
        ask(server, cache, episodes[:2], most_left_out=0.0)
        assert len(server.requests) == before  # earlier answers are cached even after a failure


def test_a_teacher_without_any_annotation_is_an_error_at_any_share(cache):
    with (
        ChatServer(Reply("no")) as server,
        pytest.raises(EndpointError, match=r"None of 2 episodes has an annotation.*teacher=programmatic"),
    ):
        ask(server, cache, [make("a", 1), make("b", 2)], most_left_out=1.0)


def test_the_teacher_is_told_that_an_outcome_is_unknown():
    episode = make("a", 2)
    assert json.loads(render(with_unknown_outcome(episode)))["success"] == UNKNOWN
    assert json.loads(render(episode))["success"] is False
