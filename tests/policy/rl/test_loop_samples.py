"""Which rollouts the RL loop trains on, and with which advantages."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from loop_builders import TASKS, Rewarding, advantages_of, even_rows, make_loop, never, same, weights

from components.environments.protocol import Step
from components.errors import TrainingError
from components.policy.rl.training_checks import (
    MAX_ITERATIONS_WITHOUT_SIGNAL,
)


def test_negative_advantages_are_multiplied_by_their_configured_weight():
    def train(weight, penalty=0.0):
        world = Rewarding(lambda row, action: row in (0, 4), length=2)
        loop = make_loop(
            world, iterations=1, scale_rewards=False, negative_advantage_weight=weight, idle_penalty=penalty
        )
        advantages = []

        def learn(samples, seed, rate, on_policy, observed):
            advantages.extend(advantages_of(samples))
            return {"loss": 0.0, "logprob_gap": 0.0}

        loop.learner.learn = learn
        loop.run()
        return sorted((round(min(values), 3), round(max(values), 3)) for values in advantages)

    assert train(1.0) == [(-0.25, -0.25)] * 6 + [(0.75, 0.75)] * 2
    assert train(0.5) == [(-0.125, -0.125)] * 6 + [(0.75, 0.75)] * 2
    assert train(0.0) == [(0.75, 0.75)] * 2
    assert {low for low, _ in train(0.0, penalty=1.0)} <= {
        0.0
    }  # an idle reply of a success is not trained on


def test_groups_without_variance_are_left_out():
    def first_group(row, action):
        return row < 4 and row % 2 == 0  # the second group of four always fails

    loop = make_loop(Rewarding(first_group), iterations=1)
    updates = []
    update = loop.learner.learn
    loop.learner.learn = lambda samples, *rest, **named: (
        updates.append((len(samples), advantages_of(samples))) or update(samples, *rest, **named)
    )
    state = loop.run()
    assert [(count, [values[0] for values in advantages]) for count, advantages in updates] == [
        (4, pytest.approx([1, -1, 1, -1], abs=1e-4))
    ]
    assert state.series["zero_variance_groups"] == [0.5]


def test_an_iteration_without_variance_leaves_the_weights():
    loop = make_loop(Rewarding(never), iterations=2)
    before = weights(loop)
    state = loop.run()
    assert (
        same(before, weights(loop))
        and state.series["zero_variance_groups"] == [1.0, 1.0]
        and state.iterations_without_signal == 2
    )


def test_idle_replies_are_penalised_even_if_all_returns_are_equal():
    """The world always answers with the same state: only the first reply changes it, if it has an action."""
    loop = make_loop(
        Rewarding(never, length=3),
        iterations=1,
        optimizer_steps=1,
        idle_penalty=0.25,
        loss_aggregation="token",
    )
    played = []
    state = loop.run(on_rollouts=lambda number, rollouts: played.extend(rollouts))
    expected_idle = [[rollout.trajectory.steps[0].action == "?", True, True] for rollout in played]
    assert [rollout.idle for rollout in played] == expected_idle
    replies = [[sum(part.loss) for part in rollout.example.segments if any(part.loss)] for rollout in played]
    idle_tokens = sum(
        length
        for row, idle in zip(replies, expected_idle, strict=True)
        for length, flag in zip(row, idle, strict=True)
        if flag
    )
    assert state.series["loss"][0] == pytest.approx(0.25 * idle_tokens / sum(map(sum, replies)), abs=1e-4)
    assert state.series["idle_steps"] == [sum(map(sum, expected_idle)) / 24]


def test_a_broken_episode_is_counted_and_not_trained_on():
    loop = make_loop(Rewarding(even_rows, broken=1), iterations=1)
    trained_rollouts = []
    update = loop.learner.learn
    loop.learner.learn = lambda samples, *rest, **named: (
        trained_rollouts.extend(sample.rollouts[0] for sample in samples) or update(samples, *rest, **named)
    )
    state = loop.run()
    assert len(trained_rollouts) == 7 and not any(r.broken for r in trained_rollouts)
    assert state.series["broken_episodes"] == [0.125]
    assert state.series["success_rate"] == state.series["return_mean"] == [pytest.approx(4 / 7)], (
        "a broken episode is neither a success nor a failure"
    )


@pytest.mark.parametrize("unanswered", ["left_out", "failure"])
def test_an_unanswered_episode_is_counted_and_left_out_or_a_failure_in_its_group(unanswered):
    """Rows 0 and 2 of a group of four are won; row 1 has no answer, row 3 is lost."""
    world = Rewarding(even_rows)
    answer = world.answer
    world.answer = lambda row, action: (
        Step("s", 0.0, True, {"unparsable": True}) if row == 1 else answer(row, action)
    )
    loop = make_loop(
        world, iterations=1, scale_rewards=False, negative_advantage_weight=1.0, unanswered=unanswered
    )
    trained = []
    update = loop.learner.learn
    loop.learner.learn = lambda samples, *rest, **named: (
        trained.extend(zip(samples, advantages_of(samples), strict=True)) or update(samples, *rest, **named)
    )
    state = loop.run()
    first_group = [round(values[0], 3) for _, values in trained[:-4]]
    if unanswered == "left_out":
        assert first_group == [0.333, 0.333, -0.667]
    else:
        assert first_group == [0.5, -0.5, 0.5, -0.5]
    assert sum(sample.rollouts[0].unparsable for sample, _ in trained) == (unanswered == "failure")
    assert state.series["unparsable_episodes"] == [0.125]


def test_the_whole_batch_is_compared_if_each_task_is_played_once():
    settings = {"algorithm": "ppo", "num_generations": 1, "iterations": MAX_ITERATIONS_WITHOUT_SIGNAL + 1}
    state = make_loop(Rewarding(even_rows), **settings).run()
    assert state.iteration == MAX_ITERATIONS_WITHOUT_SIGNAL + 1 and set(
        state.series["zero_variance_groups"]
    ) == {0.0}
    with pytest.raises(
        TrainingError, match="nothing to learn for 8 consecutive iterations: no task had both"
    ):
        make_loop(Rewarding(never), **settings).run()


def successes_of_different_lengths():
    world = Rewarding(lambda row, action: True)
    world.ends = lambda row: world.steps[row] == 1 + row % 2
    return world


SIGNALS = {
    "hero ranks failures": (lambda: Rewarding(never), {"reward": "hero", "scale_rewards": False}),
    "ppo compares tasks": (lambda: Rewarding(lambda row, action: row < 4), {"algorithm": "ppo"}),
    "a shorter success": (successes_of_different_lengths, {"step_weight": 2.0}),
}


@pytest.mark.parametrize(("world", "settings"), SIGNALS.values(), ids=SIGNALS)
def test_groups_with_equal_outcomes_may_have_a_learning_signal(world, settings):
    """All outcomes of each group are equal, and yet the advantages differ."""
    places = count()
    state = make_loop(
        world(),
        progress=lambda episode: next(places) % 3 / 3,
        iterations=MAX_ITERATIONS_WITHOUT_SIGNAL + 2,
        **settings,
    ).run()
    assert (
        set(state.series["zero_variance_groups"]) == {1.0}
        and min(state.series["lessons"]) > 0
        and state.iterations_without_signal == 0
    )


def test_successes_of_different_lengths_give_no_signal_without_step_weight():
    loop = make_loop(successes_of_different_lengths(), iterations=1, step_weight=0.0)
    before = weights(loop)
    assert loop.run().series["lessons"] == [0.0] and same(before, weights(loop))


def test_the_hero_weight_multiplies_the_advantages():
    """The same rewards have two weights. On the rewards, a normalisation would cancel the weight."""
    loop = make_loop(Rewarding(even_rows), progress=lambda episode: 0.5, reward="hero", scale_rewards=False)
    group = loop.player.play(loop.policy, [TASKS[0]] * 8, max_steps=3, temperature=1.0, seed=0).rollouts
    returns = loop.algorithm.rewards.returns(group)[0]
    advantages = []
    for weight in (1.0, 0.25):
        loop.algorithm.rewards.returns = lambda _, weight=weight: (returns, weight)
        advantages.append(advantages_of(loop.algorithm.training_samples([group], loop.policy)))
    for whole, quarter in zip(*advantages, strict=True):
        assert any(whole) and quarter == pytest.approx([0.25 * value for value in whole])


def test_ppo_subtracts_the_idle_penalty_from_the_advantages():
    loop = make_loop(Rewarding(even_rows, length=2), algorithm="ppo", idle_penalty=0.5)
    group = loop.player.play(loop.policy, [TASKS[0]] * 4, max_steps=3, temperature=1.0, seed=0).rollouts
    idle = [replace(rollout, idle=(True, False)) for rollout in group]
    active = [replace(rollout, idle=(False, False)) for rollout in group]
    advantages = [
        advantages_of(loop.algorithm.training_samples([one], loop.policy)) for one in (idle, active)
    ]
    for rollout, penalised, plain in zip(group, *advantages, strict=True):
        first = rollout.reply_lengths[0]
        assert (
            penalised[:first] == pytest.approx([value - 0.5 for value in plain[:first]])
            and penalised[first:] == plain[first:]
        )
