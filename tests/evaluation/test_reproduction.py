"""Whether a metric came back: equal, near, different, missing; what tells the machine's speed is not asked."""

from __future__ import annotations

import pytest

from components.evaluation.reproduction import verdicts


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


def test_speed_and_what_was_cached_are_not_asked():
    names = ("fidelity/steps_per_second", "synthetic_rl/seconds", "cost/endpoint_calls", "loss")
    assert [v.name for v in verdicts({name: entry(1.0) for name in names}, {})] == ["loss"]
