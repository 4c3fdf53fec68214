"""Single predictions held against the real environment, and dreamed successes replayed in it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from builders import make_episode, make_task

from components.config import RetrievalConfig
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.experience.prompts import Answer
from components.experience.real_replay import replay, replay_in
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.step_judgements import judge, measure
from components.records import Trajectory

H = " Holding nothing."
EPISODE = make_episode(
    make_task(),
    ("go to shelf 1", "At shelf 1: mug 1." + H),
    ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1."),
)


def judged(adapter, step, answer):
    return judge(adapter, EPISODE.up_to(step), EPISODE.steps[step], answer)


def test_an_exact_answer_is_all_right(adapter):
    found = judged(adapter, 0, Answer("works", EPISODE.steps[0].next_state, 0.0, False))
    assert (found.parsed, found.exact, found.predicted) == (True, True, EPISODE.steps[0].next_state)
    assert (found.claims, found.right, found.truths, found.contradicted) == (3, 3, 3, 0)
    assert (found.changed, found.revealing, found.reward, found.predicted_reward) == (2, True, 0.0, 0.0)
    assert found.transition == EPISODE.steps[0]


def test_a_hallucinated_thing_is_contradicted_and_a_missing_one_is_not(adapter):
    other = judged(adapter, 0, Answer("", "At shelf 1: pen 1." + H, 1.0, True))
    assert (other.exact, other.claims, other.right, other.truths, other.contradicted) == (False, 3, 2, 3, 1)
    assert other.predicted_reward == 1.0
    more = judged(adapter, 0, Answer("", "At shelf 1: mug 1, pen 1." + H, 0.0, False))
    assert (more.claims, more.right, more.contradicted) == (4, 3, 1)
    silent = judged(adapter, 0, Answer("", "Looked around at shelf 1." + H, 0.0, False))
    assert (silent.claims, silent.right, silent.contradicted) == (
        3,
        2,
        1,
    )  # the event is denied, the listing only left out


def test_an_unreadable_state_claims_only_what_is_denied(adapter):
    found = judged(adapter, 1, Answer("", "mug mug mug", 0.0, False))
    assert (found.parsed, found.claims, found.right, found.contradicted, found.truths) == (True, 1, 0, 1, 3)


def test_no_answer_claims_nothing(adapter):
    found = judged(adapter, 1, None)
    assert (found.parsed, found.exact, found.claims, found.right, found.truths, found.contradicted) == (
        False,
        False,
        0,
        0,
        3,
        0,
    )
    assert (found.predicted, found.predicted_reward) == ("", 0.0)
    assert (found.changed, found.revealing) == (1, False)


def test_every_transition_is_measured_once_with_the_real_history(adapter, learnt, lessons):
    buffer = ReplayBuffer(RetrievalConfig(k=0))
    found = measure(learnt, buffer, adapter, lessons, rows=2)
    assert [j.transition.action for j in found] == [
        lessons[r].steps[n].action for n in range(4) for r in range(2) if n < len(lessons[r].steps)
    ]
    assert all(j.exact and j.predicted_reward == j.reward for j in found)
    assert sorted(map(repr, found)) == sorted(map(repr, measure(learnt, buffer, adapter, lessons, rows=1)))


def test_an_untrained_model_is_measured_as_unreadable(adapter, untrained, lessons):
    found = measure(untrained, ReplayBuffer(RetrievalConfig(k=0)), adapter, lessons)
    assert len(found) == 7 and not any(j.parsed for j in found)


@pytest.fixture(scope="module")
def won(played):
    return [e for e in played["expert"] if e.success][:6]


def test_real_successes_are_confirmed_in_every_state(adapter, won):
    replays, spent = replay(adapter, won)
    assert [(r.confirmed, r.reason) for r in replays] == [(True, "")] * len(won)
    assert all(r.agreeing == r.compared == len(e.steps) for r, e in zip(replays, won, strict=True))
    assert [list(r.real_states) for r in replays] == [e.states[1:] for e in won]
    assert [r.dreamed for r in replays] == won
    assert spent == sum(len(e.steps) for e in won)


def forged(episode: Trajectory, count: int) -> Trajectory:
    """The first `count` steps, the last of which is called a success."""
    last = replace(episode.steps[count - 1], reward=1.0, done=True)
    return replace(episode, steps=(*episode.steps[: count - 1], last))


def test_forged_successes_are_denied_with_a_reason(adapter, won):
    early = forged(won[0], len(won[0].steps) - 1)
    blind = [replace(step, next_state="At desk 99: pen 1." + H) for step in won[1].steps]
    contradicting = replace(won[1], steps=(*blind[:-1], replace(blind[-1], reward=1.0)))
    replays, spent = replay(adapter, [won[2], early, contradicting, won[3]])
    assert [r.confirmed for r in replays] == [True, False, False, True]
    assert replays[1].reason == "the real engine denies it" and replays[1].agreeing == replays[1].compared
    assert replays[2].reason.startswith("contradicts itself: The dream's world has no")
    assert (replays[2].agreeing, replays[2].compared, replays[2].real_states) == (0, len(won[1].steps), ())
    assert [r.playable for r in replays] == [True, True, False, True]
    assert spent == sum(len(r.real_states) for r in replays)


def test_a_success_that_was_real_but_earlier_is_denied(adapter, won):
    task = make_task(initial_state=won[0].task.initial_state, instruction=won[0].task.instruction)
    late = Trajectory(
        task,
        (
            *[replace(s, reward=0.0, done=False) for s in won[0].steps],
            replace(won[0].steps[-1], action="look"),
        ),
    )
    (found,), spent = replay(adapter, [late])
    assert (found.confirmed, found.reason) == (
        False,
        f"was won at step {len(won[0].steps) - 1}, not {len(won[0].steps)}",
    )
    assert spent == len(won[0].steps)  # nothing is stepped after the end


def test_a_dream_that_shows_the_wrong_conclusion_is_denied(adapter):
    steps = [
        ("go to shelf 1", "At shelf 1: mug 1." + H),
        ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1."),
        ("go to desk 1", "At desk 1: nothing. Holding mug 1."),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
    ]
    cold = make_episode(make_task(instruction="put a hot mug in desk"), *steps, won=True)
    plain = make_episode(make_task(parent="t9"), *steps, won=True)  # a made-up task: its dream is its world
    replays, _ = replay(adapter, [cold, plain])
    assert [(r.confirmed, r.agreeing, r.compared) for r in replays] == [(False, 4, 4), (True, 4, 4)]


def test_an_episode_without_success_is_compared_state_by_state(adapter, played):
    """Real episodes that did not find what they sought: in the world that they described every state is
    theirs again.
    """
    lost = [e for name in ("noisy", "near_miss", "random") for e in played[name] if not e.success]
    replays, _ = replay(adapter, lost)
    assert len(lost) > 5 and all(r.playable and r.confirmed and all(r.same) for r in replays), [
        (r.reason, r.same) for r in replays
    ]
    liar = replace(
        lost[0], steps=(*lost[0].steps[:2], replace(lost[0].steps[2], next_state="At desk 1: lies." + H))
    )
    (found,), _ = replay(adapter, [liar])
    assert (found.confirmed, found.same) == (True, (True, True, False))


class Faltering:
    """An environment whose second row breaks in the first `times` of its batches."""

    def __init__(self, environment, times):
        self.environment, self.times = environment, times

    def reset(self, tasks):
        self.times -= 1
        return self.environment.reset(tasks)

    def step(self, actions):
        answers = self.environment.step(actions)
        row = min(1, len(actions) - 1)
        if self.times >= 0 and actions[row] is not None:
            answers[row] = Step("", 0.0, True, {"failed": "the engine died"})
        return answers


def test_a_replay_that_infrastructure_broke_denies_nothing(adapter, won):
    episodes = dict(enumerate(won))
    worlds = {number: adapter.embody(episode) for number, episode in episodes.items()}
    with closing(adapter.open()) as environment:
        found = replay_in(Faltering(environment, 1), episodes, worlds)
        assert sorted(found) == sorted(episodes) and all(
            one.confirmed and all(one.same) for one in found.values()
        )
        with pytest.raises(
            EnvironmentFailure,
            match="1 of 6 replays of dreams broke in each of 3 tries.*the engine died.*denies nothing",
        ):
            replay_in(Faltering(environment, 9), episodes, worlds)


def test_dreams_without_a_world_spend_nothing(adapter):
    nowhere = make_episode(make_task(), ("go to sofa 1", "At sofa 1: mug 1." + H), won=True)
    (found,), spent = replay(adapter, [nowhere])
    assert not found.confirmed and spent == 0
    assert replay(adapter, []) == ([], 0)
