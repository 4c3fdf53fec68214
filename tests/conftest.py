"""Fixtures that many tests share because they take seconds to create.

They are the real engine with episodes of every behaviour, and a tiny experience model that has memorised two
episodes, so that its answers are known and one of them depends on the history.
"""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, WORLD, make_episode, make_model, make_task
from lanes import mark_lane

from components.config import ExperienceModelConfig
from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.experience.formats.training_examples import (
    render_premise,
    render_trajectory,
    render_variation,
)
from components.experience.model import ExperienceModel
from components.language.training.fine_tuning import supervised_finetune
from components.trajectories.recording import collect, plan

H = " Holding nothing."
PREMISE = "mug 1 shelf 1"
LOOKED = "Looked around in the room." + H
LONGEST = (
    "jobs/test_experiments.py",
    "deployment/test_deploy.py",
    "flows/test_retrain.py",
    "environments/test_environment_contract.py",
    "engines/test_vllm_weight_transfer.py",
    "flows/test_kills.py",
    "past_runs/test_next_round.py",
    "jobs/test_reproduce.py",
    "jobs/test_transfer.py",
    "flows/test_logs_alone.py",
    "serving/test_balancer.py",
    "cluster/test_ray.py",
    "engines/test_vllm_server.py",
)
"""Files that take minutes: they run first, so that none of them is left to one process at the end.

Those of vLLM are apart: two servers that start at the same time on two cores need minutes.
"""
torch.set_num_threads(1)  # more threads do not help models as small as those of the tests


def pytest_collection_modifyitems(items):
    """Sort long files first; `make test` distributes files in this order."""
    for item in items:
        mark_lane(item)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(places)))


@pytest.fixture(scope="session")
def adapter():
    """ALFWorld with generated games and one worker process."""
    return make_adapter(EnvironmentConfig(workers=1))


@pytest.fixture(scope="session")
def world(adapter):
    """The real environment; every test resets it with tasks of its own."""
    environment = adapter.open()
    yield environment
    environment.close()


@pytest.fixture(scope="session")
def tasks(adapter):
    """Twelve training tasks, two of each family."""
    return adapter.tasks("train", 12, 0)


@pytest.fixture(scope="session")
def played(adapter, tasks):
    """Behaviour -> its episodes of all `tasks`, from the real engine."""
    counts = {"expert": 1, "noisy": 1, "near_miss": 8, "random": 2}
    episodes = collect(adapter, plan(tasks, counts, seed=3), max_steps=20, rows=72)
    return {name: [e for e in episodes if e.steps[0].behaviour == name] for name in counts}


@pytest.fixture(scope="session")
def lessons():
    """Two episodes of one task with the same state and action at step 3; only step 1 differs."""
    desk = [("go to desk 1", "At desk 1: mug 1." + H), ("look", LOOKED), ("look", "At desk 1: mug 1." + H)]
    fridge = [
        ("go to fridge 1", "At fridge 1: closed." + H),
        ("look", LOOKED),
        ("look", "At fridge 1: open, egg 1." + H),
    ]
    won = make_episode(
        make_task(),
        *desk,
        ("take mug 1 from desk 1", "Took mug 1 from desk 1. Holding mug 1."),
        won=True,
        episode="desk",
    )
    return [won, make_episode(make_task(), *fridge, episode="fridge")]


def train(lessons, history: bool, epochs: int, family: str = "llama"):
    model = make_model(hidden=32, family=family)
    examples = [render_trajectory(WORLD, e, [[] for _ in e.steps], history=history) for e in lessons]
    examples.append(render_variation(WORLD, make_task(), "put a hot mug in desk"))
    examples.append(render_premise(WORLD, make_task(), PREMISE))
    supervised_finetune(model, examples, epochs=epochs, learning_rate=8e-3, batch_tokens=4096, seed=0)
    return model


@pytest.fixture(scope="session")
def learnt(lessons):
    """An experience model that has memorised `lessons`."""
    return ExperienceModel(
        train(lessons, True, 220), VOCABULARY, ExperienceModelConfig(max_new_tokens=40, temperature=0.0)
    )


@pytest.fixture(scope="session")
def learnt_qwen(lessons):
    """The same with Qwen's architecture."""
    return ExperienceModel(
        train(lessons, True, 220, "qwen"),
        VOCABULARY,
        ExperienceModelConfig(max_new_tokens=40, temperature=0.0),
    )


@pytest.fixture
def untrained():
    """An untrained experience model, whose answers cannot be parsed."""
    return ExperienceModel(make_model(), VOCABULARY, ExperienceModelConfig(max_new_tokens=8, resamples=2))
