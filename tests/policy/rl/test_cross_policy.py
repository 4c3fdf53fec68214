"""`cross_policy_share`: the initial policy writes some replies, and the trained one learns from them."""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, make_model
from policy.rl.loop_builders import TASKS, Rewarding, even_rows, make_loop
from pydantic import ValidationError

from components.config import DreamRLConfig, load_config
from components.errors import ConfigError, TrainingError
from components.policy.policy import Policy
from components.policy.rl.log_probabilities import score_without_gradients
from components.policy.rl.training_checks import check_partner
from components.policy.rollout import play


def make_policy(seed):
    torch.manual_seed(seed)
    return Policy(make_model(hidden=32), VOCABULARY, max_new_tokens=6)


def other_weights(policy):
    """A policy with other weights than `policy`."""
    other = policy.frozen_copy()
    with torch.no_grad():
        for weights in other.model.parameters():
            weights.add_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    return other


def play_episodes(policy, temperature=1.0, steps=4, seed=5):
    return play(
        policy, Rewarding(even_rows, steps), TASKS, max_steps=steps, temperature=temperature, seed=seed
    )


def scores(policy, rollouts):
    scored = dict(score_without_gradients(policy, rollouts, temperature=1.0, batch_tokens=256))
    return [scored[row].logprobs.tolist() for row in range(len(rollouts))]


def turns(rollout, values):
    """`values` of a rollout's tokens, by reply."""
    parts, start = [], 0
    for length in rollout.reply_lengths:
        parts.append(values[start : start + length])
        start += length
    return parts


def test_with_itself_as_partner_a_policy_plays_as_alone():
    policy = make_policy(0)
    alone = play_episodes(policy, temperature=0)
    crossed = play_episodes(policy.with_partner(policy.frozen_copy(), 0.5), temperature=0)
    assert [one.example for one in crossed] == [one.example for one in alone]


def test_each_reply_is_written_by_one_of_the_two_policies_who_both_read_all():
    policy = make_policy(0)
    partner = other_weights(policy)
    rollouts = play_episodes(policy.with_partner(partner, 0.5))
    writers = []
    for rollout, own, others in zip(
        rollouts, scores(policy, rollouts), scores(partner, rollouts), strict=True
    ):
        parts = zip(*(turns(rollout, values) for values in (rollout.logprobs, own, others)), strict=True)
        for sampled, by_own, by_partner in parts:
            fits = [value == pytest.approx(sampled, abs=1e-4) for value in (by_own, by_partner)]
            assert fits.count(True) == 1
            writers.append(fits.index(True))
    assert 0 < sum(writers) < len(writers) == 16


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_same_seed_gives_the_same_replies(share):
    policy = make_policy(0)
    partner = other_weights(policy)
    played = [play_episodes(policy.with_partner(partner, share)) for _ in range(2)]
    assert [one.example for one in played[0]] == [one.example for one in played[1]]
    if not share:
        assert [one.example for one in played[0]] == [one.example for one in play_episodes(policy)]


def test_the_loop_corrects_for_the_partner_and_resumes_exactly(tmp_path):
    def run(iterations, checkpoint):
        loop = make_loop(
            Rewarding(even_rows, 2),
            policy=make_policy(0),
            iterations=iterations,
            cross_policy_share=0.4,
            checkpoint=checkpoint,
        )
        return loop, loop.run()

    loop, state = run(4, tmp_path / "whole.pt")
    assert state.series["sampler_ratio_p99"][0] == pytest.approx(1.0, abs=1e-4), "both are the same at first"
    assert max(state.series["sampler_ratio_p99"][1:]) > 1.0001
    assert loop.policy.tokens > 0 and loop.policy.partner is None
    run(2, tmp_path / "stopped.pt")
    resumed, _ = run(4, tmp_path / "stopped.pt")
    for first, second in zip(loop.policy.model.parameters(), resumed.policy.model.parameters(), strict=True):
        assert torch.equal(first, second)


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(ValidationError, match="expected one of them to be 0"):
        DreamRLConfig(staleness=1, algorithm={"type": "grpo", "cross_policy_share": 0.2})
    with pytest.raises(ValidationError, match="replies of the initial policy"):
        DreamRLConfig(algorithm={"type": "grpo", "cross_policy_share": 0.2, "step_credit": "istar"})
    overrides = ["engine=vllm-server", "vllm.servers=[http://x]", "rl.dream.processes=1"]
    overrides.append("rl.algorithm.cross_policy_share=0.2")
    with pytest.raises(ConfigError, match="cross_policy_share with engine vllm-server"):
        load_config(None, overrides)
    with pytest.raises(TrainingError, match=r"engine of this machine is vllm, which holds one policy"):
        check_partner("vllm")
    check_partner("kept-cache")
