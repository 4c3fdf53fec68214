"""Early Experience in the real engine: executed alternatives, and the training examples from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, VOCABULARY, make_episode, make_model, make_task, with_thoughts

from components.config import CloningConfig
from components.environments.protocol import Forkable, Step
from components.errors import EnvironmentFailure
from components.policy.behaviour_cloning import clone
from components.policy.early_experience import ExploredEpisode, explore, reflections, world_examples
from components.policy.policy import Policy


@pytest.fixture(scope="module")
def experts(played):
    return played["expert"][:4]


@pytest.fixture(scope="module")
def explored(world, experts):
    return explore(world, experts, 3, seed=0)


def test_an_alternative_leads_to_the_same_state_as_a_step(world, experts, explored):
    checked = 0
    for entry in explored:
        for place, alternatives in list(enumerate(entry.alternatives))[::4]:
            for action, state in alternatives:
                world.reset([entry.episode.task])
                for step in entry.episode.steps[:place]:
                    world.step([step.action])
                (answer,) = world.step([action])
                assert answer.state == state
                checked += 1
    assert checked > 15


def test_alternatives_differ_from_the_expert_action_and_are_counted(world, experts):
    before = world.interactions
    explored = explore(world, experts, 2, seed=1)
    assert [entry.episode for entry in explored] == list(experts)
    steps = sum(len(e.steps) for e in experts)
    assert world.interactions - before == 3 * steps
    for entry in explored:
        for step, alternatives in zip(entry.episode.steps, entry.alternatives, strict=True):
            assert len({action for action, _ in alternatives} - {step.action}) == 2
    assert explore(world, experts, 2, seed=1) == explored != explore(world, experts, 2, seed=2)


def test_a_step_that_differs_from_the_recording_is_refused(world, experts):
    forged = replace(
        experts[0], steps=(replace(experts[0].steps[0], next_state="elsewhere"), *experts[0].steps[1:])
    )
    with pytest.raises(EnvironmentFailure, match="leads to .*recorded 'elsewhere'.*dreamgym collect"):
        explore(world, [forged], 1, seed=0)


class Lists:
    """The real environment, which lists the expert's own action alone."""

    def __init__(self, world, episodes):
        self.world, self.episodes, self.place = world, episodes, 0

    def __getattr__(self, name):
        return getattr(self.world, name)

    def reset(self, tasks):
        self.place = 0
        return self.world.reset(tasks)

    @property
    def admissible(self):
        return [(episode.steps[0].action,) for episode in self.episodes]

    def probe(self, actions):
        return self.world.probe(actions)

    def step(self, actions):
        self.place += 1
        return [
            answer and replace(answer, info={"admissible": [s.action for s in e.steps[self.place :][:1]]})
            for answer, e in zip(self.world.step(actions), self.episodes, strict=True)
        ]


def test_a_world_that_lists_no_alternative_is_an_error(world, experts):
    with pytest.raises(EnvironmentFailure, match="At no step of 4 episodes.*early_experience=none"):
        explore(Lists(world, experts), experts, 3, seed=0)


class Hanging:
    """The real environment, whose last row breaks in the first `times` replays.

    The row then fails until the next reset.
    """

    def __init__(self, world, times):
        self.world = world
        self.times = times
        self.gone = False

    def __getattr__(self, name):
        return getattr(self.world, name)

    def reset(self, tasks):
        self.gone = False
        return self.world.reset(tasks)

    def probe(self, actions):
        return self.world.probe(actions)

    def step(self, actions):
        answers = self.world.step(actions)
        last = len(actions) - 1
        if self.times and not self.gone and actions[last]:
            self.times -= 1
            self.gone = True
        if self.gone and actions[last]:
            answers[last] = Step("", 0.0, True, {"failed": "the browser hung"})
        return answers


def test_an_episode_that_infrastructure_ended_is_replayed_with_the_same_alternatives(
    world, experts, explored
):
    assert explore(Hanging(world, 2), experts, 3, seed=0) == explored
    with pytest.raises(
        EnvironmentFailure,
        match="1 of 4 episodes broke in each of 3 tries, as .*: the browser hung.*dreamgym doctor",
    ):
        explore(Hanging(world, 3), experts, 3, seed=0)


def test_the_budget_holds(adapter, experts):
    small = adapter.open(5)
    try:
        assert isinstance(small, Forkable)
        with pytest.raises(EnvironmentFailure, match="budget is 5"):
            explore(small, experts, 3, seed=0)
    finally:
        small.close()


def test_world_examples_branch_at_each_step_and_reflections_precede_the_thought(adapter, explored):
    (example, *_) = world_examples(AGENT, explored)
    first = explored[0]
    branches = [segment for segment in example.segments if segment.branch]
    assert len(branches) == sum(len(alternatives) + 1 for alternatives in first.alternatives)
    loss_pieces = VOCABULARY.pieces(
        [token for token, flag in zip(branches[0].tokens, branches[0].loss, strict=True) if flag]
    )
    assert loss_pieces == [first.alternatives[0][0][1]]
    assert not any(any(segment.loss) for segment in example.segments if not segment.branch)
    (thoughts, *_) = reflections(explored, adapter.reflect, adapter.progress)
    usual = first.episode.steps[0].thought
    assert usual and thoughts[0].endswith(usual) and f"{first.alternatives[0][0][0]} would" in thoughts[0]
    assert len(thoughts) == len(first.episode.steps)
    assert (
        world_examples(AGENT, [ExploredEpisode(first.episode, tuple(() for _ in first.episode.steps))]) == []
    )


def test_an_alternative_that_helps_is_not_called_useless(adapter):
    start = make_task(instruction="put a mug in desk")
    there, taken = "At shelf 1: mug 1. Holding nothing.", "Took mug 1 from shelf 1. Holding mug 1."
    episode = make_episode(start, ("go to shelf 1", there), ("take mug 1 from shelf 1", taken))
    entry = ExploredEpisode(
        with_thoughts(episode, "find mug", "mug 1 to desk"),
        ((), (("take mug 1 from shelf 1", taken), ("look", "Looked around in the room. Holding nothing."))),
    )
    assert reflections([entry], adapter.reflect, adapter.progress) == [
        ["find mug", "look would not help. mug 1 to desk"]
    ]
    (blamed,) = reflections([entry], adapter.reflect, lambda episode: float(episode.success))
    assert blamed[1].startswith("take mug 1 from shelf 1 would not help"), "the outcome alone tells nothing"


def test_no_reason_is_written_for_a_step_at_which_an_agent_with_thoughts_had_none(adapter, explored):
    entry = explored[0]

    def with_thoughts(*thoughts):
        steps = zip(entry.episode.steps, thoughts, strict=True)
        episode = replace(entry.episode, steps=tuple(replace(step, thought=own) for step, own in steps))
        return reflections([replace(entry, episode=episode)], lambda *_: "because", adapter.progress)[0]

    others = len(entry.episode.steps) - 1
    assert with_thoughts("so", *[""] * others) == ["because", *[""] * others]
    assert with_thoughts("", *[""] * others) == ["because"] * (1 + others), "it never gives any"


def test_world_modelling_and_self_reflection_train_the_policy(adapter, explored, experts, tmp_path):
    def train(**warm_start):
        policy = Policy(make_model(), VOCABULARY)
        record = clone(
            policy,
            experts,
            CloningConfig(epochs=1),
            0,
            tmp_path / f"{'-'.join(sorted(warm_start))}.pt",
            **warm_start,
        )
        return record.tokens, policy.model.model.norm.weight.tolist()

    of_world = []
    plain = train()
    world = train(world=world_examples(AGENT, explored), on_world_record=of_world.append)
    assert len(of_world) == 1 and len(of_world[0].losses) == of_world[0].steps > 0
    reflecting = train(reflections=reflections(explored, adapter.reflect, adapter.progress))
    batch = CloningConfig().batch_tokens
    assert world[0] < plain[0], "world modelling takes the place of a part of the cloning"
    assert abs(reflecting[0] - plain[0]) <= batch, "as many tokens, to the size of an update"
    assert len({str(weights) for _, weights in (plain, world, reflecting)}) == 3
