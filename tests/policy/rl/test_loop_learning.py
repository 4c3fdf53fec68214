"""The RL loop learns: every algorithm, with demonstrations, adapters, gradient checkpointing and bf16."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from builders import AGENT, VOCABULARY, make_episode, make_model, make_task, with_thoughts
from loop_builders import (
    LORA,
    TASKS,
    Rewarding,
    even_rows,
    make_demonstration,
    make_loop,
    never,
    policy_with,
    same,
    weights,
)

from components.config import CloningConfig
from components.language.adapters import merge_lora
from components.language.compute import Compute, has_bf16
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs
from components.policy.behaviour_cloning import clone
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.policy.rl.observations import observation_examples
from components.policy.rl.training_checks import (
    LOGPROB_GAP_LIMIT,
)
from components.policy.rollout import Rollout, play
from components.records import Trajectory

ALGORITHMS = [
    pytest.param({"num_generations": 16}, id="grpo"),
    pytest.param({"num_generations": 16, "family": "qwen"}, id="grpo, qwen"),
    pytest.param({"num_generations": 16, "reward": "hero", "scale_rewards": False}, id="hero"),
    pytest.param({"algorithm": "ppo", "num_generations": 16}, id="ppo"),
    pytest.param({"num_generations": 16, "algorithm": "dpo", "sync_every": 2}, id="dpo"),
    pytest.param(
        {"num_generations": 16, "algorithm": "rft", "epochs": 30},
        id="rft",
    ),
]


@pytest.mark.parametrize("settings", ALGORITHMS)
def test_the_policy_learns_what_is_rewarded(settings, monkeypatch):
    """A policy cloned to four equally frequent actions learns to prefer the one that is rewarded."""
    monkeypatch.setattr("components.policy.rl.algorithms.rft.STEP_TOKENS", 64)
    choices = ["go to desk 1", "open fridge 1", "take mug 1", "heat mug 1"]
    settings = {"family": "llama"} | settings
    policy = Policy(
        make_model(hidden=32, seed=5, family=settings.pop("family")), VOCABULARY, max_new_tokens=16
    )
    demonstrations = [
        with_thoughts(make_episode(task, (action, "s")), "find mug") for task in TASKS for action in choices
    ]
    clone(policy, demonstrations, CloningConfig(epochs=200, learning_rate=5e-3), seed=0)

    world = Rewarding(lambda row, action: action == "open fridge 1")

    def measure_success():
        return (
            sum(r.reward for r in play(policy, world, TASKS * 50, max_steps=1, temperature=1.0, seed=99))
            / 200
        )

    before = measure_success()
    make_loop(
        world,
        policy=policy,
        progress=lambda episode: 0.0,
        iterations=12,
        learning_rate=3e-3,
        max_new_tokens=16,
        **settings,
    ).run()
    after = measure_success()
    assert 0.1 < before < 0.45 and after > 0.85, (before, after)


def test_demonstrations_are_trained_on_with_the_rollouts(monkeypatch):
    monkeypatch.setattr("components.policy.rl.learner.DEMONSTRATION_TOKENS", 64)
    mixed = {"demonstration_weight": 1.0, "learning_rate": 3e-3}
    loop = make_loop(Rewarding(even_rows), iterations=20, demonstrations=[make_demonstration()], **mixed)
    losses = loop.run().series["demonstration_loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert (
        "demonstration_loss"
        not in make_loop(Rewarding(even_rows), iterations=1, demonstrations=[make_demonstration()])
        .run()
        .series
    )


def test_the_demonstration_loss_is_the_mean_over_demonstrated_tokens():
    example = make_demonstration()
    loop = make_loop(
        Rewarding(even_rows),
        iterations=1,
        optimizer_steps=1,
        demonstrations=[example],
        demonstration_weight=0.5,
    )
    with torch.no_grad():
        expected = -token_logprobs(loop.policy.model, collate([example], 0)).logprobs.mean().item()
    assert loop.run().series["demonstration_loss"][0] == pytest.approx(expected, abs=1e-5)


def test_observed_states_are_learnt_from_failures_alone():
    """ECHO: every group fails, so RL has nothing to learn, and the states after an action become likely."""
    loop = make_loop(Rewarding(never, length=3), iterations=6, observation_weight=1.0, learning_rate=1e-2)
    series = loop.run().series
    assert series["observation_loss"][-1] < 0.8 * series["observation_loss"][0]
    assert series["lessons"] == [0.0] * 6 and all(map(math.isnan, series["loss"])), "no sample, no loss"
    silent = make_loop(Rewarding(never, length=3), iterations=1)
    before = weights(silent)
    assert "observation_loss" not in silent.run().series and same(before, weights(silent))


def test_the_observation_loss_is_on_the_states_between_two_replies():
    """By hand: neither the initial state, nor the last one, nor a question, nor what the policy wrote."""
    states = ["At desk 1: nothing.", "At desk 2: mug 1.", "You took mug 1."]
    actions = ["go to desk 1", "go to desk 2", "take mug 1"]
    episode = make_episode(make_task(0), *zip(actions, states, strict=True))
    rollout = Rollout(episode, render_demonstration(AGENT, episode))
    (example,) = observation_examples(AGENT, [[], [rollout]])
    segment = example.segments[0]
    observed = [token for token, flag in zip(segment.tokens, segment.loss, strict=True) if flag]
    assert observed == [token for state in states[:2] for token in AGENT.observation_parts(state)[1]]
    assert segment.tokens == [token for part in rollout.example.segments for token in part.tokens]
    assert observation_examples(AGENT, [[replace(rollout, trajectory=Trajectory(episode.task))]]) == []


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_only_adapters_are_trained(family):
    policy = Policy(make_model(family=family), VOCABULARY)
    first = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    make_loop(Rewarding(even_rows), policy=policy, iterations=2, lora=LORA, learning_rate=1e-2).run()
    last = dict(merge_lora(policy.model).named_parameters())
    assert last.keys() == first.keys()
    assert torch.equal(last["model.embed_tokens.weight"], first["model.embed_tokens.weight"])
    assert len([name for name in first if not torch.equal(last[name], first[name])]) == 14


def test_gradient_checkpointing_changes_no_update():
    plain, checkpointed = (
        make_loop(Rewarding(even_rows, length=2), iterations=1, policy=policy_with(compute))
        for compute in (Compute(), Compute(gradient_checkpointing=True))
    )
    plain.run()
    checkpointed.run()
    for name, weight in weights(plain).items():
        torch.testing.assert_close(weights(checkpointed)[name], weight, atol=1e-5, rtol=0)


@pytest.mark.skipif(not has_bf16("cpu"), reason="this CPU has neither AMX nor AVX512-BF16")
def test_sampler_and_trainer_agree_closely_in_bf16():
    loop = make_loop(
        Rewarding(even_rows, length=2), iterations=2, policy=policy_with(Compute(precision="bf16"))
    )
    state = loop.run()
    assert all(0 < gap < LOGPROB_GAP_LIMIT / 2 for gap in state.series["logprob_gap"])
    assert {weight.dtype for weight in loop.policy.model.parameters()} == {torch.float32}
