"""What stops an RL loop: no learning signal, a collapse, numbers that are not finite, infrastructure."""

from __future__ import annotations

import math

import pytest
from loop_builders import Rewarding, even_rows, make_loop, never, same, weights

from components.environments.protocol import Step
from components.errors import ConfigError, EnvironmentFailure, TrainingError
from components.policy.rl.loop_checkpoints import read_iteration_count
from components.policy.rl.training_checks import (
    COLLAPSE_WINDOW,
    MAX_ITERATIONS_WITHOUT_SIGNAL,
)


def test_a_demonstration_weight_without_demonstrations_is_refused():
    with pytest.raises(TrainingError, match="no demonstration.*demonstration_weight=0"):
        make_loop(Rewarding(even_rows), demonstration_weight=0.1)


def test_the_hero_reward_without_progress_is_refused():
    with pytest.raises(ConfigError, match="hero needs an adapter with `progress`"):
        make_loop(Rewarding(even_rows), reward="hero", scale_rewards=False)


def test_broken_episodes_are_no_collapse_and_stop_the_loop_if_all_break():
    """Half of the episodes succeed throughout. Later six of eight break in each iteration. Counted as
    failures, they would look like a collapse.
    """

    class Failing(Rewarding):
        iterations = 0

        def reset(self, tasks):
            self.iterations += 1
            return super().reset(tasks)

        def answer(self, row, action):
            fails = self.iterations > COLLAPSE_WINDOW and row < 6
            return Step("s", 0.0, True, {"failed": "gone"}) if fails else super().answer(row, action)

    state = make_loop(Failing(even_rows), iterations=2 * COLLAPSE_WINDOW).run()
    assert (
        state.series["success_rate"] == [0.5] * 2 * COLLAPSE_WINDOW
        and state.series["broken_episodes"][-1] == 0.75
    )
    down = Rewarding(even_rows)
    down.answer = lambda row, action: Step("s", 0.0, True, {"failed": "the sites are down"})
    with pytest.raises(
        EnvironmentFailure,
        match="All 8 episodes of this iteration failed for infrastructure reasons.*: the sites are down",
    ):
        make_loop(down, iterations=1).run()


@pytest.mark.parametrize("algorithm", ["grpo", "dpo", "rft"])
def test_too_many_iterations_without_signal_stop_the_loop(algorithm):
    loop = make_loop(Rewarding(never), algorithm=algorithm, iterations=MAX_ITERATIONS_WITHOUT_SIGNAL + 5)
    with pytest.raises(
        TrainingError,
        match=f"nothing to learn for {MAX_ITERATIONS_WITHOUT_SIGNAL} consecutive iterations: no task had "
        "both a success and a failure.*no pair to compare.*temperature",
    ):
        loop.run()
    assert loop.state.iteration == MAX_ITERATIONS_WITHOUT_SIGNAL - 1


def test_iterations_without_signal_must_be_consecutive():
    calls = []

    def success_every_fifth_iteration(row, action):
        calls.append(row)
        return row == 0 and len(calls) // 8 % 5 == 4

    assert (
        make_loop(Rewarding(success_every_fifth_iteration), iterations=12, num_generations=4).run().iteration
        == 12
    )


def test_a_collapsed_policy_stops_the_loop():
    calls = []

    def half_then_one_success(row, action):
        calls.append(row)
        return row % 2 == 0 if len(calls) <= 8 * COLLAPSE_WINDOW else row == 0

    loop = make_loop(Rewarding(half_then_one_success), iterations=20)
    with pytest.raises(
        TrainingError,
        match="collapsed: its success rate is 0.12 over the last 4 iterations, 0.50 over the first.*rate",
    ):
        loop.run()
    assert loop.state.iteration == 2 * COLLAPSE_WINDOW


def test_a_negative_control_trains_on_without_a_signal_and_after_a_collapse():
    without_signal = MAX_ITERATIONS_WITHOUT_SIGNAL + 2
    loop = make_loop(Rewarding(never), iterations=without_signal, end_early=False)
    before = weights(loop)
    assert loop.run().iteration == without_signal and same(before, weights(loop))
    calls = []

    def half_then_none(row, action):
        calls.append(row)
        return row % 2 == 0 and len(calls) <= 8 * COLLAPSE_WINDOW

    iterations = 2 * COLLAPSE_WINDOW + 1
    assert make_loop(Rewarding(half_then_none), iterations=iterations, end_early=False).run().iteration == (
        iterations
    )


@pytest.mark.parametrize(("group", "collapses"), [(32, True), (4, False)])
def test_a_short_loop_detects_a_collapse_if_it_has_enough_rollouts(group, collapses):
    """Seven iterations of two tasks. With groups of 32, windows of two iterations have 128 rollouts."""
    calls: list[int] = []

    def half_then_one_success(row, action):
        calls.append(row)
        return row % 2 == 0 if len(calls) <= 2 * 2 * group else row == 0

    loop = make_loop(Rewarding(half_then_one_success), iterations=7, num_generations=group)
    if collapses:
        with pytest.raises(
            TrainingError, match=r"success rate is 0\.02 over the last 2 iterations, 0\.50 over the first"
        ):
            loop.run()
    else:
        assert loop.run().iteration == 7


def test_a_resumed_loop_detects_the_collapse_again(tmp_path):
    def half_then_one_success(calls):
        return lambda row, action: (
            calls.append(row) or (row % 2 == 0 if len(calls) <= 8 * COLLAPSE_WINDOW else row == 0)
        )

    options = {"iterations": 2 * COLLAPSE_WINDOW, "checkpoint": tmp_path / "c"}
    with pytest.raises(TrainingError, match="collapsed"):
        make_loop(Rewarding(half_then_one_success([])), **options).run()
    assert read_iteration_count(tmp_path / "c") == 2 * COLLAPSE_WINDOW - 1, (
        "the iteration of the collapse is not saved"
    )
    with pytest.raises(TrainingError, match="collapsed"):
        make_loop(Rewarding(half_then_one_success([0] * 99)), **options).run()


def test_a_loss_of_nan_stops_the_loop():
    loop = make_loop(Rewarding(even_rows), iterations=2)

    def poison(number, rollouts):
        if number == 1:
            next(loop.policy.model.parameters()).data.fill_(math.nan)

    with pytest.raises(TrainingError, match="Iteration 1: The policy loss is nan.*learning_rate"):
        loop.run(on_rollouts=poison)


def test_a_gradient_that_is_not_finite_changes_neither_weights_nor_checkpoint(tmp_path):
    loop = make_loop(Rewarding(even_rows), iterations=2, optimizer_steps=1, checkpoint=tmp_path / "c")
    saved_weights = []

    def poison(number, rollouts):
        if number == 1:
            saved_weights.append(weights(loop))
            next(loop.policy.model.parameters()).register_hook(lambda gradient: gradient * math.inf)

    with pytest.raises(TrainingError, match="Iteration 1: The norm of the gradient is (inf|nan).*rate"):
        loop.run(on_rollouts=poison)
    assert same(saved_weights[0], weights(loop)) and read_iteration_count(tmp_path / "c") == 1
    assert (
        make_loop(Rewarding(even_rows), iterations=2, optimizer_steps=1, checkpoint=tmp_path / "c")
        .run()
        .iteration
        == 2
    )


def test_sampler_and_trainer_that_disagree_stop_the_loop():
    def falsify(number, rollouts):
        for rollout in rollouts:
            rollout.logprobs[:] = [value - 0.2 for value in rollout.logprobs]

    with pytest.raises(
        TrainingError, match=r"Iteration 0: Sampler and trainer differ by 0\.2 nats per token.*at most 0\.05"
    ):
        make_loop(Rewarding(even_rows), iterations=1).run(on_rollouts=falsify)
