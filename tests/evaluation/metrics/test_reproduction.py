"""Whether a metric came back: equal, near, different, missing; what tells the machine's speed is not
asked.
"""

from __future__ import annotations

import pytest

from components.evaluation.metrics.reproduction import left_out, verdicts


def entry(value, n=10):
    return {"value": value, "n": n, "low": value, "high": value}


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (entry(0.5), entry(0.5), "equal"),
        (entry(0.5), entry(0.5 + 1e-8), "within tolerance"),
        (entry(0.5), entry(0.5001), "different"),
        (entry(0.5), entry(0.5, n=11), "different"),
        (entry(None), entry(None), "equal"),
        (entry(None), entry(0.5), "different"),
        (entry(0.5), None, "missing"),
        (None, entry(0.5), "missing"),
    ],
)
def test_verdicts(first, second, wanted):
    sides = [{} if side is None else {"a": side} for side in (first, second)]
    assert [v.verdict for v in verdicts(*sides)] == [wanted]


def test_what_depends_on_the_place_is_not_compared_and_said():
    names = (
        "fidelity/steps_per_second",
        "synthetic_rl/seconds",
        "cost/endpoint_calls",
        "cost/check_interactions",
        "loss",
    )
    first = {name: entry(1.0) for name in names}
    assert [v.name for v in verdicts(first, {})] == ["loss"]
    reasons = left_out(first, {"evaluate/champion/success_rate": entry(0.5)})
    assert [*reasons] == [*names[:-1], "evaluate/champion/success_rate"] and "champion" in reasons[
        "cost/check_interactions"
    ]
