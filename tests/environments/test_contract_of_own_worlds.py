"""The contract suite over worlds that a user brings: a factory's, an OpenEnv server's, and one with its own
adapter (the template).
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest
from test_environment_contract import *  # noqa: F403  (its tests, with the subjects below)
from text_worlds import FACTORY, counting_server, write_solutions

from components.config import Config
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.contract.adapter_contract import check
from components.environments.contract.episode_promises import measure_pace
from components.environments.contract.finding import Broken
from components.environments.contract.subject import Subject

REFUSALS = ["Nothing happens"]
TEMPLATE = "components.environments.template:TemplateAdapter"


@pytest.fixture(scope="module", params=["gymnasium", "openenv", "own"])
def subject(request, tmp_path_factory):
    """(adapter, its real environment, four training tasks)."""
    name, solutions = request.param, tmp_path_factory.mktemp("worlds") / "solutions.jsonl"
    text = {"refusals": REFUSALS, "demonstrations": str(solutions)}
    with ExitStack() as stack:
        if name == "gymnasium":
            settings = {"factory": FACTORY}
            write_solutions(solutions, range(0, 40, 2))
        elif name == "openenv":
            url = stack.enter_context(counting_server())
            solved = write_solutions(solutions, range(0, 40, 2), "openenv/train/task-")
            solved.write_text(
                "".join(line.replace(f'-{2 * n}"', f'-{n}"') for n, line in enumerate(solved.open()))
            )
            settings = {"url": url}
        else:
            settings, text = {"adapter": TEMPLATE}, {}
        values = {"name": name, name: settings, "text": text}
        adapter = make_adapter(EnvironmentConfig.model_validate(values))
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


def test_the_pace_counts_steps_and_their_time(subject):
    adapter, environment, tasks = subject
    pause = 0.01
    slow = Slow(environment, pause)
    probe = Subject(adapter, slow, tasks, Config(), opening=1.5)
    with pytest.raises(Broken, match="nothing was measured"):
        measure_pace(probe)
    probe.played["random"] = probe.play("random")
    before, calls = environment.interactions, slow.calls
    text = measure_pace(probe)
    steps, rate = (
        int(re.search(pattern, text)[1].replace(",", ""))
        for pattern in (r"([\d,]+) steps of random", r"([\d,]+) steps/s")
    )
    assert steps == environment.interactions - before > 0
    assert rate <= steps / ((slow.calls - calls) * pause) + 1
    assert text.startswith("opened in 1.5 s, ")


def test_parts_that_the_config_switches_off_are_no_doubt():
    few = {
        "environment": {
            "name": "gymnasium",
            "gymnasium": {"factory": FACTORY},
            "text": {"refusals": REFUSALS},
        },
        "evaluation": {"tasks": 4},
    }
    as_it_is = {**few, "data": {"train_tasks": 4}}
    without = {
        **few,
        "data": {"train_tasks": 4, "fidelity_worlds": 0},
        "experience_model": {"premise": False},
    }
    next_steps = []
    for settings in (as_it_is, without):
        config, findings = Config.model_validate(settings), []
        check(config, make_adapter(config.environment), findings.append)
        next_steps.append(" ".join(finding.next_step for finding in findings))
    assert "experience_model.premise=false" in next_steps[0] and "data.fidelity_worlds=0" in next_steps[0]
    assert "premise" not in next_steps[1] and "fidelity_worlds" not in next_steps[1]
