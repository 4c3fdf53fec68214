"""Normalised match and token F1 of hand-made predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_transition
from test_calibration import judgement

from components.evaluation.metrics.text_agreement import normalised_tokens, text_metrics


def predicted(text, real, *, parsed=True):
    transition = make_transition(next_state=real)
    return replace(judgement(1, False), predicted=text, transition=transition, parsed=parsed)


def test_case_punctuation_and_articles_do_not_count():
    assert normalised_tokens("The lamp, (a small one) is ON.") == ["lamp", "small", "one", "is", "on"]


def test_a_token_counts_as_often_as_both_sides_have_it():
    metrics = text_metrics(
        [predicted("mug mug desk", "The mug, desk, desk!"), predicted("Lamp on", "lamp on.")]
    )
    assert metrics["fidelity/normalised_match"].value == 0.5
    assert metrics["fidelity/token_f1"].value == pytest.approx(2 * (2 + 2) / (3 + 3 + 2 + 2))
    assert metrics["fidelity/token_f1"].n == 10


def test_an_answer_that_cannot_be_parsed_matches_nothing():
    metrics = text_metrics([predicted("", "...", parsed=False)], "/determined")
    assert metrics["fidelity/normalised_match/determined"].value == 0
    assert metrics["fidelity/token_f1/determined"].n == 0
