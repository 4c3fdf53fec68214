"""What an adapter declares beyond its core, and how it answers where it declares nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_episode, make_task

from components.config import Config
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.capabilities import (
    WITH_DEFAULT,
    WITHOUT_DEFAULT,
    Adapter,
    Grounding,
    Judging,
    ValidationSplit,
    capabilities,
    members,
)
from components.environments.contract.adapter_contract import check
from components.environments.protocol import AdapterCore, Forkable, RealEnvironment, concurrent_rows
from components.environments.template import BoxWorld, TemplateAdapter
from components.environments.validation_split import splits_of
from components.environments.vectorized import RowsEnvironment
from components.errors import EnvironmentFailure

OWN = Config.model_validate(
    {
        "environment": {
            "name": "own",
            "own": {"adapter": "components.environments.template:TemplateAdapter"},
        }
    }
)


class CoreOnly(Adapter):
    """A world of boxes with the core alone."""

    name = "own"
    notice = ""

    def __init__(self):
        self.boxes = TemplateAdapter(OWN.environment)

    def tasks(self, split, count, seed):
        return self.boxes.tasks(split, count, seed)

    def open(self, budget=None, *, workers=None, stock=False):
        return RowsEnvironment(BoxWorld, budget)

    def behaviour(self, name, task, seed):
        return self.boxes.behaviour(name, task, seed)

    def well_formed(self, action):
        return bool(action)

    def refused(self, next_state):
        return next_state.startswith("Nothing happens")


def test_the_core_has_at_most_eight_members_and_no_capability_has_more_than_two():
    assert len(members(AdapterCore)) <= 8
    assert all(1 <= len(members(kind)) <= 2 for kind in (*WITH_DEFAULT, *WITHOUT_DEFAULT))


def test_each_capability_says_what_it_buys_and_what_happens_without_it():
    assert all("Buys: " in kind.__doc__ for kind in (*WITH_DEFAULT, *WITHOUT_DEFAULT))
    assert all("Default: " in kind.__doc__ for kind in WITH_DEFAULT)
    assert all("Without it" in kind.__doc__ for kind in WITHOUT_DEFAULT)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("alfworld", {"Judging", "Grounding"}), ("webshop", set())],
)
def test_the_shipped_worlds_declare_what_they_have(name, missing):
    adapter = make_adapter(EnvironmentConfig(name=name))
    environment = adapter.open(workers=1)
    declared = capabilities(adapter, environment)
    environment.close()
    expected = {kind.__name__ for kind in (*WITH_DEFAULT, *WITHOUT_DEFAULT, Forkable)}
    assert set(declared) == expected - missing and len(declared) == len(set(declared))


def test_a_world_declares_a_capability_by_defining_its_methods():
    adapter = TemplateAdapter(OWN.environment)
    assert capabilities(adapter, adapter.open()) == ["ValidationSplit"]
    assert capabilities(CoreOnly(), CoreOnly().open()) == []
    adapter.reflect = lambda trajectory, alternatives, thought: thought
    assert "Reflection" in capabilities(adapter, adapter.open())


def test_a_core_alone_keeps_every_promise():
    findings = []
    assert check(OWN, CoreOnly(), findings.append), [f for f in findings if f.state == "wrong"]
    listed = next(finding for finding in findings if finding.promise.startswith("Capabilities"))
    assert (listed.state, listed.found) == ("ok", "none")


def test_a_core_alone_has_the_splits_train_and_test_and_no_optional_judge():
    adapter = CoreOnly()
    assert splits_of(adapter) == ("train", "test") and not isinstance(adapter, ValidationSplit)
    assert not isinstance(adapter, (Judging, Grounding)) and isinstance(adapter, Adapter)


def test_defaults_ask_for_no_knowledge_of_the_world():
    episode = make_episode(make_task(), ("look", "Score: 3."))
    adapter = CoreOnly()
    assert adapter.reflect(episode, [("fly", "Nothing happens.")], "") == "fly would give: Nothing happens."
    assert adapter.reason(episode, "look", "Score: 3.", 0.0) == "nothing changes, not won"
    assert adapter.reason(episode, "fly", "Nothing happens.", 0.0) == "refused, the state changes, not won"
    assert adapter.facts(episode) == {("is", "Score", "3")}
    assert adapter.contradiction(episode, "anything") == adapter.premise(episode) == ""
    assert adapter.objection(episode.task, "a premise") and adapter.progress(episode) == 0.0


@pytest.mark.parametrize("member", members(AdapterCore))
def test_a_missing_member_of_the_core_is_named(member):
    kept = {name: value for name, value in vars(CoreOnly).items() if name != member}
    adapter = type("Incomplete", (Adapter,), kept)()
    findings = []
    if member in ("tasks", "open"):  # without these nothing can be tested
        with pytest.raises(EnvironmentFailure, match=f"Incomplete has no {member}. .*Inherit PlainAdapter"):
            check(OWN, adapter, findings.append)
        return
    assert not check(OWN, adapter, findings.append)
    assert findings[0].state == "wrong" and findings[0].found == f"Incomplete has no {member}."


def test_an_environment_says_how_many_rows_it_plays_at_once():
    limited = RowsEnvironment(BoxWorld, most_rows=3)
    assert isinstance(limited, RealEnvironment) and not isinstance(limited, Forkable)
    assert (concurrent_rows(limited, 8), concurrent_rows(limited, 2)) == (3, 2)
    assert concurrent_rows(RowsEnvironment(BoxWorld), 8) == concurrent_rows(object(), 8) == 8


def test_a_family_of_a_task_is_that_of_its_specification():
    class WithFamilies(TemplateAdapter):
        def specs(self, split):
            return [replace(spec, family=spec.name.partition("-")[0]) for spec in super().specs(split)]

    tasks = WithFamilies(OWN.environment).tasks("train", 5, 0)
    assert all(task.instruction == f"take the {task.family}" for task in tasks)
    assert {task.family for task in TemplateAdapter(OWN.environment).tasks("train", 5, 0)} == {""}
