"""Calibration of hand-made judgements, against sklearn where it computes the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from builders import make_transition
from sklearn.metrics import roc_auc_score

from components.evaluation.metrics.calibration import (
    area_under_roc,
    calibration_metrics,
    is_right,
    reliability,
)
from components.experience.step_judgements import Judgement


def judgement(confidence, exact, *, task="t0", reward=0.0, predicted_reward=0.0):
    return Judgement(
        *(make_transition(task=task), "s", True, exact, 1, int(exact), 1, 0, False, 1, False, False, False),
        *(False, reward, predicted_reward),
        confidence=confidence,
    )


def random_judgements(count=300, seed=0):
    rng = random.Random(seed)
    return [
        judgement(round(rng.random(), 1), rng.random() < 0.6, task=f"t{number % 20}")
        for number in range(count)
    ]


def test_a_wrong_reward_is_a_wrong_answer():
    assert is_right(judgement(1, True)) and not is_right(judgement(1, False))
    assert not is_right(judgement(1, True, predicted_reward=1.0))
    assert is_right(judgement(1, True, reward=1.0, predicted_reward=1.0))


def test_the_area_is_that_of_sklearn_with_ties():
    judgements = random_judgements()
    expected = roc_auc_score([is_right(one) for one in judgements], [one.confidence for one in judgements])
    assert area_under_roc(judgements) == pytest.approx(expected)
    estimate = calibration_metrics(judgements)["fidelity/calibration/auroc"]
    assert estimate.value == pytest.approx(expected)
    assert estimate.low < 0.5 < estimate.high, "the confidence of these says nothing"


def test_a_likelihood_that_tells_right_from_wrong_has_area_one_and_the_contrary_zero():
    judgements = [judgement(0.9, True), judgement(0.8, True), judgement(0.2, False, task="t1")]
    assert area_under_roc(judgements) == 1
    assert area_under_roc([replace(one, confidence=1 - one.confidence) for one in judgements]) == 0


def test_without_wrong_answers_there_is_no_area():
    metrics = calibration_metrics([judgement(0.9, True), judgement(0.7, True)])
    assert "fidelity/calibration/auroc" not in metrics
    assert metrics["fidelity/calibration/error"].value == pytest.approx(0.2)


def test_bins_have_equal_sizes_and_the_error_is_their_mean_gap():
    sure = [judgement(0.95, number < 9) for number in range(10)]
    unsure = [judgement(0.25, number < 5) for number in range(10)]
    bins = reliability([*sure, *unsure])
    assert [entry["n"] for entry in bins] == [2] * 10
    assert [entry["confidence"] for entry in bins] == pytest.approx([0.25] * 5 + [0.95] * 5)
    expected = (2 * (0.75 + 0.75 + 0.25 + 0.25 + 0.25) + 2 * (4 * 0.05 + 0.45)) / 20
    error = calibration_metrics([*sure, *unsure])["fidelity/calibration/error"]
    assert error.value == pytest.approx(expected) and error.n == 20


def test_answers_without_a_confidence_have_no_metric():
    assert calibration_metrics([judgement(float("nan"), True)]) == {}
    assert reliability([]) == []
