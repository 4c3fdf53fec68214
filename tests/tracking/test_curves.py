"""Curves of a stage: points reach MLflow once, while the stage runs, and can be read from its directory."""

from __future__ import annotations

import math
import time

import pytest

from components.errors import ServiceUnreachable
from components.tracking import curve_file
from components.tracking.curve_file import CURVES, Curves, read_curves


class Sent(list):
    """Stands in for MLflow: stores the points that it receives; refuses them while `is_down`."""

    is_down = False

    def __call__(self, points):
        if self.is_down:
            raise ServiceUnreachable("MLflow does not answer.")
        self += points


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch):
    monkeypatch.setattr(curve_file, "MIN_PAUSE_SECONDS", 0.05)


def wait_for(sent, count):
    until = time.monotonic() + 20
    while len(sent) < count and time.monotonic() < until:
        time.sleep(0.01)
    return len(sent)


def test_points_are_sent_while_the_stage_runs_with_the_time_of_each(tmp_path):
    sent, before = Sent(), time.time() * 1000
    with Curves(tmp_path, sent) as curves:
        curves.add(0, {"loss": 2.0, "rate": 0.1})
        assert wait_for(sent, 2) == 2, "the stage is still running"
        time.sleep(0.02)
        curves.add(1, {"loss": 1.0})
    assert [(p.name, p.step, p.value) for p in sent] == [("loss", 0, 2.0), ("rate", 0, 0.1), ("loss", 1, 1.0)]
    times = [point.time for point in sent]
    assert before - 1 <= times[0] == times[1] < times[2] <= time.time() * 1000
    assert read_curves(tmp_path) == {"loss": [sent[0], sent[2]], "rate": [sent[1]]}
    assert curves.names == {"loss", "rate"}


def test_a_value_that_is_not_finite_is_left_out(tmp_path):
    sent = Sent()
    with Curves(tmp_path, sent) as curves:
        curves.add(0, {"entropy": math.nan, "loss": math.inf})
        curves.add(1, {"entropy": 0.5})
    assert [(p.name, p.step) for p in sent] == [("entropy", 1)]


def test_a_resumed_stage_sends_the_earlier_points_once_and_continues(tmp_path):
    """It was killed after step 4 with a checkpoint of step 2. The last line of the file is incomplete."""
    killed = Curves(tmp_path, Sent())
    for step in range(5):
        killed.add(step, {"loss": float(step), "success": step / 10})
    killed._ended.set()
    with (tmp_path / CURVES).open("a") as file:
        file.write('[5, 17000000, {"lo')
    earlier = read_curves(tmp_path)
    sent = Sent()
    with Curves(tmp_path, sent) as resumed:
        resumed.add(3, {"loss": 30.0})
        resumed.add(4, {"loss": 40.0})
    loss = [(p.step, p.value, p.time) for p in sent if p.name == "loss"]
    assert [(step, value) for step, value, _ in loss] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]
    assert [moment for *_, moment in loss[:3]] == [point.time for point in earlier["loss"][:3]], (
        "the original times"
    )
    assert [(p.step, p.value) for p in sent if p.name == "success"] == [
        (step, step / 10) for step in range(5)
    ]
    assert read_curves(tmp_path)["loss"] == [p for p in sent if p.name == "loss"]


def test_no_point_is_lost_in_an_outage(tmp_path, caplog):
    sent = Sent()
    sent.is_down = True
    with Curves(tmp_path, sent) as curves:
        curves.add(0, {"loss": 1.0})
        time.sleep(0.5)
        curves.add(1, {"loss": 0.5})
        sent.is_down = False
    assert [p.step for p in sent] == [0, 1]
    assert sum("sent later" in record.message for record in caplog.records) == 1


def test_an_outage_at_the_end_fails_the_stage_unless_it_has_failed_already(tmp_path):
    sent = Sent()
    sent.is_down = True
    with pytest.raises(ServiceUnreachable), Curves(tmp_path, sent) as curves:
        curves.add(0, {"loss": 1.0})
    with pytest.raises(ValueError, match="own"), Curves(tmp_path, sent) as curves:
        curves.add(0, {"loss": 1.0})
        raise ValueError("own")


def test_sending_takes_one_percent_of_the_time(tmp_path, monkeypatch):
    """A store that takes 20 ms per batch gets at most one batch every 2 s."""
    calls = []

    def slow(points):
        calls.append(time.monotonic())
        time.sleep(0.02)

    with Curves(tmp_path, slow) as curves:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            curves.add(len(calls), {"loss": 1.0})
            time.sleep(0.01)
    assert len(calls) <= 3


def test_a_directory_without_the_file_has_no_curves(tmp_path):
    assert read_curves(tmp_path) == {}
