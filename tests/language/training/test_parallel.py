"""Training in two real processes of one launch gives the weights and figures of one, up to rounding."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders import VOCABULARY, make_model, make_task
from torch.distributed.tensor import DTensor

from components.config import LoraConfig, RLConfig
from components.environments.protocol import Step
from components.errors import TrainingError
from components.language.adapters import add_lora
from components.language.training import parallel
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.sharding import sharded
from components.policy.policy import Policy
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import Loop
from components.policy.rl.players.player import LocalPlayer
from components.policy.rl.task_source import EvenTasks

SETTINGS = {"learning_rate": 3e-3, "batch_tokens": 90, "seed": 3, "epochs": 2}
EXAMPLES = [
    Example([Segment([9 + n] * (5 + n % 7), [False] * (5 + n % 7)), Segment([20 + n, 21], [True, True])])
    for n in range(31)
]


STEPS = {"optimizer_steps": 2, "num_iterations": 2}
LONG_DEMONSTRATION = Example([Segment([9] * 30, [False] * 30), Segment([20, 21] * 1020, [True] * 2040)])
"""So long that an update draws one alone: a rank has none."""


class Even:
    """Episodes of one step; the rollouts of even rows win."""

    interactions = 0

    def reset(self, tasks):
        return [task.initial_state for task in tasks]

    def step(self, actions):
        return [Step("At desk 1: nothing.", float(row % 2 == 0), True) for row, _ in enumerate(actions)]

    def close(self):
        pass


def make_loop(kind="grpo", lora=LoraConfig(), options=None, demonstrations=(), checkpoint=None):
    policy = Policy(make_model(), VOCABULARY)
    config = RLConfig(
        iterations=3,
        tasks=2,
        num_generations=4,
        demonstration_weight=0.5 if demonstrations else 0.0,
        max_new_tokens=6,
        batch_tokens=200,
        algorithm={"type": kind} | (STEPS if options is None else options),
    )
    tasks = EvenTasks([make_task(n, instruction=f"put a mug in desk {n}") for n in range(4)])
    algorithm = make_algorithm(config, policy)
    return Loop(
        policy,
        LocalPlayer(Even()),
        tasks,
        algorithm,
        config,
        max_steps=2,
        seed=0,
        lora=lora,
        demonstrations=demonstrations,
        checkpoint=checkpoint,
    )


def copy_second(checkpoint):
    """Return a function that keeps the checkpoint of a loop's second iteration beside it."""

    def keep(iteration, figures):
        if iteration == 2:
            shutil.copy(checkpoint, checkpoint.with_name("second.pt"))

    return keep


RL = {
    "grpo": {},
    "ppo": {"kind": "ppo"},
    "lora": {"lora": LoraConfig(rank=2)},
    "rft": {"kind": "rft", "options": {}},
    "demonstrations": {"demonstrations": [LONG_DEMONSTRATION]},
}


def largest_share(model) -> float:
    """Return the share of the weights that a rank holds: the largest of all ranks."""
    with sharded(model) as trained:
        local = sum(
            (weight.to_local() if isinstance(weight, DTensor) else weight).numel()
            for weight in trained.parameters()
        )
    return max(part / sum(weight.numel() for weight in model.parameters()) for part in _each(local))


def _each(value: float) -> list[float]:
    """Return the value of every rank."""
    rank = int(os.environ.get("RANK", "0"))
    return parallel.sums([value if place == rank else 0.0 for place in range(parallel.size())])


def train(place: Path):
    """Write the losses and weights to compare: fine-tuning (also resumed), GRPO, PPO, LoRA, and one error."""
    model = make_model()
    results = {"share": parallel.run_on_all_ranks(largest_share, make_model())}

    def keep_an_early_checkpoint(step, tokens, loss):
        if step == 4:
            shutil.copy(place / "checkpoint.pt", place / "early.pt")

    record = supervised_finetune(
        model,
        EXAMPLES,
        checkpoint=place / "checkpoint.pt",
        checkpoint_every=3,
        on_step=keep_an_early_checkpoint,
        **SETTINGS,
    )
    resumed_model = make_model()
    results["resumed"] = supervised_finetune(
        resumed_model, EXAMPLES, checkpoint=place / "checkpoint.pt", **SETTINGS
    ).losses
    results["losses"] = record.losses
    adapted = add_lora(make_model(), LoraConfig(rank=2), seed=0)
    results["adapted"] = supervised_finetune(adapted, EXAMPLES, **SETTINGS).losses
    weights = [model, resumed_model, adapted]
    for name, settings in RL.items():
        checkpoint = place / name / "loop.pt"
        checkpoint.parent.mkdir()
        loop = make_loop(**settings, checkpoint=checkpoint)
        series = loop.run(on_iteration=copy_second(checkpoint)).series
        results[name] = [series[figure] for figure in ("loss", "gradient_norm", "policy_entropy")]
        held = sum(
            (weight.to_local() if isinstance(weight, DTensor) else weight).numel()
            for weight in loop.learner.trained.module.parameters()
        )
        results[f"{name}_share"] = held / sum(weight.numel() for weight in loop.policy.model.parameters())
        weights.append(loop.policy.model)
    resumed = make_loop(checkpoint=Path(shutil.copy(place / "grpo" / "second.pt", place / "again.pt")))
    resumed.run()
    weights.append(resumed.policy.model)
    try:
        supervised_finetune(make_model(), EXAMPLES, **SETTINGS | {"learning_rate": 1e30})
    except TrainingError as error:
        results["error"] = error.found
    torch.save(
        [[weight.detach() for weight in model.parameters()] for model in weights], place / "weights.pt"
    )
    (place / "results.json").write_text(json.dumps(results))


def launched(place, divides_weights=False):
    """This file as a program in two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    paths = os.pathsep.join(str(Path(__file__).parents[up]) for up in (2, 3))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "ACCELERATE_USE_CPU": "true"}
    environment |= {"ACCELERATE_USE_FSDP": str(divides_weights).lower()}
    return subprocess.run(
        [*launch, __file__, str(place)], capture_output=True, text=True, timeout=240, env=environment
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("divides_weights", [False, True])
def test_two_processes_give_the_weights_of_one(tmp_path, divides_weights):
    """With and without FSDP2, which divides the weights of fine-tuning and of RL."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    train(places[0])
    completed = launched(places[1], divides_weights)
    assert completed.returncode == 0, completed.stderr[-3000:]
    one, two = (json.loads((place / "results.json").read_text()) for place in places)
    assert one["error"] == two["error"]
    assert one["share"] == 1 and (two["share"] < 0.55 if divides_weights else two["share"] == 1)
    for name in ("grpo_share", "ppo_share"):
        assert one[name] == 1 and (two[name] < 0.55 if divides_weights else two[name] == 1)
    for name in ("losses", "resumed", "adapted", *RL):
        torch.testing.assert_close(torch.tensor(two[name]), torch.tensor(one[name]), rtol=1e-3, atol=1e-4)
    weights = [torch.load(place / "weights.pt") for place in places]
    for mine, other in zip(*weights, strict=True):
        torch.testing.assert_close(other, mine, rtol=1e-3, atol=1e-4)
    alone = make_model()
    taken: list[int] = []
    supervised_finetune(
        alone,
        EXAMPLES,
        checkpoint=places[1] / "early.pt",
        on_step=lambda step, *_: taken.append(step),
        **SETTINGS,
    )
    assert taken[0] == 4, "one process goes on where two were"
    torch.testing.assert_close(list(alone.parameters()), weights[0][0], rtol=1e-3, atol=1e-4)
    for number, (name, settings) in enumerate(RL.items(), start=3):
        checkpoint = places[1] / name / "second.pt"
        loop = make_loop(**settings, checkpoint=checkpoint)
        finished: list[int] = []
        loop.run(on_iteration=lambda iteration, _, finished=finished: finished.append(iteration))
        assert finished == [3], f"{name}: one process goes on where two were"
        torch.testing.assert_close(
            list(loop.policy.model.parameters()), weights[0][number], rtol=1e-3, atol=1e-4, msg=name
        )


@pytest.mark.timeout(300)
def test_a_disk_that_refuses_a_checkpoint_ends_all_processes(tmp_path):
    """Only rank 0 writes, so the other waits for it within the job: it must not be waited for in turn."""
    (tmp_path / "results.json").touch()  # a file where the checkpoint's folder would be
    completed = launched(tmp_path / "results.json")
    assert completed.returncode != 0
    assert "DataError" in completed.stderr and "results.json" in completed.stderr


def test_the_shares_of_all_ranks_are_all_items(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    shares = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        shares += parallel.share(range(7))
        assert parallel.is_worker() == (rank > 0)
    assert sorted(shares) == list(range(7))


if __name__ == "__main__":
    if parallel.is_worker():
        parallel.serve()
    else:
        try:
            train(Path(sys.argv[1]))
        finally:
            parallel.stop_workers()
