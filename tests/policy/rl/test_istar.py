"""iStar's rewards of single replies: zero before training, and for what winners write afterwards."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task
from loop_builders import LORA, Rewarding, advantages_of, even_rows, make_loop, same, weights

from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.advantages.step_credit import istar
from components.policy.rl.advantages.step_credit.istar import ALPHA, ImplicitRewards
from components.policy.rl.training_checks import MAX_ITERATIONS_WITHOUT_SIGNAL
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

ISTAR = {"step_credit": "istar", "step_weight": 2.0}
"""`step_weight` at its default: iStar does not read it."""


def played(**settings):
    """Return a loop, and a group of two successes and two failures of three replies each."""
    policy = Policy(make_model(), VOCABULARY)
    loop = make_loop(Rewarding(even_rows, length=3), policy=policy, learning_rate=1e-2, **ISTAR, **settings)
    task = loop.tasks.sample(1, 0)[0]
    group = loop.player.play(policy, [task] * 4, max_steps=3, temperature=1.0, seed=0).rollouts
    return loop, group


def test_before_the_first_pair_no_reply_is_better_than_another():
    loop, group = played()
    rewards = ImplicitRewards(loop.policy, loop.config, 2).reply_rewards(group)
    assert [len(row) for row in rewards] == [3] * 4
    assert max(abs(value) for row in rewards for value in row) < 1e-5


def test_what_successes_wrote_is_rewarded_after_training_and_the_policy_is_not_changed():
    loop, group = played()
    implicit = ImplicitRewards(loop.policy, loop.config, 2)
    before = weights(loop)
    for _ in range(5):
        implicit.learn([group])
    sums = [sum(row) for row in implicit.reply_rewards(group)]
    assert min(sums[0], sums[2]) > max(sums[1], sums[3]) and same(before, weights(loop))


def test_step_advantages_have_a_mean_of_zero_and_are_added_to_those_of_the_episode():
    loop, group = played()
    samples = loop.algorithm.training_samples([group], loop.policy)
    before = advantages_of(samples)
    after = advantages_of(loop.algorithm.prepare_update(samples))
    added = [torch.tensor(new) - torch.tensor(old) for new, old in zip(after, before, strict=True)]
    replies = torch.stack(
        [part[0] for row, one in zip(added, group, strict=True) for part in row.split(one.reply_lengths)]
    )
    assert replies.mean().item() == pytest.approx(0, abs=1e-4)
    assert replies.std(correction=0).item() == pytest.approx(ALPHA, abs=1e-2)


def of_tokens(old, lengths, won):
    """Return a rollout with replies of `lengths` tokens that the sampler gave the log-probabilities `old`."""
    episode = make_episode(make_task(), *[("look", f"s{n}") for n in range(len(lengths))], won=won)
    replies = [Segment([1] * n, [True] * n) for n in lengths]
    return Rollout(episode, Example([Segment([0], [False]), *replies]), old, idle=[False] * len(lengths))


def with_scores(monkeypatch, *scores):
    """Return rewards whose model gives the tokens of the n-th rollout the log-probabilities `scores[n]`."""

    def score(policy, rollouts, **settings):
        return enumerate(SimpleNamespace(logprobs=torch.tensor(row)) for row in scores[: len(rollouts)])

    monkeypatch.setattr(istar, "score_without_gradients", score)
    loop, _ = played()
    return ImplicitRewards(loop.policy, loop.config, 2)


def test_the_reward_of_a_reply_is_beta_times_the_log_ratio_of_its_tokens(monkeypatch):
    """By hand: 0.05 (0.5 + 1), 0.05 (-1); 0.05 (-1), 0. Their mean is -0.00625, their deviation 0.0511585."""
    won = of_tokens([-1.0, -2.0, -3.0], [2, 1], True)
    lost = of_tokens([-1.0, -1.0], [1, 1], False)
    implicit = with_scores(monkeypatch, [-0.5, -1.0, -4.0], [-2.0, -1.0])
    first, second = implicit.reply_rewards([won, lost])
    assert first == pytest.approx([0.075, -0.05]) and second == pytest.approx([-0.05, 0.0])
    samples = [
        TrainingSample((won,), {"advantage": [1.0, 1.0, 1.0]}),
        TrainingSample((lost,), {"advantage": [-1.0, -1.0]}),
    ]
    first, second = advantages_of(implicit.add_step_advantages(samples, 0.5))
    assert first == pytest.approx([2.588202, 2.588202, 1 - 0.855185], abs=1e-4)
    assert second == pytest.approx([0.5 * (-1 - 0.855185), 0.5 * (-1 + 0.122169)], abs=1e-4)


def test_figures_say_how_phi_tells_pairs_apart_before_it_learns_from_them(monkeypatch):
    """By hand: the sums of r are 0.025 and -0.05 in the first pair; they are equal in the second."""
    pairs = [[of_tokens([-1.0], [1], True), of_tokens([-1.0], [1], False)] for _ in range(2)]
    implicit = with_scores(monkeypatch, [-0.5], [-2.0], [-1.0], [-1.0])
    expected = {
        "implicit_accuracy": 0.75,
        "implicit_loss": (math.log(1 + math.exp(-0.075)) + math.log(2)) / 2,
    }
    assert implicit.pair_figures(pairs) == pytest.approx(expected)
    assert all(map(math.isnan, implicit.pair_figures([pairs[0][:1]]).values()))


def test_the_loop_records_the_figures_of_phi():
    state = make_loop(Rewarding(even_rows), iterations=3, learning_rate=1e-2, **ISTAR).run()
    accuracies, losses = state.series["implicit_accuracy"], state.series["implicit_loss"]
    assert accuracies[0] == 0.5 and losses[0] == pytest.approx(math.log(2), abs=1e-4)
    assert len(accuracies) == len(losses) == 3 and losses[2] != losses[0]
    assert "implicit_loss" not in make_loop(Rewarding(even_rows), iterations=1).run().series


def test_groups_of_one_outcome_are_a_signal_once_phi_has_seen_a_pair():
    calls = []

    def only_the_first_iteration_has_failures(row, action):
        calls.append(row)
        return len(calls) > 8 or row % 2 == 0

    count = MAX_ITERATIONS_WITHOUT_SIGNAL + 2
    loop = make_loop(Rewarding(only_the_first_iteration_has_failures), iterations=count, **ISTAR)
    assert loop.run().iteration == count and loop.state.series["zero_variance_groups"][-1] == 1.0
    assert min(loop.state.series["lessons"]) == 8


def test_a_group_without_a_pair_leaves_the_model_as_it_is():
    loop, group = played()
    implicit = ImplicitRewards(loop.policy, loop.config, 2)
    implicit.learn([group[0::2], group[1::2]])
    assert max(abs(value) for row in implicit.reply_rewards(group) for value in row) < 1e-5


def test_rounding_errors_are_no_preference():
    """Before the first pair phi is the policy: nothing is added, however small the deviation is."""
    loop, group = played()
    samples = loop.algorithm.training_samples([group[0::2], group[1::2]], loop.policy)
    samples += loop.algorithm.training_samples([group], loop.policy)
    implicit = ImplicitRewards(loop.policy, loop.config, 2)
    before = advantages_of(samples)
    assert advantages_of(implicit.add_step_advantages(samples, 1.0)) == before and any(map(any, before))


def test_negative_sums_are_weighted_like_other_negative_advantages():
    loop, group = played(negative_advantage_weight=0.5)
    samples = loop.algorithm.training_samples([group], loop.policy)
    implicit = ImplicitRewards(loop.policy, loop.config, 2)
    implicit.learn([group])
    whole, halved = (advantages_of(implicit.add_step_advantages(samples, weight)) for weight in (1.0, 0.5))
    expected = [[value if value > 0 else value / 2 for value in row] for row in whole]
    assert halved == expected and any(value < 0 for row in whole for value in row)


def test_episodes_of_one_outcome_are_trained_on_once_replies_can_be_told_apart():
    loop, group = played(idle_penalty=0.0)
    won = group[0::2]
    assert loop.algorithm.training_samples([won], loop.policy) == [], "before the first pair nothing tells"
    assert len(loop.algorithm.training_samples([won, group], loop.policy)) == 6
    loop.algorithm.prepare_update(loop.algorithm.training_samples([group], loop.policy))
    assert len(loop.algorithm.training_samples([won], loop.policy)) == 2, "what was learnt stays"


def test_a_group_of_one_has_no_pair_and_is_trained_on_once_phi_has_seen_one():
    """The others of its group were left out, such as those that the dream did not answer."""
    loop, group = played(idle_penalty=0.0)
    assert loop.algorithm.training_samples([group[:1], []], loop.policy) == []
    assert math.isnan(loop.algorithm.report()["implicit_accuracy"])
    loop.algorithm.prepare_update(loop.algorithm.training_samples([group], loop.policy))
    (sample,) = loop.algorithm.prepare_update(loop.algorithm.training_samples([group[:1]], loop.policy))
    assert sample.has_signal and all(map(math.isfinite, sample.targets["advantage"]))


def test_with_adapters_only_they_are_trained():
    loop, group = played(lora=LORA)
    implicit = ImplicitRewards(loop.policy, loop.config, 2)
    before = {name: weight.clone() for name, weight in implicit.state_dict()["model"].items()}
    implicit.learn([group])
    changed = {
        name for name, weight in implicit.state_dict()["model"].items() if not weight.equal(before[name])
    }
    assert changed and all("lora" in name for name in changed)
