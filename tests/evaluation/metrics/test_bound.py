"""Theorem 1 with numbers put in: the formula by hand, its ends, and what it refuses."""

from __future__ import annotations

import pytest
from test_fidelity import make_judgement

from components.evaluation.metrics.bound import bound_metrics


def test_the_formula_by_hand():
    """Of ten steps two have another text and one another reward; discount 0.5: 0.1 / 0.5 + 2 * 0.5 * 0.2 /
    0.25.
    """
    steps = [make_judgement(exact=n > 1, predicted_reward=float(n == 0)) for n in range(10)]
    found = bound_metrics(steps, discount=0.5, max_steps=3)
    assert {name: round(estimate.value, 6) for name, estimate in found.items()} == {
        "bound/reward_error": 0.1,
        "bound/transition_divergence": 0.2,
        "bound/value": 1.0,
        "bound/value_horizon": round(1 - 0.8**3, 6),
    }
    assert all(e.n == 10 and e.low <= e.value <= e.high for e in found.values())
    error, divergence = found["bound/reward_error"], found["bound/transition_divergence"]
    assert found["bound/value"].low == pytest.approx(error.low / 0.5 + divergence.low / 0.25)


def test_a_perfect_model_has_a_bound_of_nothing_and_an_upper_end():
    found = bound_metrics([make_judgement() for _ in range(50)], discount=0.95, max_steps=20)
    assert all(found[name].value == 0 == found[name].low and found[name].high > 0 for name in found)


def test_an_answer_that_cannot_be_read_is_a_wrong_transition():
    found = bound_metrics([make_judgement(parsed=False, exact=False)], discount=0.0, max_steps=1)
    assert found["bound/transition_divergence"].value == 1 and found["bound/value"].value == 0


def test_a_discount_of_one_has_no_bound():
    with pytest.raises(ValueError, match="expected 0 <= discount < 1"):
        bound_metrics([], discount=1.0, max_steps=1)
