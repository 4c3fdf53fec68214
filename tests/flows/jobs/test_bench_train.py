"""`dreamgym bench train` and `bench profile`: both trainers, TRL's included, train on the same episodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builders import VOCABULARY, make_model, make_task
from rich.console import Console

from components.config import ExperienceModelConfig, load_config
from components.environments.protocol import Step
from components.errors import DataError
from components.experience.model import save_prompt_form
from components.language.backbone import save_model
from components.policy.policy import Policy
from components.policy.rollout import play
from components.policy.task_draws import repeat_tasks
from components.trajectories.store import DataLayout
from flows.jobs.bench import profile as bench_profile
from flows.jobs.bench import recorded_batch
from flows.jobs.bench import train as bench_train
from flows.jobs.bench.profile import kind_of, print_profile
from flows.jobs.bench.recorded_batch import Batch
from flows.jobs.bench.sft import sft_row
from flows.printing.output import Output


class EveryOther:
    """Even rows succeed at their second action; the untrained policy never would in a real game."""

    interactions = 0

    def reset(self, tasks):
        self.steps = [0] * len(tasks)
        return [task.initial_state for task in tasks]

    def step(self, actions):
        return [None if action is None else self._answer(row) for row, action in enumerate(actions)]

    def _answer(self, row):
        self.steps[row] += 1
        return Step("At desk 1: nothing.", float(self.steps[row] == 2 and row % 2 == 0), self.steps[row] == 2)

    def close(self):
        pass


@pytest.fixture
def batch():
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=8)
    played = play(
        policy,
        EveryOther(),
        repeat_tasks([make_task(n) for n in range(2)], 4),
        max_steps=2,
        temperature=1.0,
        seed=0,
    )
    return Batch(policy, played, 4)


def test_ours_and_trls_steps_are_timed_on_the_same_episodes(batch, monkeypatch):
    before = {name: weight.clone() for name, weight in batch.policy.model.state_dict().items()}
    monkeypatch.setattr(bench_train, "play_batch", lambda *_: batch)
    messages = []
    found = bench_train.bench_train(
        load_config(None, []), Path(), Path(), tasks=2, rounds=2, steps=1, threads=1, report=messages.append
    )
    assert (
        found["ratio_vs_trl"].n == 2
        and found["ratio_vs_trl"].low <= found["ratio_vs_trl"].value <= found["ratio_vs_trl"].high
    )
    assert (
        found["tokens"].value == batch.tokens == sum(len(rollout.example) for rollout in batch.rollouts)
        and found["episodes"].value == 8
    )
    assert found["ratio_vs_sft_trl"].n == 2
    for name in ("ours", "trl", "sft_ours", "sft_trl"):
        rate = found[f"{name}/tokens_per_second"]
        assert rate.value == pytest.approx(batch.tokens * found[f"{name}/steps_per_second"].value)
    assert all(
        torch.equal(before[name], weight) for name, weight in batch.policy.model.state_dict().items()
    ), "both begin with the same"
    assert len(messages) == 3 and "8 episodes" in messages[0]


def test_trl_reads_the_tokens_of_an_episode_and_which_are_predicted(batch):
    example = batch.rollouts[0].example
    row = sft_row(example)
    assert len(row["input_ids"]) == len(row["completion_mask"]) == len(example)
    assert sum(row["completion_mask"]) == batch.rollouts[0].token_count


def test_groups_without_variance_are_refused(adapter, tasks, tmp_path, monkeypatch):
    policy = Policy(make_model(), VOCABULARY)
    policy.save(tmp_path)
    monkeypatch.setattr(recorded_batch, "read_tasks", lambda _: list(tasks))
    monkeypatch.setattr(recorded_batch, "make_adapter", lambda _: adapter)
    config = load_config(
        None, ["environment.max_steps=2", "rl.dream.num_generations=2", "rl.dream.max_new_tokens=4"]
    )
    with pytest.raises(DataError, match="No group of 1 has both a success and a failure.*--tasks"):
        recorded_batch.play_batch(config, DataLayout(tmp_path), tmp_path, 1)


def test_the_profile_has_the_shares_of_an_update_and_of_a_dream(batch, adapter, tmp_path, monkeypatch):
    for name in ("model", "policy"):
        save_model(make_model(max_positions=2048), VOCABULARY, tmp_path / name)
    monkeypatch.setattr(bench_profile, "play_batch", lambda *_: batch)
    monkeypatch.setattr(bench_profile, "offline_transitions", lambda *_: [])
    monkeypatch.setattr(bench_profile, "held_out", lambda *_: set())
    save_prompt_form(tmp_path / "model", ExperienceModelConfig())
    config = load_config(
        None,
        ["environment.max_steps=2", "rl.dream.max_new_tokens=4", "experience_model.max_new_tokens=8"],
    )
    found = bench_profile.bench_profile(
        config, tmp_path, tmp_path / "model", tmp_path / "policy", tasks=2, threads=1, report=print
    )
    for side in ("update", "rollout"):
        shares = {
            name: entry.value
            for name, entry in found.items()
            if name.startswith(f"{side}/") and name != "rollout/dream"
        }
        assert sum(shares.values()) == pytest.approx(1.0) and shares[f"{side}/matrix products"] > 0.01
    assert found["update/attention, backward"].value > 0 and "rollout/attention, backward" not in found
    assert 0 < found["rollout/dream"].value < 1 and found["dreamed_steps"].value > 0
    print_profile(Output(Console(width=120)), found)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("aten::addmm", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention, backward"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::index_select", "copying and picking"),
        ("aten::_fused_adamw_", "optimiser"),
        ("aten::silu", "other operations"),
    ],
)
def test_operations_are_sorted_by_what_they_do(operation, kind):
    assert kind_of(operation) == kind
