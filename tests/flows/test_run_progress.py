"""A run prints its progress: steps in plain words and the time left, without Prefect's log lines."""

from __future__ import annotations

import io
import logging

import pytest
from prefect.logging.configuration import setup_logging
from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console

from flows.printing import run_progress as module
from flows.printing.run_progress import RunProgress, expected_seconds, run_progress

EXPECTED = {"validate": 10.0, "experience_model": 100.0, "clone": 200.0}


def make_progress():
    out = io.StringIO()
    return RunProgress(Console(file=out, width=200), EXPECTED), out


def test_a_step_is_announced_in_words_with_the_time_left(monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)
    progress, out = make_progress()
    progress.receive("validate: started")
    assert "Step 1 of 12: checking the offline data. About 5 min 10 s left." in out.getvalue()


def test_the_time_left_follows_the_speed_of_finished_stages(monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)
    progress, _ = make_progress()
    assert progress.seconds_left() == 310.0
    progress.receive("experience_model: done in 200 s")
    assert progress.seconds_left() == 2 * (10 + 200)
    progress.receive("validate: reused, made in 9 s")
    assert progress.seconds_left() == 2 * 200, "a reused stage does not change the estimated speed"


def test_the_newest_message_of_a_step_is_shown_but_none_of_prefects(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress, out = make_progress()
    progress.receive("clone: started")
    progress.receive("update 20, 40 % of 1.0 M tokens, loss 0.500")
    progress.receive("Finished in state Completed()")
    now[0] = 61.0
    progress.tick()
    assert (
        "still cloning the policy from recorded episodes, 1 min 01 s so far (update 20, 40 %"
        in out.getvalue()
    )
    assert "Completed" not in out.getvalue()


@pytest.fixture
def terminal(monkeypatch):
    """What Prefect's console handler prints; it keeps the stream that it was created with."""
    setup_logging()
    out = io.StringIO()
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            monkeypatch.setattr(handler.console, "file", out)
    return out


def test_log_lines_go_to_a_file_and_warnings_to_the_terminal_too(tmp_path, terminal):
    log = logging.getLogger("prefect.tests")
    out = io.StringIO()
    with run_progress(Console(file=out, width=200), tmp_path / "logs" / "run.log", EXPECTED):
        log.info("validate: started")
        log.warning("the gate is undecided")
    text = (tmp_path / "logs" / "run.log").read_text()
    assert "validate: started" in text and "the gate is undecided" in text
    assert "Step 1 of 12" in out.getvalue()
    assert "the gate is undecided" in terminal.getvalue()
    assert "validate: started" not in terminal.getvalue()


def test_times_of_earlier_results_replace_typical_times():
    assert expected_seconds("alfworld", {"clone": 7.0})["clone"] == 7.0
    assert expected_seconds("alfworld", {})["clone"] == module.TYPICAL_SECONDS["alfworld"]["clone"]
    assert expected_seconds("own", {}) == {}
