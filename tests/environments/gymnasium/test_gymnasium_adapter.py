"""A factory's worlds as a real environment: what must be given, and what is refused."""

from __future__ import annotations

import sys

import pytest
from text_worlds import FACTORY, write_solutions

from components.config import load_config
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.errors import ConfigError, EnvironmentFailure


def adapter(factory=FACTORY, **text):
    return make_adapter(
        EnvironmentConfig.model_validate(
            {"name": "gymnasium", "gymnasium": {"factory": factory}, "text": text}
        )
    )


def test_solved_tasks_come_first_and_the_expert_plays_them(tmp_path):
    solved = adapter(demonstrations=str(write_solutions(tmp_path / "s.jsonl", [0, 2, 4, 6, 7])))
    assert {task.id for task in solved.tasks("train", 4, 1)} == {
        "gymnasium/0",
        "gymnasium/2",
        "gymnasium/4",
        "gymnasium/6",
    }
    assert {task.id for task in solved.tasks("train", 6, 1)} >= {
        "gymnasium/0",
        "gymnasium/2",
        "gymnasium/4",
        "gymnasium/6",
    }
    assert "gymnasium/7" in {task.id for task in solved.tasks("test", 1, 1)}
    with pytest.raises(EnvironmentFailure, match="needs a solution of gymnasium/"):
        solved.behaviour("expert", adapter().tasks("train", 1, 9)[0], 0)


def test_the_instruction_of_the_world_comes_before_that_of_the_config():
    (task,) = adapter(instruction="other words").tasks("train", 1, 0)
    assert task.instruction == "count to the goal" and "Goal" in task.initial_state


class Odd:
    """A world that answers as its class says."""

    reset_answer, step_answer = ("Count: 0.", {}), ("Count: 1.", 0.0, False, False, {})

    def reset(self, *, seed):
        return self.reset_answer

    def step(self, action):
        return self.step_answer


def odd(monkeypatch, instruction="count", **answers):
    world_class = type("Made", (Odd,), answers)
    monkeypatch.setitem(sys.modules, "odd_world", type(sys)("odd_world"))
    sys.modules["odd_world"].make = world_class
    return adapter(factory="odd_world:make", instruction=instruction)


def test_a_world_may_give_nothing_but_its_state(monkeypatch):
    plain = odd(monkeypatch)
    tasks = plain.tasks("train", 2, 0)
    world = plain.open()
    assert world.reset(tasks) == ["Count: 0."] * 2 and world.step(["look", None])[0].state == "Count: 1."
    assert world.admissible == [(), ()] and world.step([None, "x"])[1].info["admissible"] == ()
    world.close()


@pytest.mark.parametrize("answer", ["Count: 0.", ("Count: 0.",), (3, {}), ("", {}), None])
def test_a_reset_that_is_no_text_is_named(monkeypatch, answer):
    with pytest.raises(EnvironmentFailure, match="The world's reset gave .*Expected a text and a dict"):
        odd(monkeypatch, reset_answer=answer).tasks("train", 1, 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            ("Count: 1.", 0.0, False, {}),
            "step gave 4 values. Expected observation, reward, terminated, truncated, info",
        ),
        ("Count: 1.", "step gave str"),
        ((3, 0.0, False, False, {}), "answered 3"),
        (("half \ud800", 0.0, False, False, {}), "answered 'half"),
        (
            ("Count: 1.", 0.0, False, False, {"admissible": "go home"}),
            "info['admissible'] is 'go home'. Expected a list of actions",
        ),
    ],
)
def test_a_step_of_another_form_is_a_recorded_failure(monkeypatch, answer, words):
    strange = odd(monkeypatch, step_answer=answer)
    world = strange.open()
    world.reset(strange.tasks("train", 1, 0))
    assert words in world.step(["look"])[0].info["failed"]


def test_a_truncated_episode_ends_without_success(monkeypatch):
    cut = odd(monkeypatch, step_answer=("Count: 1.", 0.5, False, True, {}))
    world = cut.open()
    world.reset(cut.tasks("train", 1, 0))
    (answer,) = world.step(["look"])
    assert answer.done and answer.reward == 0.0 and answer.info["world_reward"] == 0.5


def test_an_instruction_is_required(monkeypatch):
    strange = odd(monkeypatch, instruction="")
    with pytest.raises(
        EnvironmentFailure, match="no info\\['instruction'\\].*Set environment.text.instruction"
    ):
        strange.tasks("train", 1, 0)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["environment.name=gymnasium"],
            "name: gymnasium needs environment.gymnasium.factory; see docs/guides/add-a-world.md",
        ),
        (
            ["environment.gymnasium.factory=a:b"],
            "gymnasium has no effect with name: alfworld; remove it or set name: gymnasium",
        ),
        (
            ["environment.name=own", "environment.own.adapter=a:B", "environment.openenv.url=http://x"],
            "openenv has no effect with name: own",
        ),
        (
            ["environment.name=own", "environment.own.adapter=a:B", "environment.objects=3"],
            "objects has no effect with name: own",
        ),
        (
            ["environment.name=own", "environment.own.adapter=a:B", "environment.games=official"],
            "games has no effect with name: own",
        ),
        (
            ["environment.name=own", "environment.own.adapter=../a.py"],
            r"adapter is '../a.py': expected module:Class of the adapter",
        ),
        (
            ["environment.name=gymnasium", "environment.gymnasium.factory=a:b", "environment.workers=4"],
            "workers has no effect with name: gymnasium",
        ),
        (["environment.name=webchop"], "environment.name is 'webchop': expected 'alfworld'"),
        (
            ["environment.openenv.token_variable=secret"],
            "token_variable is not the name of an environment variable",
        ),
        (["environment.openenv.url=http://u:p@host"], "url is not a plain http"),
        (
            ["environment.openenv.tasks=seeds", "environment.openenv.test_split=x"],
            "test_split has no effect with tasks: seeds",
        ),
        (["environment.gymnasium.factroy=a:b"], "Did you mean environment.gymnasium.factory"),
    ],
)
def test_settings_without_effect_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_config(None, overrides)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (
            "no_such_module:make",
            "environment.gymnasium.factory is 'no_such_module:make': there is no module no_such_module. It "
            "was looked for",
        ),
        ("text_worlds:Nothing", "text_worlds has nothing of that name that can be called"),
        ("text_worlds:TASK", "text_worlds has nothing of that name that can be called"),
    ],
)
def test_missing_code_is_named(factory, words):
    with pytest.raises(ConfigError, match=words):
        adapter(factory=factory)


def test_a_module_under_the_current_directory_is_found_and_its_own_errors_are_shown(tmp_path, monkeypatch):
    (tmp_path / "my_shop_world.py").write_text("from text_worlds import Counting as make\n")
    (tmp_path / "broken_world.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert adapter(factory="my_shop_world:make").tasks("train", 1, 0)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        adapter(factory="broken_world:make")
