"""The RL loop: what is learnt from, what stops it, what it survives, and that it learns.

The worlds here are written by hand: what the loop does must not depend on the world, a tiny model cannot win
a household game in seconds, and rewards that are known make the numbers checkable. The loop in real worlds is
what the flows run.
"""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace
from itertools import count

import pytest
import torch
from builders import VOCABULARY, make_episode, make_model, make_task

from components.config import BaselineRLConfig, CloningConfig, CurriculumConfig, LoraConfig, RLConfig
from components.config.algorithm_config import ALGORITHMS as ALGORITHM_SECTIONS
from components.environments.protocol import Step
from components.errors import ConfigError, EnvironmentFailure, TrainingError
from components.experience.curriculum import Curriculum
from components.language.compute import Compute, has_bf16
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs
from components.policy.agent_prompt import render_demonstration
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy
from components.policy.rl.algorithms import make_algorithm
from components.policy.rl.learner import LOGPROB_GAP_LIMIT
from components.policy.rl.loop import (
    COLLAPSE_WINDOW,
    MAX_ITERATIONS_WITHOUT_SIGNAL,
    Loop,
    Snapshots,
    read_iteration_count,
)
from components.policy.rl.rollout_workers import LocalPlayer
from components.policy.rl.task_source import EvenTasks
from components.policy.rollout import play

TASKS = [make_task(n, instruction=f"put a mug in desk {n}") for n in range(4)]


class Rewarding:
    """Episodes of `length` steps; the last one is rewarded as `reward(row, action)` says. Row `broken` breaks
    at once.
    """

    def __init__(self, reward, length=1, broken=None):
        self.reward, self.length, self.broken, self.interactions = reward, length, broken, 0

    def reset(self, tasks):
        self.steps = [0] * len(tasks)
        return [task.initial_state for task in tasks]

    def step(self, actions):
        return [None if action is None else self.answer(row, action) for row, action in enumerate(actions)]

    def ends(self, row):
        return self.steps[row] == self.length

    def answer(self, row, action):
        self.interactions += 1
        self.steps[row] += 1
        if row == self.broken:
            return Step("s", 0.0, True, {"failed": "gone"})
        done = self.ends(row)
        return Step("At desk 1: nothing.", float(done and self.reward(row, action)), done)

    def close(self):
        pass


def even_rows(row, action):
    return row % 2 == 0


def never(row, action):
    return False


def make_loop(
    world,
    *,
    tasks=None,
    policy=None,
    checkpoint=None,
    progress=None,
    max_steps=3,
    seed=0,
    demonstrations=(),
    lora=LoraConfig(),
    **settings,
):
    config = make_config(settings)
    policy = policy or Policy(make_model(), VOCABULARY)
    return Loop(
        policy,
        LocalPlayer(world),
        tasks or EvenTasks(TASKS),
        make_algorithm(config, policy, progress),
        config,
        max_steps=max_steps,
        seed=seed,
        lora=lora,
        checkpoint=checkpoint,
        demonstrations=demonstrations,
    )


def make_config(settings):
    """Small settings with a constant rate; what the algorithm has as options goes there, the rest to `rl`."""
    settings = dict(settings)
    kind = settings.pop("algorithm", "grpo")
    schedule = settings.pop("schedule", "constant")
    options = {"idle_penalty": 0.0, "step_weight": 0.0, "negative_advantage_weight": 1.0}
    options |= {"num_iterations": 1, "optimizer_steps": 2}
    fields = ALGORITHM_SECTIONS[kind].model_fields
    algorithm = {name: value for name, value in options.items() if name in fields}
    algorithm |= {name: settings.pop(name) for name in list(settings) if name in fields}
    defaults = {
        "iterations": 3,
        "tasks": 2,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "max_new_tokens": 6,
        "demonstration_weight": 0.0,
    }
    section = BaselineRLConfig if schedule == "constant" else RLConfig
    return section(**{**defaults, **settings}, algorithm={"type": kind, **algorithm})


def advantages_of(lessons):
    return [lesson.targets["advantage"] for lesson in lessons]


def weights(loop):
    return {name: weight.clone() for name, weight in loop.policy.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def figures(state):
    """The series without those that tell the machine's speed."""
    return {name: values for name, values in state.series.items() if "second" not in name}


def test_an_iteration_moves_the_weights_and_tells_what_happened():
    world = Rewarding(even_rows, length=2)
    loop = make_loop(world, iterations=1)
    before, told = weights(loop), []
    state = loop.run(on_iteration=lambda number, values: told.append((number, values)))
    assert not same(before, weights(loop))
    (number, values), *_ = told
    assert (number, state.iteration, state.interactions) == (1, 1, 16)
    wanted = {
        "success_rate": 0.5,
        "return_mean": 0.5,
        "episode_length": 2.0,
        "zero_variance_groups": 0.0,
        "interactions": 16.0,
        "broken_episodes": 0.0,
        "generated_task_share": 0.0,
        "unparsable_episodes": 0.0,
    }
    assert {name: values[name] for name in wanted} == wanted
    assert values["logprob_gap"] < 1e-3 and values["clip_share"] == 0 and values["policy_entropy"] > 3
    assert state.series["success_rate"] == [0.5]


@pytest.mark.parametrize("aggregation", ["episode", "token"])
def test_the_first_update_before_any_change_has_the_loss_of_the_advantages(aggregation):
    """All ratios are 1, so the loss is minus the mean advantage; groups are centred, rows won and lost differ
    in length.
    """
    world = Rewarding(lambda row, action: row in (0, 1, 4))
    world.ends = lambda row: world.steps[row] == (1 if row in (0, 1, 4) else 3)
    loop = make_loop(
        world, iterations=1, optimizer_steps=1, scale_rewards=False, loss_aggregation=aggregation
    )
    kept = []
    loop.run(on_rollouts=lambda number, rollouts: kept.extend(rollouts))
    lengths = [len(r.logprobs) for r in kept]
    advantages = [0.5, 0.5, -0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    weights = lengths if aggregation == "token" else [1] * 8
    by_hand = -sum(weight * value for weight, value in zip(weights, advantages, strict=True)) / sum(weights)
    assert sorted(set(lengths)) == [6, 18] and loop.state.series["loss"][0] == pytest.approx(
        by_hand, abs=1e-4
    )


def shown_once():
    """A demonstration as the policy reads it."""
    episode = make_episode(TASKS[0], ("go to desk 1", "At desk 1: nothing. Holding nothing."))
    return render_demonstration(VOCABULARY, episode, ["a thought"])


def test_demonstrations_are_learnt_beside_the_rollouts(monkeypatch):
    monkeypatch.setattr("components.policy.rl.learner.DEMONSTRATION_TOKENS", 64)
    mixed = {"demonstration_weight": 1.0, "learning_rate": 3e-3}
    loop = make_loop(Rewarding(even_rows), iterations=20, demonstrations=[shown_once()], **mixed)
    found = loop.run().series["demonstration_loss"]
    assert found[-1] < 0.8 * found[0]
    assert (
        "demonstration_loss"
        not in make_loop(Rewarding(even_rows), iterations=1, demonstrations=[shown_once()]).run().series
    )


def test_the_cloning_loss_of_a_step_is_the_mean_over_what_was_demonstrated():
    example = shown_once()
    loop = make_loop(
        Rewarding(even_rows),
        iterations=1,
        optimizer_steps=1,
        demonstrations=[example],
        demonstration_weight=0.5,
    )
    with torch.no_grad():
        wanted = -token_logprobs(loop.policy.model, collate([example], 0)).logprobs.mean().item()
    assert loop.run().series["demonstration_loss"][0] == pytest.approx(wanted, abs=1e-5)


def test_a_weight_without_demonstrations_is_refused():
    with pytest.raises(TrainingError, match="no demonstration.*demonstration_weight=0"):
        make_loop(Rewarding(even_rows), demonstration_weight=0.1)


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


def test_the_share_of_clipped_tokens_is_that_of_all_updates():
    """Before the first step no ratio is clipped; after steps this large later ones are."""
    state = make_loop(
        Rewarding(even_rows), iterations=1, learning_rate=3e-2, num_iterations=3, optimizer_steps=1
    ).run()
    assert state.series["clip_share"][0] > 0 and state.series["logprob_gap"][0] < 1e-3


def test_the_rate_falls_towards_zero_or_stays():
    for schedule, wanted in (("linear", [4e-3, 2e-3, 1e-3]), ("constant", [4e-3, 4e-3, 4e-3])):
        loop = make_loop(Rewarding(even_rows), iterations=4, learning_rate=4e-3, schedule=schedule)
        rates = {}
        settings = loop.learner.optimizers.parts[0].param_groups[0]
        loop.run(
            on_iteration=lambda number, _, settings=settings, rates=rates: rates.update(
                {number: settings["lr"]}
            )
        )
        assert [rates[1], rates[3], rates[4]] == pytest.approx(wanted)


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


def test_too_many_iterations_without_signal_stop_the_loop():
    loop = make_loop(Rewarding(never), iterations=MAX_ITERATIONS_WITHOUT_SIGNAL + 5)
    with pytest.raises(
        TrainingError,
        match=f"All advantages were zero for {MAX_ITERATIONS_WITHOUT_SIGNAL} consecutive.*temperature",
    ):
        loop.run()
    assert loop.state.iteration == MAX_ITERATIONS_WITHOUT_SIGNAL - 1


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


def test_tokens_are_counted_over_all_attempts(tmp_path):
    def attempt(iterations, sampled):
        loop = make_loop(Rewarding(even_rows), iterations=iterations, checkpoint=tmp_path / "c")
        loop._tokens = lambda: sampled + loop.policy.tokens
        return loop.run(), loop.policy.tokens

    first, alone = attempt(1, 0)
    second, own = attempt(3, 1000)
    assert first.tokens == alone > 0 and second.tokens == alone + own, (
        "what was sampled before the loop began is not the loop's"
    )


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
        first = rollout.replies[0]
        assert (
            punished[:first] == pytest.approx([value - 0.5 for value in spared[:first]])
            and punished[first:] == spared[first:]
        )


def test_a_step_has_at_most_a_gradient_of_one():
    """With plain gradient descent at a rate of 1 the weights move by the gradient: by its norm where that is
    below 1, else by 1.
    """
    loop = make_loop(Rewarding(even_rows), iterations=1, optimizer_steps=1, learning_rate=1.0)
    before, norms = weights(loop), []
    moved = loop.learner.trained()

    def descend(rate):
        norms.append(sum(float(weight.grad.pow(2).sum()) for weight in moved.values()) ** 0.5)

    loop.learner.optimizers.step = descend
    plain = loop.learner.algorithm.token_weights
    loop.learner.algorithm.token_weights = lambda lessons: [1000 * share for share in plain(lessons)]
    figure = loop.run().series["gradient_norm"][0]
    assert figure > 1 and norms == pytest.approx([1.0], abs=1e-3) and same(before, weights(loop))


def test_a_hybrid_reward_without_a_measure_of_progress_is_refused():
    with pytest.raises(ConfigError, match="hero needs an adapter with `progress`"):
        make_loop(Rewarding(even_rows), reward="hero", scale_rewards=False)


def test_iterations_without_signal_must_be_consecutive():
    calls = []

    def seldom(row, action):
        calls.append(row)
        return row == 0 and len(calls) // 8 % 5 == 4

    assert make_loop(Rewarding(seldom), iterations=12, num_generations=4).run().iteration == 12


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


@pytest.mark.parametrize(
    ("sync_every", "measured"), [(1, [True] * 3), (2, [True, False, True]), (0, [False] * 3)]
)
def test_where_the_player_is_the_policy_the_gap_is_measured(sync_every, measured):
    state = make_loop(Rewarding(even_rows), algorithm="dpo", sync_every=sync_every).run()
    assert [not math.isnan(gap) for gap in state.series["logprob_gap"]] == measured


def misfits(states):
    """Optimiser states that are not those of the loop's AdamW, by what is wrong with them."""
    (state,) = states
    wrong = {number: dict(moments) for number, moments in state["state"].items()}
    wrong[0]["exp_avg"] = wrong[0]["exp_avg"].flatten()[:3]
    few = [{**state["param_groups"][0], "params": state["param_groups"][0]["params"][:-1]}]
    muon = [{"lr": 0.1, "momentum": 0.9, "params": state["param_groups"][0]["params"]}]
    return {
        "exp_avg of (3,) for weight 0": [{**state, "state": wrong}],
        "AdamW over": [{**state, "param_groups": few}],
        "Muon over": [{**state, "param_groups": muon}],
        "states of 2 optimisers": [state, state],
    }


def test_a_state_of_another_optimiser_is_refused_before_anything_changes():
    made = make_loop(Rewarding(even_rows), iterations=1)
    made.run()
    state, fresh = made.state_dict(), make_loop(Rewarding(even_rows), iterations=1)
    before = weights(fresh)
    for words, optimizers in misfits(state["optimizers"]).items():
        with pytest.raises(
            TrainingError,
            match=f"does not fit the optimiser: it holds (an optimiser of )?{re.escape(words)}.*Delete",
        ):
            fresh.load_state_dict({**state, "optimizers": optimizers})
        assert same(before, weights(fresh))
    fresh.load_state_dict(state)
    assert same(weights(made), weights(fresh))


@pytest.mark.parametrize(("budget", "iterations"), [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2), (10_000, 5)])
def test_the_budget_is_never_exceeded(budget, iterations):
    world = Rewarding(even_rows, length=3)
    state = make_loop(world, iterations=5).run(budget=budget)
    assert (
        state.iteration == iterations
        and world.interactions == state.interactions == 24 * iterations <= budget
    )


def test_short_episodes_leave_budget_for_more():
    world = Rewarding(even_rows, length=1)
    state = make_loop(world, iterations=9).run(budget=40)
    assert state.iteration == 3 and world.interactions == 24 <= 40


RFT = {"algorithm": "rft", "max_successes": 3}
DPO_SELDOM = {"algorithm": "dpo", "sync_every": 3}


def length(episode):
    """A score of an episode, for HERO."""
    return len(episode.states[-1]) % 7 / 7


def make_curriculum():
    def vary(tasks, seed):
        return [f"put a mug in shelf {seed}-{number}" for number in range(len(tasks))]

    return Curriculum(TASKS, CurriculumConfig(seeds=2, candidates=1), vary, lambda task: "")


STOPPED = [{}, {"beta": 0.1}, {"reward": "hero"}, {"algorithm": "ppo"}, DPO_SELDOM, RFT]


@pytest.mark.parametrize(
    ("settings", "stop"), [(settings, 2) for settings in STOPPED] + [({}, 1), ({}, 3), ({}, 4)], ids=str
)
def test_a_loop_that_was_stopped_goes_on_with_the_same_numbers(tmp_path, settings, stop):
    def run(name, stop=None):
        def stopping(number, values):
            if number == stop:
                raise KeyboardInterrupt

        loop = make_loop(
            Rewarding(even_rows),
            tasks=make_curriculum(),
            progress=length,
            iterations=4,
            checkpoint=tmp_path / name,
            **({} if settings.get("algorithm") == "rft" else {"num_iterations": 2}),
            **settings,
        )
        return loop, loop.run(on_iteration=stopping)

    whole, uninterrupted = run("a")
    with pytest.raises(KeyboardInterrupt):
        run("b", stop=stop)
    resumed, state = run("b")
    assert same(weights(whole), weights(resumed))
    assert str(figures(state)) == str(figures(uninterrupted)) and len(state.series["loss"]) == 4
    assert (state.iteration, state.interactions) == (4, uninterrupted.interactions) == (4, 32)
    assert resumed.tasks.state_dict() == whole.tasks.state_dict() and resumed.tasks.generated
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    again, done = run("b")  # nothing remains to be done
    assert same(weights(again), weights(resumed)) and done.iteration == 4 and again.player.interactions == 0


def test_the_budget_counts_what_was_spent_before_the_stop(tmp_path):
    make_loop(Rewarding(even_rows, length=3), iterations=1, checkpoint=tmp_path / "c").run()
    world = Rewarding(even_rows, length=3)
    assert (read_iteration_count(tmp_path / "c"), read_iteration_count(tmp_path / "none")) == (1, 0)
    state = make_loop(world, iterations=5, checkpoint=tmp_path / "c").run(budget=60)
    assert (state.iteration, state.interactions, world.interactions) == (2, 48, 24)


def test_the_seed_alone_decides():
    runs = [make_loop(Rewarding(even_rows), iterations=2, seed=seed) for seed in (1, 1, 2)]
    for loop in runs:
        loop.run()
    first, second, other = map(weights, runs)
    assert same(first, second) and not same(first, other)


def test_small_forward_batches_give_the_same_update():
    def updated(batch_tokens):
        loop = make_loop(Rewarding(even_rows, length=2), iterations=1, batch_tokens=batch_tokens)
        loop.run()
        return weights(loop)

    large, small = updated(8192), updated(64)
    for name in large:
        torch.testing.assert_close(large[name], small[name], atol=3e-4, rtol=0)


ALGORITHMS = [
    pytest.param({"num_generations": 16}, id="grpo"),
    pytest.param({"num_generations": 16, "family": "qwen"}, id="grpo, qwen"),
    pytest.param({"num_generations": 16, "reward": "hero"}, id="hero"),
    pytest.param({"algorithm": "ppo", "num_generations": 16}, id="ppo"),
    pytest.param({"num_generations": 16, "algorithm": "dpo", "sync_every": 2}, id="dpo"),
    pytest.param(
        {"num_generations": 16, "algorithm": "rft", "epochs": 30},
        id="rft",
    ),
]


@pytest.mark.parametrize("settings", ALGORITHMS)
def test_the_policy_learns_what_is_rewarded(settings, monkeypatch):
    """A policy cloned to four actions alike; one of them is rewarded. Every algorithm makes it the usual
    one.
    """
    monkeypatch.setattr("components.policy.rl.rft.STEP_TOKENS", 64)
    choices = ["go to desk 1", "open fridge 1", "take mug 1", "heat mug 1"]
    settings = {"family": "llama"} | settings
    policy = Policy(
        make_model(hidden=32, seed=5, family=settings.pop("family")), VOCABULARY, max_new_tokens=16
    )
    shown = [make_episode(task, (action, "s")) for task in TASKS for action in choices]
    clone(
        policy,
        shown,
        lambda history, action: "find mug",
        CloningConfig(epochs=200, learning_rate=5e-3),
        seed=0,
    )

    world = Rewarding(lambda row, action: action == "open fridge 1")

    def success():
        return (
            sum(r.reward for r in play(policy, world, TASKS * 50, max_steps=1, temperature=1.0, seed=99))
            / 200
        )

    before = success()
    make_loop(
        world,
        policy=policy,
        progress=lambda episode: 0.0,
        iterations=12,
        learning_rate=3e-3,
        max_new_tokens=16,
        **settings,
    ).run()
    after = success()
    assert 0.1 < before < 0.45 and after > 0.85, (before, after)


LORA = LoraConfig(rank=2, targets="all-linear")


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_adapters_alone_are_trained_and_none_is_left(family):
    policy = Policy(make_model(family=family), VOCABULARY)
    first = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    make_loop(Rewarding(even_rows), policy=policy, iterations=2, lora=LORA, learning_rate=1e-2).run()
    last = dict(policy.model.named_parameters())
    assert last.keys() == first.keys()
    assert torch.equal(last["model.embed_tokens.weight"], first["model.embed_tokens.weight"])
    assert len([name for name in first if not torch.equal(last[name], first[name])]) == 14


def test_a_loop_with_adapters_that_was_stopped_goes_on_with_the_same_numbers(tmp_path):
    through = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA)
    wanted = figures(through.run())
    make_loop(Rewarding(even_rows, length=2), iterations=1, lora=LORA, checkpoint=tmp_path / "c.pt").run()
    fresh = make_loop(Rewarding(even_rows), lora=LORA).policy
    assert pickle.loads(pickle.dumps(fresh)).model.peft_config  # as it is sent to the processes that dream
    saved = torch.load(tmp_path / "c.pt", weights_only=True)["policy"]
    assert saved and all("lora_" in name for name in saved)
    resumed = make_loop(Rewarding(even_rows, length=2), iterations=2, lora=LORA, checkpoint=tmp_path / "c.pt")
    assert figures(resumed.run()) == wanted
    assert same(weights(resumed), weights(through))


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
def test_in_bf16_sampler_and_trainer_are_nearly_the_same_policy():
    loop = make_loop(
        Rewarding(even_rows, length=2), iterations=2, policy=policy_with(Compute(precision="bf16"))
    )
    state = loop.run()
    assert all(0 < gap < LOGPROB_GAP_LIMIT / 2 for gap in state.series["logprob_gap"])
    assert {weight.dtype for weight in loop.policy.model.parameters()} == {torch.float32}


def policy_with(compute):
    return Policy(make_model(hidden=32), VOCABULARY, compute=compute)


@pytest.mark.parametrize("rank", [0, 2])
def test_policies_on_the_way_are_kept_as_they_were(tmp_path, rank):
    """Adapters merged into a copy: training goes on as if nobody had looked."""
    settings = {"iterations": 4, "lora": LoraConfig(rank=rank) if rank else LoraConfig()}
    plain = make_loop(Rewarding(even_rows), **settings)
    plain.run()
    loop, seen = make_loop(Rewarding(even_rows), **settings), {}
    loop.snapshots = Snapshots(tmp_path / "snapshots", 2)
    probe = torch.tensor([[1, 2, 3]])

    def look(iteration, _):
        with torch.no_grad():
            seen[f"{iteration:04d}"] = loop.policy.model(probe).logits.clone()

    loop.run(on_iteration=look)
    assert same(weights(plain), weights(loop))
    kept = sorted((tmp_path / "snapshots").iterdir())
    assert [directory.name for directory in kept] == ["0002", "0004"]
    for directory in kept:
        with torch.no_grad():
            torch.testing.assert_close(
                Policy.load(directory).model(probe).logits, seen[directory.name], atol=1e-5, rtol=1e-5
            )
    assert not torch.equal(seen["0002"], seen["0004"])
