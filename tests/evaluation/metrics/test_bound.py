"""The bound of Theorem 1: formula by hand, interval ends, refused discounts."""

from __future__ import annotations

import pytest
from test_fidelity import make_judgement

from components.evaluation.metrics.bound import bound_metrics


def test_the_bound_equals_the_formula_by_hand():
    """Two of ten steps have a different text and one a different reward; the discount is 0.5.

    The bound is 0.1 / 0.5 + 2 * 0.5 * 0.2 / 0.25.
    """
    steps = [make_judgement(exact=n > 1, predicted_reward=float(n == 0)) for n in range(10)]
    metrics = bound_metrics(steps, discount=0.5, max_steps=3)
    assert {name: round(estimate.value, 6) for name, estimate in metrics.items()} == {
        "bound/reward_error": 0.1,
        "bound/transition_divergence": 0.2,
        "bound/value": 1.0,
        "bound/value_horizon": round(1 - 0.8**3, 6),
    }
    assert all(e.n == 10 and e.low <= e.value <= e.high for e in metrics.values())
    error, divergence = metrics["bound/reward_error"], metrics["bound/transition_divergence"]
    assert metrics["bound/value"].low == pytest.approx(error.low / 0.5 + divergence.low / 0.25)


def test_a_perfect_model_has_a_bound_of_zero_with_a_positive_upper_end():
    metrics = bound_metrics([make_judgement() for _ in range(50)], discount=0.95, max_steps=20)
    assert all(m.value == 0 == m.low and m.high > 0 for m in metrics.values())


def test_an_unparsable_answer_counts_as_a_wrong_transition():
    metrics = bound_metrics([make_judgement(parsed=False, exact=False)], discount=0.0, max_steps=1)
    assert metrics["bound/transition_divergence"].value == 1 and metrics["bound/value"].value == 0


def test_a_discount_of_one_is_refused():
    with pytest.raises(ValueError, match="expected 0 <= discount < 1"):
        bound_metrics([], discount=1.0, max_steps=1)
