"""`dreamgym check-environment` reports each broken promise in one sentence, without a traceback."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from text_worlds import Counting

from components.config import Config
from components.environments import make_adapter
from components.environments.contract.adapter_contract import check
from components.environments.vectorized import Outcome
from components.errors import EnvironmentFailure


def findings(monkeypatch, made):
    """Promise -> finding of a factory's world; the last entry is whether every promise is kept."""
    monkeypatch.setitem(sys.modules, "a_made_world", type(sys)("a_made_world"))
    sys.modules["a_made_world"].make = made
    text = {"refusals": ["Nothing happens"], "actions": ["add", "subtract"], "instruction": "count"}
    settings = {
        "name": "gymnasium",
        "max_steps": 6,
        "gymnasium": {"factory": "a_made_world:make"},
        "text": text,
    }
    config = Config.model_validate({"environment": settings})
    found = []
    kept = check(config, make_adapter(config.environment), found.append)
    return {finding.promise: finding for finding in found}, kept


class NoSeed(Counting):
    def reset(self):
        return super().reset(seed=3)


class SeedByPosition(Counting):
    def reset(self, seed, /):
        return super().reset(seed=seed)


class PassesOn(Counting):
    """As a wrapper of Gymnasium's does."""

    def __init__(self):
        self.inner = NoSeed()

    def reset(self, **options):
        return self.inner.reset(**options)

    def step(self, action):
        return self.inner.step(action)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            NoSeed,
            r"The reset of NoSeed takes no seed: it is reset\(\).*A task is a seed of reset.*def "
            r"reset\(self, \*, seed=None\)",
        ),
        (SeedByPosition, r"The reset of SeedByPosition takes no seed: it is reset\(seed, /\)"),
        (
            PassesOn,
            r"reset\(seed=\d+\) raised TypeError: .*'seed'.*line \d+ of .*test_contract_findings.py.*def "
            r"reset\(self, \*, seed=None\)",
        ),
        (type("NoReset", (), {}), r"NoReset has no method reset. Expected Gymnasium's reset"),
        (
            type("Fails", (Counting,), {"reset": lambda self, seed: {}["x"]}),
            r"reset\(seed=\d+\) raised KeyError: 'x' \(line \d+ of",
        ),
        (
            type("Text", (Counting,), {"reset": lambda self, seed: "Count: 0."}),
            r"The world's reset gave 'Count: 0.'. Expected a text and a dict",
        ),
        (
            lambda: 1 / 0,
            r"The factory a_made_world:make raised ZeroDivisionError: division by zero \(line \d+ of",
        ),
    ],
)
def test_a_world_that_cannot_start_is_an_error_in_one_sentence(monkeypatch, made, words):
    with pytest.raises(EnvironmentFailure, match=words):
        findings(monkeypatch, made)


def step_of(answer):
    return lambda _self, _action: answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            ("Count: 1.", 0.0, False, {}),
            "The world's step gave 4 values. Expected observation, reward, terminated, truncated, info",
        ),
        (("Count: 1.", float("nan"), False, False, {}), "The world gave the reward nan. Expected a number"),
        ((np.zeros(3), 0.0, False, False, {}), "Expected a state of words"),
        (("Count: 1.", np.zeros(2), False, False, {}), "Expected a number"),
        (
            ("Count: 1.", 0.0, np.zeros(2), False, {}),
            "The world's step gave terminated=array([0., 0.]). Expected true or false",
        ),
        (("Count: 1.", 0.0, False, "no", {}), "The world's step gave truncated='no'. Expected true or false"),
    ],
)
def test_an_invalid_step_is_named(monkeypatch, answer, words):
    found, kept = findings(monkeypatch, type("Odd", (Counting,), {"step": step_of(answer)}))
    said = " ".join(finding.found for finding in found.values() if finding.state == "wrong")
    assert not kept and words in said


@pytest.mark.parametrize("number", [np.float32(1.0), np.array(1.0), np.int64(1), torch.tensor(1.0), True])
@pytest.mark.parametrize("done", [np.bool_(True), np.array(True), True, 1])
def test_a_number_of_numpy_or_torch_is_a_reward(number, done):
    step = Outcome(1.0).step("Count: 3.", number, done)
    assert (
        (step.reward, step.done) == (1.0, True)
        and type(step.done) is bool
        and type(step.info["world_reward"]) is float
    )


class OneTask(Counting):
    """The seed is taken and decides nothing."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=3)


class OneTaskThatLooksLikeTwo(OneTask):
    """Opens in two ways, and is one of two tasks: fewer than the seeds, but more than one."""

    def reset(self, *, seed=None, options=None):
        return Counting.reset(self, seed=seed // 2 % 2)


class HiddenGoal(Counting):
    """All tasks open alike; what differs shows later."""

    def _state(self):
        return f"Count: {self.count}." + (f" Goal: {self.goal}." if self.count else "")


DIFFER = "Training tasks are different ones by what they show"


def test_identical_tasks_are_found_by_their_states(monkeypatch):
    found, kept = findings(monkeypatch, OneTask)
    assert not kept and found[DIFFER].state == "wrong"
    assert found[DIFFER].found.startswith(
        "24 tasks are 1 different by their instructions and states; gymnasium/"
    )
    assert "seed" in found[DIFFER].next_step


def test_different_tasks_are_counted(monkeypatch):
    found, _ = findings(monkeypatch, OneTaskThatLooksLikeTwo)
    assert found[DIFFER].state == "doubt" and found[DIFFER].found.startswith("24 tasks are 2 different")


def test_tasks_that_differ_after_the_first_step_are_different(monkeypatch):
    found, _ = findings(monkeypatch, HiddenGoal)
    assert found[DIFFER].state == "doubt" and found[DIFFER].found.startswith("24 tasks are 5 different")
