"""Rollouts in the real engine and in a dream: examples, log-probabilities, transitions and failures."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from builders import AGENT, VOCABULARY, make_model, make_task, with_thoughts

from components.config import CloningConfig, LoraConfig, RetrievalConfig
from components.environments.protocol import Step
from components.errors import DataError, EnvironmentFailure
from components.experience.dream import Dream
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.adapters import merge_lora
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs
from components.policy import rollout as rollout_module
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy
from components.policy.rollout import Stamp, play
from components.policy.task_draws import draw_tasks, repeat_tasks
from components.policy.whole_episodes import play_whole
from components.records import SYNTHETIC

STAMP = Stamp(SYNTHETIC, "v3", "run-1", "dream")


@pytest.fixture(scope="module")
def cloned(lessons):
    """A tiny policy that reproduces the first demonstration."""
    policy = Policy(make_model(hidden=32, seed=2), VOCABULARY, max_new_tokens=24)
    lesson = with_thoughts(lessons[0], *(f"step {number}" for number in range(len(lessons[0].steps))))
    record = clone(policy, [lesson], CloningConfig(epochs=150, learning_rate=8e-3), seed=0)
    assert record.final_loss < 0.1 and record.losses[0] > 3
    return policy


@pytest.fixture
def dream(learnt):
    return Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)))


def check_scores(policy, rollouts, temperature):
    """Check that the sampler's log-probabilities equal those of one forward pass over the examples."""
    for rollout in rollouts:
        flags = [flag for segment in rollout.example.segments for flag in segment.loss]
        assert sum(flags) == len(rollout.logprobs)
    with torch.no_grad():
        scores = token_logprobs(
            policy.model, collate([r.example for r in rollouts], 0), temperature=temperature
        )
    sampled = torch.tensor([value for r in rollouts for value in r.logprobs])
    torch.testing.assert_close(sampled, scores.logprobs, atol=1e-3, rtol=0)


def check_text(rollout):
    """Check that the example alternates the world's text and the policy's replies."""
    prompts = [s.tokens for s in rollout.example.segments if not any(s.loss)]
    written = [s.tokens for s in rollout.example.segments if any(s.loss)]
    assert all(all(s.loss) for s in rollout.example.segments if any(s.loss)) and not any(
        s.branch for s in rollout.example.segments
    )
    task = rollout.trajectory.task
    states = [AGENT.observation(step.next_state) for step in rollout.trajectory.steps][: len(prompts) - 1]
    assert prompts == [prompt + AGENT.ask(task) for prompt in [AGENT.opening(task), *states]]
    replies = [AGENT.parse(tokens) for tokens in written]
    assert rollout.thoughts == [thought for thought, _ in replies]
    actions = [action or "?" for _, action in replies]
    assert [step.action for step in rollout.trajectory.steps] == actions[: len(rollout.trajectory.steps)]
    assert rollout.malformed == sum(not action for _, action in replies)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rollouts_in_the_real_engine_have_the_samplers_log_probabilities(world, tasks, temperature):
    policy = Policy(make_model(scale=1.5), VOCABULARY, max_new_tokens=12)
    before = world.interactions
    rollouts = play(policy, world, tasks[:5], max_steps=3, temperature=temperature, seed=4)
    assert [r.trajectory.task for r in rollouts] == tasks[:5]
    check_scores(policy, rollouts, temperature)
    for rollout in rollouts:
        check_text(rollout)
        assert len(rollout.trajectory.steps) == 3 and not rollout.broken
    assert world.interactions - before == 15
    assert policy.tokens == sum(len(r.logprobs) for r in rollouts)


def test_a_cloned_policy_succeeds_in_the_dream_of_its_demonstration(cloned, dream, lessons):
    rollouts = play(cloned, dream, [lessons[0].task] * 3, max_steps=6, temperature=0.0, seed=0, stamp=STAMP)
    check_scores(cloned, rollouts, 1.0)
    for row, rollout in enumerate(rollouts):
        check_text(rollout)
        assert rollout.reward == 1.0 and rollout.malformed == 0
        assert rollout.thoughts == [f"step {n}" for n in range(4)]
        for number, (step, demonstrated) in enumerate(
            zip(rollout.trajectory.steps, lessons[0].steps, strict=True)
        ):
            assert (step.state, step.action, step.next_state) == (
                demonstrated.state,
                demonstrated.action,
                demonstrated.next_state,
            )
            assert (step.reward, step.done, step.reasoning, step.step) == (
                demonstrated.reward,
                demonstrated.done,
                demonstrated.reasoning,
                number,
            )
            assert (step.source, step.behaviour, step.policy_version, step.run_id) == (
                SYNTHETIC,
                "policy",
                "v3",
                "run-1",
            )
            assert step.episode_id == f"dream-0-{row}/t0"


def test_the_step_limit_does_not_set_done(cloned, dream, lessons):
    (rollout,) = play(cloned, dream, [lessons[0].task], max_steps=2, temperature=0.0, seed=0)
    assert [step.done for step in rollout.trajectory.steps] == [False, False] and rollout.reward == 0
    check_text(rollout)


def test_samples_depend_on_the_seed(cloned, dream, lessons):
    def words(seed):
        rollouts = play(cloned, dream, [lessons[0].task] * 4, max_steps=2, temperature=3.0, seed=seed)
        return [segment.tokens for r in rollouts for segment in r.example.segments]

    assert words(1) == words(1) != words(2)


def test_the_last_step_of_an_unparsable_dream_is_left_out(untrained, lessons):
    dream = Dream(untrained, ReplayBuffer(RetrievalConfig(k=0)))
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=8)
    rollouts = play(policy, dream, [lessons[0].task] * 2, max_steps=4, temperature=1.0, seed=0)
    for rollout in rollouts:
        assert (
            rollout.unparsable
            and not rollout.broken
            and rollout.trajectory.steps == ()
            and rollout.reward == 0.0
        )
        assert len(rollout.example.segments) == 2 and len(rollout.logprobs) == len(
            rollout.example.segments[1].tokens
        )
    check_scores(policy, rollouts, 1.0)


class Breaking:
    """A world whose second row breaks at its second step; the real engine breaks only when a process dies."""

    interactions = 0

    def reset(self, tasks):
        self.requests = []
        return [task.initial_state for task in tasks]

    def step(self, actions):
        self.requests.append(actions)
        return [None if action is None else self.answer(row) for row, action in enumerate(actions)]

    def answer(self, row):
        breaks = row == 1 and len(self.requests) == 2
        return Step("s", 0.0, breaks, {"failed": "gone"} if breaks else {})

    def close(self):
        pass


def test_a_broken_row_is_recorded_and_not_stepped_again():
    world = Breaking()
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=6)
    rollouts = play(policy, world, [make_task(n) for n in range(3)], max_steps=4, temperature=1.0, seed=0)
    assert [r.broken for r in rollouts] == [False, True, False]
    assert [len(r.trajectory.steps) for r in rollouts] == [4, 1, 4]
    assert [[action is None for action in request] for request in world.requests] == [[False] * 3] * 2 + [
        [False, True, False]
    ] * 2
    assert {action for request in world.requests for action in request if action} <= {"?"} | {
        s.action for r in rollouts for s in r.trajectory.steps
    }


def test_a_measurement_replays_episodes_that_infrastructure_ended():
    """A broken episode says nothing about the policy. One that always breaks stops the measurement."""
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=6)
    tasks = [make_task(n) for n in range(3)]
    rollouts = play_whole(policy, Breaking(), tasks, max_steps=4, temperature=1.0, seed=0)
    assert [r.trajectory.task for r in rollouts] == tasks and not any(r.broken for r in rollouts)
    assert [len(r.trajectory.steps) for r in rollouts] == [4, 4, 4]
    assert rollouts[0] == play(policy, Breaking(), tasks, max_steps=4, temperature=1.0, seed=0)[0], (
        "whole episodes are played once"
    )
    always = Breaking()
    always.answer = lambda row: Step("s", 0.0, True, {"failed": "gone"})
    with pytest.raises(
        EnvironmentFailure, match="3 of 3 episodes broke in each of 3 tries, as t0: gone.*dreamgym doctor"
    ):
        play_whole(policy, always, tasks, max_steps=4, temperature=1.0, seed=0)


def test_another_initial_state_than_recorded_is_refused():
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=6)
    moved = Breaking()
    moved.reset = lambda tasks: ["You are elsewhere." for _ in tasks]
    with pytest.raises(
        EnvironmentFailure,
        match="t0 begins with 'You are elsewhere.'. Expected .*as recorded.*check-environment",
    ):
        play(policy, moved, [make_task(0)], max_steps=4, temperature=1.0, seed=0)


def test_more_episodes_than_rows_are_played_in_successive_batches(monkeypatch):
    monkeypatch.setattr(rollout_module, "ROWS", 3)
    world = Breaking()
    policy = Policy(make_model(), VOCABULARY, max_new_tokens=6)
    tasks = [make_task(n) for n in (0, 1, 2, 0, 1)]
    rollouts = play(policy, world, tasks, max_steps=4, temperature=1.0, seed=0)
    assert [r.trajectory.task for r in rollouts] == tasks and [r.broken for r in rollouts] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert [len(request) for request in world.requests] == [2] * 4
    names = [r.trajectory.steps[0].episode_id for r in rollouts]
    assert [name.split("/")[0] for name in names] == [f"rollout-0-{row}" for row in range(5)]
    replies = [r.example.segments[1].tokens for r in rollouts]
    assert replies[0] != replies[3] or replies[1] != replies[4], "another batch has another random stream"


def test_an_episode_that_fills_the_longest_sequence_fails_and_is_counted():
    prompt = len(AGENT.opening(make_task(0)) + AGENT.ask(make_task(0)))
    policy = Policy(make_model(max_positions=2 * prompt + 40), VOCABULARY, max_new_tokens=6)
    rollouts = play(policy, Breaking(), [make_task(0)], max_steps=9, temperature=1.0, seed=0)
    (rollout,) = rollouts
    assert rollout.overlong and not rollout.broken and rollout.reward == 0
    assert 1 <= len(rollout.trajectory.steps) < 9 and rollout.truncated_replies == sum(
        len(s.tokens) == 6 for s in rollout.example.segments[1::2]
    )
    check_text(rollout)
    long = make_task(0, instruction="put a mug in desk 1 " * 40)
    with pytest.raises(DataError, match="The model takes 64"):
        play(
            Policy(make_model(max_positions=64), VOCABULARY),
            Breaking(),
            [long],
            max_steps=9,
            temperature=1.0,
            seed=0,
        )


def test_repeated_and_drawn_tasks():
    tasks = [make_task(n) for n in range(3)]
    assert [t.id for t in repeat_tasks(tasks, 2)] == ["t0", "t0", "t1", "t1", "t2", "t2"]
    assert len({t.id for t in draw_tasks(tasks, 3, 0)}) == 3
    assert sorted(Counter(t.id for t in draw_tasks(tasks, 7, 0)).values()) == [2, 2, 3]
    assert draw_tasks(tasks, 2, 5) == draw_tasks(tasks, 2, 5)
    assert len({tuple(t.id for t in draw_tasks(tasks, 2, seed)) for seed in range(20)}) > 3


def test_a_policy_is_saved_and_loaded(cloned, dream, lessons, tmp_path):
    cloned.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy", max_new_tokens=24)
    first, second = (
        play(p, dream, [lessons[0].task], max_steps=4, temperature=0.0, seed=0)[0] for p in (cloned, loaded)
    )
    assert first.trajectory == second.trajectory
    torch.testing.assert_close(torch.tensor(first.logprobs), torch.tensor(second.logprobs))


def test_cloning_trains_adapters_alone(lessons):
    policy = Policy(make_model(), VOCABULARY)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    clone(policy, lessons, CloningConfig(epochs=3, learning_rate=1e-2), seed=0, lora=LoraConfig(rank=2))
    after = merge_lora(policy.model).state_dict()
    assert after.keys() == before.keys()
    changed = {name.rsplit(".", 2)[-2] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"q_proj", "v_proj"}
