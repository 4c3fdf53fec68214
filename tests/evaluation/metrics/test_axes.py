"""The four rule-based axes: each rule on hand-written judgements, all rules on real transitions.

Real transitions are judged with correct and with deliberately wrong predictions.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import make_transition

from components.evaluation.metrics.judge_axes import AXES, axes_metrics, axis_scores
from components.experience.formats.world_format import Answer
from components.experience.step_judgements import Judgement, judge_answer

RIGHT = Judgement(
    transition=make_transition(),
    predicted="s",
    parsed=True,
    exact=False,
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
REVEALED = replace(RIGHT, revealing=True, claims=4, right=2, contradicted=2)


def scores(judgement=RIGHT, **changes):
    scores_by_axis = axis_scores(replace(judgement, **changes))
    return [scores_by_axis[axis] for axis in AXES]


def test_a_right_prediction_scores_best_on_all_axes():
    assert scores() == scores(exact=True) == [2, 2, 2, 2]
    assert scores(REVEALED) == [2, 2, 2, 2]
    assert scores(reward=1.0, predicted_reward=1.0) == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parsed": False, "claims": 0, "right": 0}, [0, 0, 0, 0]),
        ({"incoherent": True}, [0, 0, 2, 1]),
        ({"claims": 3, "right": 3}, [1, 2, 1, 2]),
        ({"claims": 2, "right": 2, "predicted_changed": 0}, [1, 0, 1, 2]),
        ({"claims": 4, "right": 1, "contradicted": 1}, [1, 2, 0, 1]),
        ({"contradicted": 1}, [1, 2, 2, 1]),
        ({"same_event": False}, [1, 2, 2, 1]),
        ({"changed": 5, "predicted_changed": 2}, [2, 1, 2, 2]),
        ({"changed": 0, "predicted_changed": 0}, [2, 2, 2, 2]),
        ({"changed": 0, "predicted_changed": 1, "contradicted": 1, "right": 3}, [1, 0, 1, 0]),
        ({"predicted_reward": 1.0}, [2, 2, 2, 0]),
        ({"reward": 1.0}, [2, 2, 2, 1]),
        ({"exact": True, "predicted_reward": 1.0}, [2, 2, 2, 0]),
        ({"truths": 0, "right": 0, "claims": 0}, [2, 2, 0, 2]),
    ],
    ids=[
        "unparsable",
        "incoherent",
        "one missing",
        "half missing",
        "wrong",
        "denied",
        "event",
        "fewer changes",
        "both stay",
        "change where reality stays",
        "false success",
        "missed success",
        "exact false success",
        "no facts",
    ],
)
def test_each_error_lowers_its_axes(changes, expected):
    assert scores(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"contradicted": 3, "right": 1}, [2, 2, 2, 2]),
        ({"contradicted_sure": 1}, [1, 2, 2, 1]),
        ({"same_event": False}, [1, 2, 2, 1]),
        ({"incoherent": True}, [0, 0, 1, 1]),
        ({"claims": 2, "truths": 9, "changed": 9, "predicted_changed": 1}, [2, 1, 1, 2]),
        ({"claims": 2, "right": 2, "contradicted": 0, "predicted_changed": 0}, [1, 0, 0, 2]),
    ],
    ids=["different contents", "wrong place", "event", "incoherent", "sparse", "nothing new"],
)
def test_on_a_revealing_step_a_consistent_invention_is_no_error(changes, expected):
    assert scores(REVEALED, **changes) == expected


def test_metrics_are_means_with_n_and_an_interval_inside_the_scale():
    metrics = axes_metrics([RIGHT] * 9 + [replace(RIGHT, parsed=False)])
    assert list(metrics) == [f"axes/{axis}" for axis in AXES]
    for estimate in metrics.values():
        assert (estimate.value, estimate.n, estimate.high) == (1.8, 10, 2.0) and 1.3 < estimate.low < 1.5
    assert {(m.value, m.n, m.low, m.high) for m in axes_metrics([]).values()} == {(0.0, 0, 0.0, 2.0)}


def judge_predictions(adapter, played, predict):
    """Return judgements of all real transitions; `predict(transition)` is the prediction (state, reward)."""
    judgements = []
    for episode in (e for episodes in played.values() for e in episodes):
        for step in episode.steps:
            state, reward = predict(step)
            judgements.append(
                judge_answer(adapter, episode.up_to(step.step), step, Answer("", state, reward, reward > 0.5))
            )
    return judgements


def test_the_real_next_state_scores_best_on_all_axes(adapter, played):
    judgements = judge_predictions(adapter, played, lambda step: (step.next_state, step.reward))
    assert len(judgements) > 500
    imperfect = [j for j in judgements if set(axis_scores(j).values()) != {2}]
    assert not imperfect
    assert all(
        j.same_event and not j.contradicted_sure and j.predicted_changed == j.changed for j in judgements
    )


def test_a_dream_that_never_changes_its_state_scores_zero_diversity(adapter, played):
    judgements = judge_predictions(adapter, played, lambda step: (step.state, 0.0))
    changed_steps = [
        axis_scores(j) for j in judgements if j.changed and j.transition.state != j.transition.next_state
    ]
    assert len(changed_steps) > 200 and all(
        row["diversity"] == 0 and row["consistency"] < 2 and row["informativeness"] < 2
        for row in changed_steps
    )
    assert all(axis_scores(j)["hallucination"] < 2 for j in judgements if j.reward > 0.5)


def test_a_dream_that_always_succeeds_hallucinates(adapter, played):
    judgements = judge_predictions(adapter, played, lambda step: (step.next_state, 1.0))
    assert all(axis_scores(j)["hallucination"] == (2 if j.reward > 0.5 else 0) for j in judgements)


def test_a_dream_that_ignores_failures_hallucinates(adapter, played):
    def predict_success(step):
        is_failure = step.next_state.startswith("Nothing happens")
        return ("Took mug 9 from desk 9. Holding mug 9." if is_failure else step.next_state), step.reward

    failures = [
        j
        for j in judge_predictions(adapter, played, predict_success)
        if j.transition.next_state.startswith("Nothing happens")
    ]
    assert len(failures) > 100 and all(axis_scores(j)["hallucination"] == 0 for j in failures)


def test_a_wrong_place_is_an_error_even_on_a_revealing_step(adapter, played):
    def predict_wrong_place(step):
        return step.next_state.replace(step.action.removeprefix("go to "), "shelf 77"), step.reward

    judgements = [
        j
        for j in judge_predictions(adapter, played, predict_wrong_place)
        if j.revealing and j.transition.action.startswith("go to ")
    ]
    assert len(judgements) > 50 and all(j.contradicted_sure for j in judgements)
    assert all(axis_scores(j)["consistency"] < 2 and axis_scores(j)["hallucination"] < 2 for j in judgements)


def test_wrong_contents_are_an_error_only_if_the_history_determined_them(adapter, played):
    def predict_wrong_contents(step):
        return re.sub(
            r"^(At .+?: (?:open, )?)(?!closed|open, ).+?(\. Holding .*)$",
            r"\1pen 99, vase 77\2",
            step.next_state,
        ), step.reward

    swapped = [
        j
        for j in judge_predictions(adapter, played, predict_wrong_contents)
        if "pen 99, vase 77" in j.predicted
    ]
    revealing_rows = [axis_scores(j) for j in swapped if j.revealing and not j.incoherent]
    determined_rows = [axis_scores(j) for j in swapped if not j.revealing]
    assert len(revealing_rows) > 100 and all(
        row["consistency"] == row["hallucination"] == 2 for row in revealing_rows
    )
    assert len(determined_rows) > 50 and all(
        row["consistency"] == 0 for row in determined_rows
    )  # the history already shows the contents
