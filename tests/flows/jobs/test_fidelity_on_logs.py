"""`dreamgym fidelity` of logs without a live world trains and plays no policy, and judges what there is.

The stages are names here: what each does is tested elsewhere, and tests/flows/test_logs_alone.py runs them.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from prefect.logging import disable_run_logger

from components.config import load_config
from flows import logs_alone
from flows.jobs import fidelity
from flows.retrain import STEPS

STAGES = (
    *("validate_data", "fine_tune_experience_model", "clone_policy", "train_in_dream"),
    *("play_policies", "examine_dream"),
)
JUDGED = ["endpoint.url=http://localhost:8000/v1", "endpoint.model=m", "fidelity.judged=3"]


@pytest.fixture
def stages(monkeypatch):
    """The names of the stages that `examine` calls, in order; the judge's with what it judges."""
    called = []
    for name in STAGES:
        monkeypatch.setattr(fidelity, name, lambda run, name=name: called.append(name))
    monkeypatch.setattr(fidelity, "judge_dream", lambda run, source: called.append(f"judge {source}"))

    def raise_it(error):
        raise error

    monkeypatch.setattr(
        fidelity,
        "Run",
        lambda config, root: SimpleNamespace(
            config=config, start=called.append, finish=lambda: called.append("finish"), fail=raise_it
        ),
    )
    return called


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["environment.name=recorded"], STAGES[:2]),
        (["environment.name=recorded", *JUDGED], (*STAGES[:2], "judge experience_model")),
        (JUDGED, (*STAGES, "judge fidelity")),
    ],
)
def test_only_a_live_world_is_played(stages, overrides, expected, tmp_path):
    with disable_run_logger():
        fidelity.examine.fn(load_config(None, overrides), tmp_path)
    assert stages == ["fidelity", *expected, "finish"]


def test_a_run_on_logs_alone_judges_held_out_steps(monkeypatch):
    called = []
    for name in ("validate_data", "fine_tune_experience_model", "clone_policy", "train_in_dream"):
        monkeypatch.setattr(logs_alone, name, lambda run, name=name: called.append(name))
    for name in ("snapshot_buffer", "evaluate_on_logs", "_register_unverified"):
        monkeypatch.setattr(logs_alone, name, lambda run: None)
    monkeypatch.setattr(logs_alone, "require_fidelity", lambda run, result: called.append("gate"))
    monkeypatch.setattr(logs_alone, "judge_dream", lambda run, source: called.append(f"judge {source}"))
    monkeypatch.setattr(logs_alone, "Progress", lambda steps: SimpleNamespace(after=lambda result: result))
    for overrides, judge in (([], []), (JUDGED, ["judge experience_model"])):
        called.clear()
        run = SimpleNamespace(config=load_config(None, ["environment.name=recorded", *overrides]))
        with disable_run_logger():
            logs_alone.train_on_logs(run)
        assert called[2:-2] == ["gate", *judge]
        assert bool(judge) == STEPS["judge"].condition(run)
    live = SimpleNamespace(config=load_config(None, JUDGED))
    assert not STEPS["judge"].condition(live), "there `dreamgym fidelity` judges"
