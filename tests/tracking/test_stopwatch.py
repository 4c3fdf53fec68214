"""The wall time of work that is killed and resumed."""

from __future__ import annotations

import time

import pytest

from components.tracking.stage_store import stopwatch
from components.tracking.stage_store.stopwatch import FILE_NAME, Stopwatch


def test_attempts_add_up_and_the_time_between_them_does_not_count(tmp_path):
    with pytest.raises(KeyboardInterrupt), Stopwatch(tmp_path):
        time.sleep(0.2)
        raise KeyboardInterrupt
    assert 0.2 <= float((tmp_path / FILE_NAME).read_text()) < 5
    time.sleep(0.3)
    (tmp_path / FILE_NAME).write_text("100.0")
    with Stopwatch(tmp_path) as watch:
        time.sleep(0.2)
    assert 100.2 <= watch.stop() < 105 and list(tmp_path.iterdir()) == []


def test_a_killed_attempt_leaves_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(stopwatch, "SAVE_SECONDS", 0.05)
    watch = Stopwatch(tmp_path)
    watch.__enter__()
    time.sleep(0.3)
    assert float((tmp_path / FILE_NAME).read_text()) >= 0.1, "written while the work goes on"
    watch.__exit__(None, None, None)


@pytest.mark.parametrize("text", ["", "long", "-5"])
def test_an_unreadable_time_counts_as_zero(tmp_path, text):
    (tmp_path / FILE_NAME).write_text(text)
    assert Stopwatch(tmp_path).seconds < 5
