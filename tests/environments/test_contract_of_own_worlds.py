"""The contract suite over worlds that a user brings: a factory's, an OpenEnv server's, and one with its own
adapter (the template).
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest
from builders import make_episode, make_task
from test_environment_contract import *  # noqa: F403  (its tests, with the subjects below)
from text_worlds import FACTORY, counting_server, write_solutions

from components.config import Config
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.contract.adapter_contract import Subject, _pace, check
from components.environments.contract.finding import Broken

REFUSALS = ["Nothing happens"]
TEMPLATE = "components.environments.template:TemplateAdapter"


@pytest.fixture(scope="module", params=["gymnasium", "openenv", "own"])
def subject(request, tmp_path_factory):
    """(adapter, its real environment, four training tasks)."""
    name, solutions = request.param, tmp_path_factory.mktemp("worlds") / "solutions.jsonl"
    with ExitStack() as stack:
        if name == "gymnasium":
            settings = {
                "factory": FACTORY,
                "refusals": REFUSALS,
                "demonstrations": str(write_solutions(solutions, range(0, 40, 2))),
            }
        elif name == "openenv":
            url = stack.enter_context(counting_server())
            solved = write_solutions(solutions, range(0, 40, 2), "openenv/train/task-")
            solved.write_text(
                "".join(line.replace(f'-{2 * n}"', f'-{n}"') for n, line in enumerate(solved.open()))
            )
            settings = {"url": url, "refusals": REFUSALS, "demonstrations": str(solved)}
        else:
            settings = {"adapter": TEMPLATE}
        adapter = make_adapter(EnvironmentConfig.model_validate({"name": name, name: settings}))
        environment = adapter.open()
        stack.callback(environment.close)
        yield adapter, environment, adapter.tasks("train", 4, 5)


class Slow:
    """A world whose every step takes `pause` seconds longer."""

    def __init__(self, world, pause):
        self.world, self.pause, self.calls = world, pause, 0

    def __getattr__(self, name):
        return getattr(self.world, name)

    def step(self, actions):
        time.sleep(self.pause)
        self.calls += 1
        return self.world.step(actions)


def test_the_templates_first_look_into_a_box_is_one_whatever_the_other_boxes_are_called():
    adapter = make_adapter(EnvironmentConfig.model_validate({"name": "own", "own": {"adapter": TEMPLATE}}))
    looked = make_episode(make_task(), ("open box 12", "Box 12: empty. Holding: nothing."))
    assert adapter.revealing(looked, "open box 1", "Box 1: empty. Holding: nothing.")
    assert not adapter.revealing(looked, "open box 12", "Box 12: empty. Holding: nothing.")


def test_the_pace_counts_the_steps_that_the_world_took_and_the_time_that_they_took(subject):
    adapter, environment, tasks = subject
    pause = 0.01
    slow = Slow(environment, pause)
    probe = Subject(adapter, slow, tasks, Config(), opening=1.5)
    with pytest.raises(Broken, match="nothing was measured"):
        _pace(probe)
    probe.played["random"] = probe.play("random")
    before, calls = environment.interactions, slow.calls
    told = _pace(probe)
    steps, rate = (
        int(re.search(pattern, told)[1].replace(",", ""))
        for pattern in (r"([\d,]+) steps of random", r"([\d,]+) steps/s")
    )
    assert steps == environment.interactions - before > 0
    assert rate <= steps / ((slow.calls - calls) * pause) + 1
    assert told.startswith("opened in 1.5 s, ")


def test_what_the_config_does_without_already_is_not_doubted():
    few = {
        "environment": {"name": "gymnasium", "gymnasium": {"factory": FACTORY, "refusals": REFUSALS}},
        "evaluation": {"tasks": 4},
    }
    as_it_is = {**few, "data": {"train_tasks": 4}}
    without = {
        **few,
        "data": {"train_tasks": 4, "fidelity_worlds": 0},
        "experience_model": {"premise": False},
    }
    asked = []
    for settings in (as_it_is, without):
        config, findings = Config.model_validate(settings), []
        check(config, make_adapter(config.environment), findings.append)
        asked.append(" ".join(finding.next_step for finding in findings))
    assert "experience_model.premise=false" in asked[0] and "data.fidelity_worlds=0" in asked[0]
    assert "premise" not in asked[1] and "fidelity_worlds" not in asked[1]
