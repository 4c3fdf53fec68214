"""Normalised match and token F1 of hand-made predictions."""

from __future__ import annotations

import pytest
from builders import make_episode, make_task

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.evaluation.metrics.text_agreement import text_metrics
from components.experience.formats.world_format import Answer
from components.experience.state_comparison import normalised_words
from components.experience.step_judgements import judge_answer


def judged(predicted, real):
    """The judgement of one predicted state; `predicted` is None for an answer that cannot be parsed."""
    adapter = make_adapter(EnvironmentConfig(name="recorded"))
    episode = make_episode(make_task(), ("look", real))
    answer = None if predicted is None else Answer("", predicted, 0.0, False)
    return judge_answer(adapter, episode.up_to(0), episode.steps[0], answer)


def test_case_punctuation_and_articles_do_not_count():
    assert normalised_words("The lamp, (a small one) is ON.") == ["lamp", "small", "one", "is", "on"]


def test_a_word_counts_as_often_as_both_sides_have_it():
    metrics = text_metrics([judged("mug mug desk", "The mug, desk, desk!"), judged("Lamp on", "lamp on.")])
    assert metrics["fidelity/normalised_match"].value == 0.5
    assert metrics["fidelity/token_f1"].value == pytest.approx(2 * (2 + 2) / (3 + 3 + 2 + 2))
    assert metrics["fidelity/token_f1"].n == 10


def test_an_answer_that_cannot_be_parsed_matches_nothing():
    metrics = text_metrics([judged(None, "a lamp")], "/determined")
    assert metrics["fidelity/normalised_match/determined"].value == 0
    assert metrics["fidelity/token_f1/determined"].value == 0


def test_judgements_of_earlier_versions_have_no_text_metrics():
    assert text_metrics([]) == {}
