"""Metrics of a reproduced run get a verdict; machine-dependent metrics are excluded."""

from __future__ import annotations

import pytest

from components.evaluation.metrics.reproduction import left_out, verdicts


def entry(value, n=10):
    return {"value": value, "n": n, "low": value, "high": value}


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
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
def test_each_metric_gets_its_verdict(first, second, verdict):
    sides = [{} if side is None else {"a": side} for side in (first, second)]
    assert [compared.verdict for compared in verdicts(*sides)] == [verdict]


def test_machine_dependent_metrics_are_excluded_with_a_reason():
    names = (
        "fidelity/steps_per_second",
        "synthetic_rl/seconds",
        "cost/endpoint_calls",
        "cost/check_interactions",
        "loss",
    )
    first = {name: entry(1.0) for name in names}
    assert [compared.name for compared in verdicts(first, {})] == ["loss"]
    reasons = left_out(first, {"evaluate/champion/success_rate": entry(0.5)})
    assert [*reasons] == [*names[:-1], "evaluate/champion/success_rate"] and "champion" in reasons[
        "cost/check_interactions"
    ]
