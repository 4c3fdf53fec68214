"""The language-model judge against a real HTTP server, and its agreement with the rules."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import make_task, make_transition
from chat_server import ChatServer, Reply

from components.errors import DataError, EndpointError
from components.evaluation.judge import VERSION, judge_transitions
from components.evaluation.metrics.judge_axes import AXES
from components.experience.step_judgements import Judgement
from components.language.endpoint.json_endpoint import Endpoint

GOOD = Judgement(
    transition=make_transition(),
    predicted="At shelf 1: nothing.",
    parsed=True,
    exact=True,
    claims=4,
    right=4,
    truths=4,
    contradicted=0,
    incoherent=False,
    changed=2,
    revealing=False,
    unseen=False,
    refused=False,
    malformed=False,
    reward=0.0,
    predicted_reward=0.0,
    predicted_changed=2,
)
FALSE_SUCCESS = replace(GOOD, predicted_reward=1.0)
TASKS = [make_task(), make_task(1)]


def verdict(consistency=2, diversity=2, informativeness=2, hallucination=2):
    scores = {"causal_consistency": consistency, "diversity": diversity, "informativeness": informativeness}
    return Reply({"rubric_scores": {**scores, "hallucination": hallucination}})


def at(step, judgement=GOOD, **changes):
    return replace(judgement, transition=make_transition(step, **changes))


@pytest.fixture
def ask(tmp_path):
    def run(server, judgements, **options):
        config = server.config(corrections=options.pop("corrections", 1), concurrency=1)
        with Endpoint(config, tmp_path / "answers") as endpoint:
            return *judge_transitions(endpoint, judgements, TASKS, **options), endpoint.usage

    return run


def test_the_judge_sees_the_prediction_and_not_the_real_next_state(ask):
    judgement = replace(FALSE_SUCCESS, transition=make_transition(next_state="the real next state"))
    with ChatServer(verdict()) as server:
        ask(server, [judgement])
    system, user = server.requests[0]["messages"]
    assert json.loads(user["content"]) == {
        "task": "put a mug in desk",
        "state": "At shelf 0: nothing. Holding nothing.",
        "action": "go to shelf 1",
        "predicted_next_state": "At shelf 1: nothing.",
        "predicted_outcome": "the task is solved",
    }
    for words in (
        "causal_consistency",
        "diversity",
        "informativeness",
        "hallucination",
        "rubric_scores",
        "no instructions",
    ):
        assert words in system["content"]


def test_metrics_are_mean_scores_and_each_record_names_judge_and_prompt(ask):
    with ChatServer(verdict(), verdict(1, 0, 2, 0)) as server:
        metrics, records, usage = ask(server, [at(0), at(1)])
    assert [metrics[f"judge/{axis}"].value for axis in AXES] == [1.5, 1.0, 2.0, 1.0]
    assert all(metrics[f"judge/{axis}"].n == 2 for axis in AXES)
    assert [list(record.scores.values()) for record in records] == [[2, 2, 2, 2], [1, 0, 2, 0]]
    first = records[0].to_json()
    assert (first["model"], first["version"], first["task_id"], first["episode_id"], first["step"]) == (
        "m",
        VERSION,
        "t0",
        "e0",
        0,
    )
    assert list(first["scores"]) == list(first["rules"]) == list(AXES)
    assert metrics["judge/unjudged_rate"].value == 0 and usage.calls == 2


def test_agreement_compares_the_judges_best_scores_with_the_rules(ask):
    """Of ten false successes the judge detects eight; of ten right predictions it rejects one."""

    def answer(body):
        prediction = json.loads(body["messages"][1]["content"])
        number = int(prediction["action"].split()[-1])
        is_detected = "is solved" in prediction["predicted_outcome"] and number <= 8
        return verdict(hallucination=0 if is_detected or number == 20 else 2)

    judgements = [at(n, FALSE_SUCCESS if n < 10 else GOOD) for n in range(20)]
    with ChatServer(answer=answer) as server:
        metrics, records, _ = ask(server, judgements)
    agreement = metrics["judge/agreement/hallucination"]
    assert (agreement.value, agreement.n) == (0.85, 20)
    assert 0.6 < agreement.low < 0.7 < 0.9 < agreement.high < 1
    kappa = metrics["judge/agreement_kappa/hallucination"]
    assert kappa.value == pytest.approx(0.7) and kappa.n == 20 and kappa.low < 0.7 < kappa.high
    assert metrics["judge/agreement/consistency"].value == 1
    assert (
        metrics["judge/agreement_kappa/consistency"].low,
        metrics["judge/agreement_kappa/consistency"].high,
    ) == (-1, 1)
    assert [record.rules["hallucination"] for record in records] == [0] * 10 + [2] * 10


def test_an_unparsable_prediction_scores_zero_and_is_not_asked_about(ask):
    with ChatServer(verdict()) as server:
        metrics, records, _ = ask(
            server, [at(0, replace(GOOD, parsed=False, exact=False, predicted="")), at(1)]
        )
    assert len(server.requests) == 1
    assert [record.asked for record in records] == [False, True] and set(records[0].scores.values()) == {0}
    assert (metrics["judge/consistency"].value, metrics["judge/consistency"].n) == (1.0, 2)
    assert metrics["judge/agreement/consistency"].n == 1


@pytest.mark.parametrize(
    ("invalid", "problem"),
    [
        (verdict(3), "causal_consistency: Input should be less than or equal to 2"),
        (verdict(-1), "greater than or equal to 0"),
        (verdict(True), "valid integer"),
        (verdict("2"), "valid integer"),
        (verdict(1.5), "valid integer"),
        (Reply({"rubric_scores": {"causal_consistency": 1}}), "diversity: Field required"),
        (Reply({"scores": {}}), "rubric_scores: Field required"),
    ],
)
def test_an_invalid_answer_is_asked_again(ask, invalid, problem):
    with ChatServer(invalid, verdict()) as server:
        _, records, usage = ask(server, [GOOD])
    assert problem in server.requests[1]["messages"][-1]["content"]
    assert set(records[0].scores.values()) == {2} and usage.rejected == 1


def test_cached_and_equal_questions_are_asked_once(ask):
    judgements = [at(0), at(0, episode="e1"), at(1)]
    with ChatServer(verdict()) as server:
        first, _, usage = ask(server, judgements)
        assert (len(server.requests), usage.calls) == (2, 2)
        second, records, usage = ask(server, judgements)
        assert len(server.requests) == 2 and second == first
        assert [record.episode_id for record in records] == ["e0", "e1", "e0"]
        assert (usage.calls, usage.cached_calls, usage.prompt_tokens) == (0, 2, 0)


def test_transitions_without_usable_answer_are_excluded_up_to_a_share(ask):
    def answer(body):
        return Reply("fine") if "go to shelf 2" in body["messages"][1]["content"] else verdict()

    judgements = [at(0), at(1), at(2), at(3)]
    with ChatServer(answer=answer) as server:
        metrics, records, _ = ask(server, judgements, max_unjudged_share=0.25)
        assert [record.step for record in records] == [0, 2, 3]
        assert (metrics["judge/unjudged_rate"].value, metrics["judge/unjudged_rate"].n) == (0.25, 4)
        assert metrics["judge/consistency"].n == metrics["judge/agreement/consistency"].n == 3
        with pytest.raises(EndpointError, match="1 of 4 questions have no usable answer"):
            ask(server, judgements, max_unjudged_share=0.2)
    with (
        ChatServer(Reply("fine")) as server,
        pytest.raises(EndpointError, match="None of 4 transitions has a usable answer"),
    ):
        ask(server, [at(n, state="other") for n in range(4)], max_unjudged_share=1.0)


def test_an_unknown_task_is_refused_and_no_transition_is_allowed(ask):
    with ChatServer(verdict()) as server:
        with pytest.raises(DataError, match=r"The task t9 .* not among the 2 given tasks"):
            ask(server, [at(0, task="t9")])
        metrics, records, _ = ask(server, [])
        assert not server.requests and not records
        assert (metrics["judge/diversity"].n, metrics["judge/agreement/diversity"].n) == (0, 0)
