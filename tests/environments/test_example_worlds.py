"""The worlds of `examples/worlds` on the real packages: what their adapters promise, with few tasks."""

import importlib.util
import json
import random
import re
import shutil
from pathlib import Path

import pytest

from components.config import load_config
from components.environments import make_adapter
from components.environments.capabilities import capabilities
from components.environments.contract import episode_promises as promises
from components.environments.contract.subject import Subject
from components.environments.text_world.replayed_behaviours import BEHAVIOURS
from components.records import TEST, TRAIN, Trajectory, Transition

FOLDER = Path("examples/worlds")
PACKAGES = {
    "babyai": "minigrid",
    "scienceworld_find": "scienceworld",
    "textworld_cooking": "textworld",
    "textworld_known_foods": "textworld",
}
GUIDE = Path("docs/guides/add-a-world.md")
WRITTEN = {"world", "refusals", "splits", "error_rates", "specs", "mistakes", "expert"}
"""All that an adapter of these worlds defines, besides the limit of rows."""
NEAR_MISS = {"behaviour", "after_the_next"}
"""What the kitchen with known foods defines besides."""
OF_THE_GUIDE = {"examine cookbook"}
"""First steps of an expert that are ours."""
PROMISES = (
    promises.tasks_begin_the_same,
    promises.expert_wins,
    promises.nonsense_is_answered,
    promises.texts_are_short,
)


@pytest.fixture(scope="module", params=sorted(PACKAGES))
def subject(request):
    package = PACKAGES[request.param]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")
    if package == "scienceworld" and shutil.which("java") is None:
        pytest.skip("ScienceWorld needs Java, and there is none here")
    config = load_config(FOLDER / f"{request.param}.yaml")
    adapter = make_adapter(config.environment)
    world = adapter.open()
    yield Subject(adapter, world, adapter.tasks(TRAIN, 2, 5), config)
    world.close()


def test_every_example_has_a_config_and_a_test():
    assert (
        {path.stem for path in FOLDER.glob("*.py")}
        == {path.stem for path in FOLDER.glob("*.yaml")}
        == set(PACKAGES)
    )


def test_the_world_keeps_its_promises(subject):
    for name in ("expert", "noisy", "near_miss"):
        subject.played[name] = subject.play(name)
    for promise in PROMISES:
        assert promise(subject)


def test_a_task_says_what_to_do_and_held_out_tasks_are_others(subject):
    (held_out,) = subject.adapter.tasks(TEST, 1, 5)
    assert held_out.id not in {task.id for task in subject.tasks}
    for task in (*subject.tasks, held_out):
        assert task.instruction.strip() and task.initial_state.strip()


def test_a_near_miss_leaves_steps_out():
    if importlib.util.find_spec("textworld") is None:
        pytest.skip("the package textworld is not installed")
    adapter = make_adapter(load_config(FOLDER / "textworld_known_foods.yaml").environment)
    (task,) = adapter.tasks(TRAIN, 1, 5)
    plan = []
    while not plan or plan[-1] != "eat meal":
        steps = [Transition(task.id, "", 0, "", action, "", 0.0, False) for action in plan]
        plan.append(adapter.expert(task, Trajectory(task, tuple(steps))))
    at_first = Trajectory(task)
    early = {adapter.behaviour("near_miss", task, seed)(at_first, plan[:1])[1] for seed in range(20)}
    assert plan[1] in early
    assert adapter.after_the_next(task, at_first) == plan[1]


def test_the_adapter_writes_what_the_guide_says_and_nothing_else(subject):
    """No reasoning, fact, premise or thought; refusals and mistakes are those of the guide's table."""
    written = {name for part in example_classes(subject) for name in vars(part) if not name.startswith("_")}
    allowed = NEAR_MISS if "textworld_known_foods" in type(subject.adapter).__module__ else set()
    assert written - {"most_rows"} - allowed == WRITTEN
    assert set(capabilities(subject.adapter, subject.world)) <= {
        "ValidationSplit",
        "LimitsRows",
        "Refillable",
    }
    rows = guide_column(subject)
    task = subject.tasks[0]
    assert listed(rows["refusals"]) == set(subject.adapter.refusals)
    mistakes = listed(rows["mistakes"])
    for mistake in subject.adapter.mistakes(task, random.Random(0)):
        (match,) = (one for one in mistakes if re.fullmatch(re.escape(one).replace(r"\.\.\.", ".+"), mistake))
        mistakes.discard(match)
    assert not mistakes
    for name in BEHAVIOURS:
        thought, _ = subject.adapter.behaviour(name, task, 0)(Trajectory(task), ["look"])
        assert thought == ""
    assert subject.config.environment.description, "the guide says that the config has one"


def test_the_experts_are_the_packages_but_for_what_the_guide_says(subject):
    """TextWorld's reads the cookbook first; the others begin with what their package does."""
    module = importlib.import_module(example_classes(subject)[-1].__module__)
    task = subject.tasks[0]
    first = subject.adapter.expert(task, Trajectory(task))
    if hasattr(module, "Cooking"):
        own = {"examine cookbook"}
    elif hasattr(module, "gold_actions"):
        values = json.loads(task.spec)
        own = {module.gold_actions(values["name"], values["variation"])[0]}
    else:
        world = module.BabyAI()
        world.begin(task)
        own = {module.ACTIONS[module.BabyAIBot(world.game).replan()]}
    assert {first} == own
    assert all(f"`{action}`" in guide_column(subject)["expert"] for action in own & OF_THE_GUIDE)


def example_classes(subject):
    """The adapter's classes that are written here: its own, and that of the example it goes back to."""
    return [part for part in type(subject.adapter).__mro__ if part.__module__.startswith("examples.")]


def guide_column(subject):
    """Row -> the cell of a world's file, in the guide's table of what is written."""
    module = example_classes(subject)[-1].__module__.rpartition(".")[2]
    lines = GUIDE.read_text(encoding="utf-8").split("Written by us for each")[1].split("\n\n")[1].splitlines()
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    column = header.index(f"`{module}.py`")
    return {cells[0].split(",")[0].split()[0]: cells[column] for cells in rows}


def listed(cell):
    return set(re.findall("`([^`]+)`", cell))


@pytest.mark.parametrize(
    "action", ["take \x11o", "\x00", "", "restart", "quit", "save", "undo", "look\nundo", "é" * 300]
)
def test_no_action_that_a_model_may_make_up_harms_the_world(subject, action):
    """TextWorld's interpreter ends the process on control characters, and its own commands end the game."""
    world = subject.adapter.open()
    world.reset(subject.tasks[:1])
    steps = [world.step([action])[0] for _ in range(3)]
    after = world.step(["look"])[0]
    world.close()
    assert not any("failed" in step.info or step.done for step in [*steps, after]) and after.state


def test_a_world_plays_episode_after_episode_in_one_simulator(subject, monkeypatch):
    """ScienceWorld's is a process: two rows take two, however many episodes they play."""
    module = importlib.import_module(type(subject.adapter).__module__)
    if not hasattr(module, "ScienceWorldEnv"):
        pytest.skip("only ScienceWorld has processes of its own")
    started = []
    start = module.ScienceWorldEnv
    monkeypatch.setattr(
        module, "ScienceWorldEnv", lambda *args, **options: started.append(1) or start(*args, **options)
    )
    monkeypatch.setattr(module, "IDLE", [])
    world = subject.adapter.open()
    for _ in range(3):
        world.reset(subject.tasks)
    assert len(started) == len(subject.tasks)
    broken = world._worlds[0].simulator
    monkeypatch.setattr(broken, "step", lambda action: 1 / 0)
    answers = world.step(["look around", "look around"])
    assert "failed" in answers[0].info and "failed" not in answers[1].info
    world.close()
    assert broken not in module.IDLE and len(module.IDLE) == 1
    module.IDLE[0].close()
