"""The four axes from facts: each rule on judgements written by hand, and all of them on real transitions and
forged predictions.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import make_transition

from components.evaluation.metrics.judge_axes import AXES, axes_metrics, axis_scores
from components.experience.prompts import Answer
from components.experience.step_judgements import Judgement, judge

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
    found = axis_scores(replace(judgement, **changes))
    return [found[axis] for axis in AXES]


def test_a_right_prediction_is_best_on_all_axes():
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
        "unread",
        "incoherent",
        "one missing",
        "half told",
        "wrong",
        "denied",
        "event",
        "moves less",
        "both stay",
        "moves alone",
        "false success",
        "missed success",
        "exact false success",
        "no facts",
    ],
)
def test_each_fault_lowers_its_axes(changes, expected):
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
    ids=["other things", "other place", "event", "incoherent", "sparse", "nothing new"],
)
def test_where_something_is_revealed_an_invention_that_fits_is_no_fault(changes, expected):
    assert scores(REVEALED, **changes) == expected


def test_metrics_are_means_with_n_and_an_interval_inside_the_scale():
    metrics = axes_metrics([RIGHT] * 9 + [replace(RIGHT, parsed=False)])
    assert list(metrics) == [f"axes/{axis}" for axis in AXES]
    for estimate in metrics.values():
        assert (estimate.value, estimate.n, estimate.high) == (1.8, 10, 2.0) and 1.3 < estimate.low < 1.5
    assert {(m.value, m.n, m.low, m.high) for m in axes_metrics([]).values()} == {(0.0, 0, 0.0, 2.0)}


def judged(adapter, played, forge):
    """Judgements of all real transitions, where `forge(transition)` is what the model says: (state,
    reward).
    """
    found = []
    for episode in (e for episodes in played.values() for e in episodes):
        for step in episode.steps:
            state, reward = forge(step)
            found.append(
                judge(adapter, episode.up_to(step.step), step, Answer("", state, reward, reward > 0.5))
            )
    return found


def test_the_real_environment_itself_is_best_on_all_axes(adapter, played):
    found = judged(adapter, played, lambda step: (step.next_state, step.reward))
    assert len(found) > 500
    worse = [j for j in found if set(axis_scores(j).values()) != {2}]
    assert not worse
    assert all(j.same_event and not j.contradicted_sure and j.predicted_changed == j.changed for j in found)


def test_a_dream_in_which_nothing_ever_happens_stands_still_and_tells_no_news(adapter, played):
    found = judged(adapter, played, lambda step: (step.state, 0.0))
    moved = [axis_scores(j) for j in found if j.changed and j.transition.state != j.transition.next_state]
    assert len(moved) > 200 and all(
        row["diversity"] == 0 and row["consistency"] < 2 and row["informativeness"] < 2 for row in moved
    )
    assert all(axis_scores(j)["hallucination"] < 2 for j in found if j.reward > 0.5)


def test_a_dream_that_always_succeeds_hallucinates(adapter, played):
    found = judged(adapter, played, lambda step: (step.next_state, 1.0))
    assert all(axis_scores(j)["hallucination"] == (2 if j.reward > 0.5 else 0) for j in found)


def test_a_dream_that_ignores_failures_hallucinates(adapter, played):
    def ignore(step):
        failed = step.next_state.startswith("Nothing happens")
        return ("Took mug 9 from desk 9. Holding mug 9." if failed else step.next_state), step.reward

    failures = [
        j for j in judged(adapter, played, ignore) if j.transition.next_state.startswith("Nothing happens")
    ]
    assert len(failures) > 100 and all(axis_scores(j)["hallucination"] == 0 for j in failures)


def test_the_wrong_place_is_a_fault_even_where_its_contents_could_not_be_known(adapter, played):
    def elsewhere(step):
        return step.next_state.replace(step.action.removeprefix("go to "), "shelf 77"), step.reward

    found = [
        j
        for j in judged(adapter, played, elsewhere)
        if j.revealing and j.transition.action.startswith("go to ")
    ]
    assert len(found) > 50 and all(j.contradicted_sure for j in found)
    assert all(axis_scores(j)["consistency"] < 2 and axis_scores(j)["hallucination"] < 2 for j in found)


def test_other_contents_than_the_real_ones_are_a_fault_only_where_they_were_known(adapter, played):
    def swap(step):
        return re.sub(
            r"^(At .+?: (?:open, )?)(?!closed|open, ).+?(\. Holding .*)$",
            r"\1pen 99, vase 77\2",
            step.next_state,
        ), step.reward

    swapped = [j for j in judged(adapter, played, swap) if "pen 99, vase 77" in j.predicted]
    new = [axis_scores(j) for j in swapped if j.revealing and not j.incoherent]
    known = [axis_scores(j) for j in swapped if not j.revealing]
    assert len(new) > 100 and all(row["consistency"] == row["hallucination"] == 2 for row in new)
    assert len(known) > 50 and all(
        row["consistency"] == 0 for row in known
    )  # its own history says what lies there
