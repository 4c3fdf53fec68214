"""What stops or refuses an RL loop: no learning signal, a collapse, defective numbers, broken infrastructure."""

from __future__ import annotations

import math

import pytest
from loop_builders import Rewarding, even_rows, make_loop, never, same, weights

from components.environments.protocol import Step
from components.errors import ConfigError, EnvironmentFailure, TrainingError
from components.policy.rl.loop import (
    read_iteration_count,
)
from components.policy.rl.training_checks import (
    COLLAPSE_WINDOW,
    MAX_ITERATIONS_WITHOUT_SIGNAL,
)


def test_a_weight_without_demonstrations_is_refused():
    with pytest.raises(TrainingError, match="no demonstration.*demonstration_weight=0"):
        make_loop(Rewarding(even_rows), demonstration_weight=0.1)


def test_a_hybrid_reward_without_a_measure_of_progress_is_refused():
    with pytest.raises(ConfigError, match="hero needs an adapter with `progress`"):
        make_loop(Rewarding(even_rows), reward="hero", scale_rewards=False)


def test_infrastructure_that_breaks_most_episodes_is_no_collapse_and_where_all_break_it_is_named():
    """Half are won throughout; later six of eight break in each iteration, and those would look like a policy
    that has unlearnt.
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


def test_too_many_iterations_without_signal_stop_the_loop():
    loop = make_loop(Rewarding(never), iterations=MAX_ITERATIONS_WITHOUT_SIGNAL + 5)
    with pytest.raises(
        TrainingError,
        match=f"All advantages were zero for {MAX_ITERATIONS_WITHOUT_SIGNAL} consecutive.*temperature",
    ):
        loop.run()
    assert loop.state.iteration == MAX_ITERATIONS_WITHOUT_SIGNAL - 1


def test_iterations_without_signal_must_be_consecutive():
    calls = []

    def seldom(row, action):
        calls.append(row)
        return row == 0 and len(calls) // 8 % 5 == 4

    assert make_loop(Rewarding(seldom), iterations=12, num_generations=4).run().iteration == 12


def test_a_policy_that_has_unlearnt_stops_the_loop():
    calls = []

    def ever_less(row, action):
        calls.append(row)
        return row % 2 == 0 if len(calls) <= 8 * COLLAPSE_WINDOW else row == 0

    loop = make_loop(Rewarding(ever_less), iterations=20)
    with pytest.raises(
        TrainingError,
        match="collapsed: its success rate is 0.12 over the last 4 iterations, 0.50 over the first.*rate",
    ):
        loop.run()
    assert loop.state.iteration == 2 * COLLAPSE_WINDOW


@pytest.mark.parametrize(("group", "collapses"), [(32, True), (4, False)])
def test_a_short_loop_sees_a_collapse_too_if_it_has_rollouts_enough(group, collapses):
    """Seven iterations of two tasks: two of 64 rollouts are compared as soon as there are four."""
    seen: list[int] = []

    def early(row, action):
        seen.append(row)
        return row % 2 == 0 if len(seen) <= 2 * 2 * group else row == 0

    loop = make_loop(Rewarding(early), iterations=7, num_generations=group)
    if collapses:
        with pytest.raises(
            TrainingError, match=r"success rate is 0\.02 over the last 2 iterations, 0\.50 over the first"
        ):
            loop.run()
    else:
        assert loop.run().iteration == 7


def test_a_collapse_is_found_again_however_often_the_command_is_typed(tmp_path):
    def unlearning(seen):
        return lambda row, action: (
            seen.append(row) or (row % 2 == 0 if len(seen) <= 8 * COLLAPSE_WINDOW else row == 0)
        )

    options = {"iterations": 2 * COLLAPSE_WINDOW, "checkpoint": tmp_path / "c"}
    with pytest.raises(TrainingError, match="collapsed"):
        make_loop(Rewarding(unlearning([])), **options).run()
    assert read_iteration_count(tmp_path / "c") == 2 * COLLAPSE_WINDOW - 1, (
        "the iteration that showed it is not kept"
    )
    with pytest.raises(TrainingError, match="collapsed"):
        make_loop(Rewarding(unlearning([0] * 99)), **options).run()


def test_a_loss_that_is_no_number_stops_the_loop():
    loop = make_loop(Rewarding(even_rows), iterations=2)

    def poison(number, rollouts):
        if number == 1:
            next(loop.policy.model.parameters()).data.fill_(math.nan)

    with pytest.raises(TrainingError, match="Iteration 1: The policy loss is nan.*learning_rate"):
        loop.run(on_rollouts=poison)


def test_a_gradient_that_is_no_number_leaves_weights_and_checkpoint(tmp_path):
    loop = make_loop(Rewarding(even_rows), iterations=2, optimizer_steps=1, checkpoint=tmp_path / "c")
    kept = []

    def poison(number, rollouts):
        if number == 1:
            kept.append(weights(loop))
            next(loop.policy.model.parameters()).register_hook(lambda gradient: gradient * math.inf)

    with pytest.raises(TrainingError, match="Iteration 1: The norm of the gradient is (inf|nan).*rate"):
        loop.run(on_rollouts=poison)
    assert same(kept[0], weights(loop)) and read_iteration_count(tmp_path / "c") == 1
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
