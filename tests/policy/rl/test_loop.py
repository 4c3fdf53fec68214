"""The RL loop: figures of an iteration, its first update, learning rates, budgets and seeds."""

from __future__ import annotations

import math

import pytest
import torch
from loop_builders import TASKS, Rewarding, even_rows, make_loop, same, weights

from components.policy.rl.task_source import EvenTasks


def test_an_iteration_changes_the_weights_and_reports_figures():
    world = Rewarding(even_rows, length=2)
    loop = make_loop(world, iterations=1)
    before = weights(loop)
    reports = []
    state = loop.run(on_iteration=lambda number, values: reports.append((number, values)))
    assert not same(before, weights(loop))
    (number, values), *_ = reports
    assert (number, state.iteration, state.interactions) == (1, 1, 16)
    expected = {
        "success_rate": 0.5,
        "return_mean": 0.5,
        "episode_length": 2.0,
        "zero_variance_groups": 0.0,
        "interactions": 16.0,
        "broken_episodes": 0.0,
        "generated_task_share": 0.0,
        "unparsable_episodes": 0.0,
    }
    assert {name: values[name] for name in expected} == expected
    assert values["logprob_gap"] < 1e-3 and values["clip_share"] == 0 and values["policy_entropy"] > 3
    assert state.series["success_rate"] == [0.5]


@pytest.mark.parametrize("settings", [{}, {"staleness": 1}])
def test_small_groups_beside_a_full_one_are_compared_within_themselves_and_count_as_steps(settings):
    """One place is a full group of four rollouts, the other is shared by two tasks with two each."""

    class Sharing(EvenTasks):
        def sample_rows(self, count, group_size, seed):
            return [TASKS[0]] * group_size + [TASKS[1]] * 2 + [TASKS[2]] * 2

        def report(self, returns, seed):
            reported.append({task_id: values for task_id, (_, values) in returns.items()})
            return {}

    reported = []
    world = Rewarding(lambda row, action: row in (0, 4, 6, 7))
    loop = make_loop(world, tasks=Sharing(TASKS), iterations=2, **settings)
    state = loop.run()
    by_task = {"t0": [1.0, 0.0, 0.0, 0.0], "t1": [1.0, 0.0], "t2": [1.0, 1.0]}
    assert reported == [by_task, by_task]
    assert state.series["zero_variance_groups"] == [pytest.approx(1 / 3)] * 2
    assert state.series["lessons"] == [6.0, 6.0] and state.interactions == 16


@pytest.mark.parametrize("aggregation", ["episode", "token"])
def test_the_loss_of_the_first_update_is_minus_the_mean_advantage(aggregation):
    """All ratios are 1, so the loss is minus the mean advantage. Successes and failures differ in length."""
    world = Rewarding(lambda row, action: row in (0, 1, 4))
    world.ends = lambda row: world.steps[row] == (1 if row in (0, 1, 4) else 3)
    loop = make_loop(
        world, iterations=1, optimizer_steps=1, scale_rewards=False, loss_aggregation=aggregation
    )
    played = []
    loop.run(on_rollouts=lambda number, rollouts: played.extend(rollouts))
    lengths = [len(r.logprobs) for r in played]
    advantages = [0.5, 0.5, -0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    weights = lengths if aggregation == "token" else [1] * 8
    by_hand = -sum(weight * value for weight, value in zip(weights, advantages, strict=True)) / sum(weights)
    assert sorted(set(lengths)) == [6, 18] and loop.state.series["loss"][0] == pytest.approx(
        by_hand, abs=1e-4
    )


def test_the_share_of_clipped_tokens_covers_all_updates():
    """Before the first step no ratio is clipped; after such large steps some are."""
    state = make_loop(
        Rewarding(even_rows), iterations=1, learning_rate=3e-2, num_iterations=3, optimizer_steps=1
    ).run()
    assert state.series["clip_share"][0] > 0 and state.series["logprob_gap"][0] < 1e-3


def test_the_learning_rate_is_linear_or_constant():
    for schedule, expected in (("linear", [4e-3, 2e-3, 1e-3]), ("constant", [4e-3, 4e-3, 4e-3])):
        loop = make_loop(Rewarding(even_rows), iterations=4, learning_rate=4e-3, schedule=schedule)
        rates = {}
        settings = loop.learner.optimizers.parts[0].param_groups[0]
        loop.run(
            on_iteration=lambda number, _, settings=settings, rates=rates: rates.update(
                {number: settings["lr"]}
            )
        )
        assert [rates[1], rates[3], rates[4]] == pytest.approx(expected)


def test_the_gradient_norm_is_clipped_to_one():
    """The advantages are scaled up, so that the norm exceeds 1; the gradient at the step has norm 1."""
    loop = make_loop(Rewarding(even_rows), iterations=1, optimizer_steps=1, learning_rate=1.0)
    before = weights(loop)
    norms = []
    trained_weights = loop.learner.trained_weights()

    def descend(rate):
        norms.append(sum(float(weight.grad.pow(2).sum()) for weight in trained_weights.values()) ** 0.5)

    loop.learner.optimizers.step = descend
    token_weights = loop.learner.algorithm.token_weights
    loop.learner.algorithm.token_weights = lambda samples: [
        1000 * weight for weight in token_weights(samples)
    ]
    figure = loop.run().series["gradient_norm"][0]
    assert figure > 1 and norms == pytest.approx([1.0], abs=1e-3) and same(before, weights(loop))


@pytest.mark.parametrize(("budget", "iterations"), [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2), (10_000, 5)])
def test_the_budget_is_never_exceeded(budget, iterations):
    world = Rewarding(even_rows, length=3)
    state = make_loop(world, iterations=5).run(budget=budget)
    assert (
        state.iteration == iterations
        and world.interactions == state.interactions == 24 * iterations <= budget
    )


def test_short_episodes_leave_budget_for_further_iterations():
    world = Rewarding(even_rows, length=1)
    state = make_loop(world, iterations=9).run(budget=40)
    assert state.iteration == 3 and world.interactions == 24 <= 40


@pytest.mark.parametrize(
    ("budget", "rates"),
    [
        (None, [1, 0.75, 0.5, 0.25]),
        (48, [1, 0.5]),  # 24 steps an iteration: the second begins with half of the budget used
        (400, [1, 0.75, 0.5, 0.25]),
    ],
)
def test_the_rate_falls_with_the_iterations_or_with_the_budget(budget, rates, monkeypatch):
    loop = make_loop(Rewarding(even_rows, length=3), iterations=4, schedule="linear")
    seen = []
    learn = loop.learner.learn

    def record(samples, seed, rate, **more):
        seen.append(rate / loop.config.learning_rate)
        return learn(samples, seed, rate, **more)

    monkeypatch.setattr(loop.learner, "learn", record)
    loop.run(budget=budget)
    assert seen == pytest.approx(rates)


def test_the_result_depends_on_the_seed_alone():
    runs = [make_loop(Rewarding(even_rows), iterations=2, seed=seed) for seed in (1, 1, 2)]
    for loop in runs:
        loop.run()
    first, second, other = map(weights, runs)
    assert same(first, second) and not same(first, other)


def test_small_forward_batches_give_the_same_update():
    def train(batch_tokens):
        loop = make_loop(Rewarding(even_rows, length=2), iterations=1, batch_tokens=batch_tokens)
        loop.run()
        return weights(loop)

    large, small = train(8192), train(64)
    for name in large:
        torch.testing.assert_close(large[name], small[name], atol=3e-4, rtol=0)


@pytest.mark.parametrize(
    ("sync_every", "measured"), [(1, [True] * 3), (2, [True, False, True]), (0, [False] * 3)]
)
def test_the_logprob_gap_is_measured_if_the_trained_policy_plays(sync_every, measured):
    state = make_loop(Rewarding(even_rows), algorithm="dpo", sync_every=sync_every).run()
    assert [not math.isnan(gap) for gap in state.series["logprob_gap"]] == measured
