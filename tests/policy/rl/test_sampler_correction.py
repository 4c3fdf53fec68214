"""Rollouts of a sampler that rounds differently: the trainer's scores, truncated weights, their spread."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from builders import VOCABULARY, make_model
from policy.rl.loop_builders import TASKS, Rewarding, even_rows, make_config, make_loop

from components.errors import TrainingError
from components.language.compute import Compute, has_bf16
from components.policy.policy import Policy
from components.policy.rl.algorithms.algorithm import LossInputs
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rl.players import sampler_correction
from components.policy.rl.players.sampler_correction import (
    IMPORTANCE,
    MAX_WEIGHT,
    RATIO_FIGURES,
    correct_for_sampler,
    ratio_figures,
)
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import play


@pytest.fixture(scope="module")
def policy():
    return Policy(make_model(hidden=32), VOCABULARY, max_new_tokens=6)


@pytest.fixture(scope="module")
def rollouts(policy):
    return play(policy, Rewarding(even_rows), TASKS, max_steps=1, temperature=1.0, seed=0)


def shifted(rollouts, shift):
    """Samples whose recorded log-probabilities are off by `shift` at every first token."""
    moved = [
        replace(rollout, logprobs=[rollout.logprobs[0] + shift, *rollout.logprobs[1:]])
        for rollout in rollouts
    ]
    return [TrainingSample((rollout,), {"advantage": [1.0] * rollout.token_count}) for rollout in moved]


def test_old_log_probabilities_become_the_trainers(policy, rollouts):
    samples, figures = correct_for_sampler(policy, shifted(rollouts, 0.1), temperature=1.0, batch_tokens=64)
    scores = dict(score_without_gradients(policy, rollouts, temperature=1.0, batch_tokens=64))
    for row, sample in enumerate(samples):
        assert sample.rollouts[0].logprobs == pytest.approx(scores[row].logprobs.tolist(), abs=1e-6)
        weights = sample.targets[IMPORTANCE]
        assert weights[0] == pytest.approx(math.exp(-0.1), rel=1e-4)
        assert weights[1:] == pytest.approx([1.0] * (len(weights) - 1), rel=1e-4)
    assert figures["logprob_gap"] == pytest.approx(0.1 * 4 / sum(r.token_count for r in rollouts), rel=0.01)


def test_weights_are_truncated(policy, rollouts, monkeypatch):
    monkeypatch.setattr(sampler_correction, "check_logprob_gap", lambda gap: None)
    samples, _ = correct_for_sampler(policy, shifted(rollouts, -3.0), temperature=1.0, batch_tokens=64)
    assert [sample.targets[IMPORTANCE][0] for sample in samples] == [MAX_WEIGHT] * len(samples)


def test_a_difference_beyond_rounding_is_refused(policy, rollouts):
    with pytest.raises(TrainingError, match="Sampler and trainer differ by"):
        correct_for_sampler(policy, shifted(rollouts, -3.0), temperature=1.0, batch_tokens=64)


def test_the_spread_shows_what_the_mean_hides():
    ratios = torch.ones(1000)
    ratios[:40] = 1.5
    ratios[40:100] = 0.7
    figures = ratio_figures(ratios)
    assert abs(float(ratios.mean()) - 1) < 0.003
    assert figures["sampler_ratio_outside"] == pytest.approx(0.1)
    assert (figures["sampler_ratio_p01"], figures["sampler_ratio_p99"]) == pytest.approx((0.7, 1.5))


@pytest.mark.skipif(not has_bf16("cpu"), reason="this CPU has neither AMX nor AVX512-BF16")
def test_a_loop_in_bf16_reports_the_ratios_and_one_in_fp32_does_not():
    state = make_loop(
        Rewarding(even_rows, length=2),
        iterations=2,
        policy=Policy(make_model(hidden=32), VOCABULARY, compute=Compute(precision="bf16")),
    ).run()
    assert all(len(state.series[name]) == 2 for name in RATIO_FIGURES)
    assert all(0.9 < value < 1.1 for value in state.series["sampler_ratio_p50"])
    plain = make_loop(Rewarding(even_rows, length=2), iterations=1).run()
    assert not set(RATIO_FIGURES) & set(plain.series)


def test_the_weights_multiply_the_clipped_loss():
    algorithm = make_algorithm(make_config({}), Policy(make_model(), VOCABULARY), None)
    plain = {"advantage": torch.tensor([1.0, -1.0])}
    new, old = torch.tensor([-1.0, -2.0]), torch.tensor([-1.1, -2.0])
    one, two = torch.ones(2), torch.tensor([0.5, 2.0])
    inputs = LossInputs(new, old, None, plain, one, [2], 2)
    losses, _ = algorithm.surrogate(inputs)
    weighted, _ = algorithm.surrogate(replace(inputs, targets=plain | {IMPORTANCE: two}))
    assert weighted.tolist() == pytest.approx((losses * two).tolist())
