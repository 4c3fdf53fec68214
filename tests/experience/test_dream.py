"""The dream behind the environment protocol, with a model whose answers are fixed."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, make_episode, make_task, make_transition

from components.config import ExperienceModelConfig, RetrievalConfig
from components.environments.protocol import Environment
from components.experience.decoding.hidden_state import HIDDEN_STATE_TRIES
from components.experience.dream import Dream
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import LOST_ACTION


@pytest.fixture
def dream(learnt):
    return Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)))


def test_a_dream_follows_the_environment_protocol(dream):
    assert isinstance(dream, Environment) and dream.interactions == 0
    with pytest.raises(AssertionError, match="reset comes first"):
        dream.step(["look"])


def test_a_dream_gives_the_answers_that_its_model_has_learnt(dream, lessons):
    assert dream.reset([e.task for e in lessons]) == [e.task.initial_state for e in lessons]
    for number in range(4):
        actions = [e.steps[number].action if number < len(e.steps) else None for e in lessons]
        for episode, answer in zip(lessons, dream.step(actions), strict=True):
            if number >= len(episode.steps):
                assert answer is None
                continue
            step = episode.steps[number]
            assert (answer.state, answer.reward, answer.done) == (step.next_state, step.reward, step.done)
            assert answer.info["reasoning"] == step.reasoning and "unparsable" not in answer.info
    assert dream.interactions == 7
    assert dream.reset([lessons[1].task]) == [lessons[1].task.initial_state]
    assert dream.step([lessons[1].steps[0].action])[0].state == lessons[1].steps[0].next_state
    dream.close()
    dream.close()


def test_rows_without_an_action_keep_their_state(dream, lessons):
    first, second = lessons
    dream.reset([first.task, second.task, first.task])
    assert dream.step([None, second.steps[0].action, None])[::2] == [None, None]
    answers = dream.step([first.steps[0].action, None, first.steps[0].action])
    assert [a.state if a else None for a in answers] == [
        first.steps[0].next_state,
        None,
        first.steps[0].next_state,
    ]
    assert dream.interactions == 3
    assert dream.step([None] * 3) == [None] * 3 and dream.interactions == 3


def test_a_lost_action_repeats_the_state_and_the_dream_forgets_it(learnt, lessons):
    """With half of the actions lost, each is tried until it is not; the answers are those of the lesson."""
    first = lessons[0]
    dream = Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)), lost_actions=0.5)

    def play():
        state, lost = dream.reset([first.task])[0], []
        for step in first.steps:
            (answer,) = dream.step([step.action])
            while answer.info.get("lost"):
                assert (answer.state, answer.reward, answer.done) == (state, 0.0, False)
                assert answer.info["reasoning"] == LOST_ACTION
                lost.append(step.action)
                (answer,) = dream.step([step.action])
            state = answer.state
            assert state == step.next_state
        return lost

    one, other = play(), play()
    assert dream.interactions == 2 * len(first.steps) and one != other
    dream.seed = 0
    assert play() == one, "the same seed loses the same actions"


def test_an_unparsable_answer_ends_the_episode_as_a_failure(untrained):
    dream = Dream(untrained, ReplayBuffer(RetrievalConfig(k=0)))
    task = make_task()
    dream.reset([task, task])
    answer, other = dream.step(["look", None])
    assert (answer.state, answer.reward, answer.done) == (task.initial_state, 0.0, True)
    assert answer.info == {"unparsable": True} and other is None
    assert untrained.unanswered_steps == 1
    with pytest.raises(ValueError, match=r"rows \[0\] were dropped"):
        dream.step(["look", None])


def test_a_generated_task_is_dreamed_like_any_other(dream, lessons):
    task = make_task(7, parent="t0")
    dream.reset([task])
    assert dream.step([lessons[0].steps[0].action])[0].state == lessons[0].steps[0].next_state


def test_demonstrations_come_from_the_buffer_for_the_dreamed_state(learnt, lessons):
    buffer = ReplayBuffer(RetrievalConfig(k=1))
    own, other_task = (
        make_episode(task, ("go to desk 1", "At desk 1: mug 1. Holding nothing."), episode="other").steps[0]
        for task in (lessons[0].task, make_task(9))
    )
    buffer.add([own, other_task, make_transition(5, "far", "t9")])
    dream = Dream(learnt, buffer)
    dream.reset([lessons[0].task])
    (answer,) = dream.step(["go to desk 1"])
    assert answer.info["demonstrations"] == [other_task], "no demonstration is of the same task"


def test_dreams_are_repeatable(learnt, lessons):
    def once():
        dream = Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)))
        dream.reset([e.task for e in lessons])
        return [dream.step(["go to fridge 1"] * 2), dream.step(["take mug 1 from desk 1", "look"])]

    assert once() == once()


def test_an_answer_that_contradicts_the_episode_is_sampled_again_then_given_up(learnt, lessons):
    first = lessons[0]
    calls = []

    def never(episode, state):
        calls.append((episode.states, state))
        return "a lie"

    dream, before = Dream(learnt, ReplayBuffer(RetrievalConfig(k=0)), never), learnt.incoherent_answers
    dream.reset([first.task])
    (answer,) = dream.step([first.steps[0].action])
    assert answer.info == {"unparsable": True} and answer.done and not answer.reward
    assert len(calls) == learnt.incoherent_answers - before >= 1 and calls[0] == (
        [first.task.initial_state],
        first.steps[0].next_state,
    )


def test_an_answer_is_checked_against_the_dreamed_history(learnt, lessons):
    first, histories = lessons[0], []
    dream = Dream(
        learnt,
        ReplayBuffer(RetrievalConfig(k=0)),
        lambda episode, state: histories.append(episode.states) or "",
    )
    dream.reset([first.task])
    for step in first.steps:
        dream.step([step.action])
    assert histories[-1] == first.states[:-1]


def test_a_dream_begins_with_a_premise_without_objection(learnt, lessons):
    task, histories = lessons[0].task, []
    dream = Dream(
        learnt,
        ReplayBuffer(RetrievalConfig(k=0)),
        lambda episode, state: histories.append(episode.premise) or "",
        lambda *_: "",
    )
    dream.reset([task])
    dream.step(["look"])
    assert histories and set(histories) == {"mug 1 shelf 1"}
    calls: list[str] = []
    refusing = Dream(
        learnt, ReplayBuffer(RetrievalConfig(k=0)), None, lambda _, premise: calls.append(premise) or "no"
    )
    refusing.reset([task, task])
    assert len(calls) == 2 * HIDDEN_STATE_TRIES and "mug 1 shelf 1" in calls
    (answer, _) = refusing.step([lessons[0].steps[0].action, None])
    assert answer.state == lessons[0].steps[0].next_state, "the episode goes on without a premise"


def test_the_adapter_decides_from_the_dreamed_history_which_steps_are_sampled(learnt, lessons):
    first = lessons[0]
    calls: list[tuple[list[str], str, str]] = []

    def revealing(episode, action, state):
        calls.append((episode.states, action, state))
        return False

    model = ExperienceModel(
        learnt.model, VOCABULARY, ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    )
    dream = Dream(model, ReplayBuffer(RetrievalConfig(k=0)), revealing=revealing)
    dream.reset([first.task])
    steps = [dream.step([step.action])[0] for step in first.steps]
    assert [step.state for step in steps] == first.states[1:]
    assert calls == [
        (first.states[: n + 1], step.action, step.next_state) for n, step in enumerate(first.steps)
    ]
