"""Episodes in a dream of which each goes on by itself, with vLLM for policy and experience model."""

from dataclasses import replace

import pytest
import torch
from builders import VOCABULARY, WORLD, make_model, with_thoughts

from components.config import CloningConfig, ExperienceModelConfig, RetrievalConfig, VllmConfig
from components.experience.dream import Dream
from components.experience.formats.training_examples import render_trajectory
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.compute import Compute
from components.language.engines.vllm import library
from components.language.engines.vllm.engine_thread import engine_thread
from components.language.training.fine_tuning import supervised_finetune
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy
from components.policy.rollout import play
from components.policy.task_draws import repeat_tasks

pytestmark = pytest.mark.skipif(library.installed_version() is None, reason="needs make install VLLM=1")
VLLM = Compute(engine="vllm", vllm=VllmConfig(cache_gb=0.1, rows=32))
WIDTH = 64  # vLLM's kernels take heads of at least 32


@pytest.fixture(scope="module")
def models(lessons):
    """A policy and an experience model that have memorised two episodes, with some randomness left."""
    policy = Policy(make_model(hidden=WIDTH, seed=2), VOCABULARY)
    thoughts = [with_thoughts(it, *(f"step {step}" for step in range(len(it.steps)))) for it in lessons]
    clone(policy, thoughts, CloningConfig(epochs=60, learning_rate=4e-3), seed=0)
    world = make_model(hidden=WIDTH)
    examples = [render_trajectory(WORLD, lesson, [[] for _ in lesson.steps]) for lesson in lessons]
    supervised_finetune(world, examples, epochs=150, learning_rate=4e-3, batch_tokens=4096, seed=0)
    return policy.model, world


def play_with(models, compute, tasks, *, temperature=1.0, seed=5, resamples=3):
    policy = Policy(models[0], VOCABULARY, max_new_tokens=24, compute=compute)
    config = ExperienceModelConfig(max_new_tokens=40, temperature=temperature, resamples=resamples)
    model = ExperienceModel(models[1], VOCABULARY, config, compute=compute)
    dream = Dream(model, ReplayBuffer(RetrievalConfig(k=0)), revealing=lambda *_: True)
    dream.seed = seed
    rollouts = play(policy, dream, tasks, max_steps=4, temperature=temperature, seed=seed)
    return rollouts, dream, policy


def steps_of(rollouts):
    return [
        [(step.action, step.next_state, step.reward, step.done) for step in rollout.trajectory.steps]
        for rollout in rollouts
    ]


def test_greedy_episodes_are_those_of_the_kept_cache(models, lessons):
    tasks = [lesson.task for lesson in lessons] * 2
    expected, dream, policy = play_with(models, Compute(), tasks, temperature=0.0, resamples=0)
    found, separate_dream, separate_policy = play_with(models, VLLM, tasks, temperature=0.0, resamples=0)
    assert steps_of(found) == steps_of(expected) and len(steps_of(found)[0]) >= 3
    assert [it.example for it in found] == [it.example for it in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-3, rtol=0
        )
    assert separate_dream.interactions == dream.interactions >= 12
    assert separate_dream.tokens == dream.tokens and separate_policy.tokens == policy.tokens


def test_sampled_episodes_come_back_to_the_bit_and_differ_from_one_another(models, lessons):
    tasks = repeat_tasks([lessons[0].task], 12)
    first, dream, _ = play_with(models, VLLM, tasks)
    second, again, _ = play_with(models, VLLM, tasks)
    other, _, _ = play_with(models, VLLM, tasks, seed=6)
    assert steps_of(first) == steps_of(second) and [r.logprobs for r in first] == [r.logprobs for r in second]
    assert dream.rejected == again.rejected and dream.tokens == again.tokens
    assert len({str(steps) for steps in steps_of(first)}) > 1 and steps_of(other) != steps_of(first)


def test_a_refused_answer_stalls_nobody(models, lessons, monkeypatch):
    """One episode's answers are refused over and over. The others are over after as many rounds as alone."""
    slow = replace(lessons[0].task, id="slow")

    def is_coherent(self, row, answer):
        return self._episodes[row].task.id != "slow"

    monkeypatch.setattr(Dream, "_is_coherent", is_coherent)
    ends = {}
    original = Dream._take_step

    def watch(self, row, query, answer):
        step = original(self, row, query, answer)
        ends[self._episodes[row].task.id] = engine_thread().rounds
        return step

    monkeypatch.setattr(Dream, "_take_step", watch)
    others = [replace(lessons[0].task, id=f"task-{number}") for number in range(4)]
    start = engine_thread().rounds
    play_with(models, VLLM, others, temperature=0.0)
    alone = max(ends.values()) - start
    start = engine_thread().rounds
    rollouts, dream, _ = play_with(models, VLLM, [slow, *others], temperature=0.0)
    together = max(ends[task.id] for task in others) - start
    assert together <= alone + 2
    assert rollouts[0].unparsable and not rollouts[0].trajectory.steps
    assert all(len(rollout.trajectory.steps) >= 3 for rollout in rollouts[1:])
    assert dream.rejected["contradicting_answers_a_step"] >= 3
