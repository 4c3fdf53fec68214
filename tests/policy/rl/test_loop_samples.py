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


def test_what_went_worse_than_its_group_counts_as_little_as_configured():
    def learnt(weight, penalty=0.0):
        world = Rewarding(lambda row, action: row in (0, 4), length=2)
        loop = make_loop(
            world, iterations=1, scale_rewards=False, negative_advantage_weight=weight, idle_penalty=penalty
        )
        seen = []

        def learn(lessons, seed, rate, on_policy):
            seen.extend(advantages_of(lessons))
            return {"loss": 0.0, "logprob_gap": 0.0}

        loop.learner.learn = learn
        loop.run()
        return sorted((round(min(values), 3), round(max(values), 3)) for values in seen)

    assert learnt(1.0) == [(-0.25, -0.25)] * 6 + [(0.75, 0.75)] * 2
    assert learnt(0.5) == [(-0.125, -0.125)] * 6 + [(0.75, 0.75)] * 2
    assert learnt(0.0) == [(0.75, 0.75)] * 2
    assert {low for low, _ in learnt(0.0, penalty=1.0)} <= {
        0.0
    }  # a reply of a won episode that changed nothing is not imitated


def test_groups_without_variance_are_left_out():
    def first_group(row, action):
        return row < 4 and row % 2 == 0  # the second group of four always loses

    loop = make_loop(Rewarding(first_group), iterations=1)
    seen = []
    update = loop.learner.learn
    loop.learner.learn = lambda found, *rest, **named: (
        seen.append((len(found), advantages_of(found))) or update(found, *rest, **named)
    )
    state = loop.run()
    assert [(count, [values[0] for values in advantages]) for count, advantages in seen] == [
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


def test_replies_that_change_nothing_lose_the_penalty_even_where_all_episodes_end_alike():
    """The world answers the same each time: the first reply changes the state (if it holds an action), the
    later ones do not.
    """
    loop = make_loop(
        Rewarding(never, length=3),
        iterations=1,
        optimizer_steps=1,
        idle_penalty=0.25,
        loss_aggregation="token",
    )
    kept = []
    state = loop.run(on_rollouts=lambda number, rollouts: kept.extend(rollouts))
    wasted = [[rollout.trajectory.steps[0].action == "?", True, True] for rollout in kept]
    assert [rollout.idle for rollout in kept] == wasted
    replies = [[sum(part.loss) for part in rollout.example.segments if any(part.loss)] for rollout in kept]
    spent = sum(
        length
        for row, idle in zip(replies, wasted, strict=True)
        for length, flag in zip(row, idle, strict=True)
        if flag
    )
    assert state.series["loss"][0] == pytest.approx(0.25 * spent / sum(map(sum, replies)), abs=1e-4)
    assert state.series["idle_steps"] == [sum(map(sum, wasted)) / 24]


def test_a_broken_episode_is_counted_and_not_learnt_from():
    loop = make_loop(Rewarding(even_rows, broken=1), iterations=1)
    seen = []
    update = loop.learner.learn
    loop.learner.learn = lambda lessons, *rest, **named: (
        seen.extend(x.rollouts[0] for x in lessons) or update(lessons, *rest, **named)
    )
    state = loop.run()
    assert len(seen) == 7 and not any(r.broken for r in seen)
    assert state.series["broken_episodes"] == [0.125]
    assert state.series["success_rate"] == state.series["return_mean"] == [pytest.approx(4 / 7)], (
        "a broken one is neither won nor lost"
    )


def test_an_episode_without_an_answer_of_the_dream_is_counted_and_not_learnt_from():
    world = Rewarding(even_rows)
    answer = world.answer
    world.answer = lambda row, action: (
        Step("s", 0.0, True, {"unparsable": True}) if row == 1 else answer(row, action)
    )
    loop, seen = make_loop(world, iterations=1), []
    update = loop.learner.learn
    loop.learner.learn = lambda lessons, *rest, **named: (
        seen.extend(x.rollouts[0] for x in lessons) or update(lessons, *rest, **named)
    )
    state = loop.run()
    assert len(seen) == 7 and not any(r.unparsable for r in seen)
    assert state.series["unparsable_episodes"] == [0.125]


def test_where_a_task_is_played_once_the_whole_batch_is_compared():
    settings = {"algorithm": "ppo", "num_generations": 1, "iterations": MAX_ITERATIONS_WITHOUT_SIGNAL + 1}
    state = make_loop(Rewarding(even_rows), **settings).run()
    assert state.iteration == MAX_ITERATIONS_WITHOUT_SIGNAL + 1 and set(
        state.series["zero_variance_groups"]
    ) == {0.0}
    with pytest.raises(TrainingError, match="All advantages were zero for 8 consecutive iterations"):
        make_loop(Rewarding(never), **settings).run()


def won_at_different_lengths():
    world = Rewarding(lambda row, action: True)
    world.ends = lambda row: world.steps[row] == 1 + row % 2
    return world


SIGNALS = {
    "hero ranks failures": (lambda: Rewarding(never), {"reward": "hero"}),
    "ppo compares tasks": (lambda: Rewarding(lambda row, action: row < 4), {"algorithm": "ppo"}),
    "a shorter success": (won_at_different_lengths, {"step_weight": 2.0}),
}


@pytest.mark.parametrize(("world", "settings"), SIGNALS.values(), ids=SIGNALS)
def test_groups_that_end_alike_may_still_teach(world, settings):
    """All outcomes of each group are the same, and yet some rollout is worth more than another."""
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


def test_successes_of_different_lengths_teach_grpo_nothing_without_its_steps():
    loop = make_loop(won_at_different_lengths(), iterations=1, step_weight=0.0)
    before = weights(loop)
    assert loop.run().series["lessons"] == [0.0] and same(before, weights(loop))


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_heros_weight_stands_on_the_advantages(algorithm):
    """The same rewards under two weights: on the rewards themselves normalisation by their deviation would
    cancel it.
    """
    loop = make_loop(Rewarding(even_rows), progress=lambda episode: 0.5, reward="hero", algorithm=algorithm)
    group = loop.player.play(loop.policy, [TASKS[0]] * 8, max_steps=3, temperature=1.0, seed=0)
    returns, found = loop.algorithm.rewards.returns(group)[0], []
    for weight in (1.0, 0.25):
        loop.algorithm.rewards.returns = lambda _, weight=weight: (returns, weight)
        found.append(advantages_of(loop.algorithm.training_samples([group], loop.policy)))
    for whole, quarter in zip(*found, strict=True):
        assert any(whole) and quarter == pytest.approx([0.25 * value for value in whole])


def test_ppo_takes_the_penalty_of_idle_replies_off_their_advantages():
    loop = make_loop(Rewarding(even_rows, length=2), algorithm="ppo", idle_penalty=0.5)
    group = loop.player.play(loop.policy, [TASKS[0]] * 4, max_steps=3, temperature=1.0, seed=0)
    marked = [replace(rollout, idle=(True, False)) for rollout in group]
    free = [replace(rollout, idle=(False, False)) for rollout in group]
    found = [advantages_of(loop.algorithm.training_samples([one], loop.policy)) for one in (marked, free)]
    for rollout, punished, spared in zip(group, *found, strict=True):
        first = rollout.reply_lengths[0]
        assert (
            punished[:first] == pytest.approx([value - 0.5 for value in spared[:first]])
            and punished[first:] == spared[first:]
        )
