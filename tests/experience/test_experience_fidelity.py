"""Single predictions compared with the real environment, and dreamed successes replayed in it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from builders import make_episode, make_task

from components.config import RetrievalConfig
from components.environments.protocol import Step
from components.errors import EnvironmentFailure
from components.experience.formats.world_format import Answer
from components.experience.real_replay import replay, replay_in
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.step_judgements import judge_answer, judge_predictions
from components.records import Trajectory

H = " Holding nothing."
EPISODE = make_episode(
    make_task(),
    ("go to shelf 1", "At shelf 1: mug 1." + H),
    ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1."),
)


def judged(adapter, step, answer):
    return judge_answer(adapter, EPISODE.up_to(step), EPISODE.steps[step], answer)


def test_an_exact_answer_has_only_right_claims(adapter):
    result = judged(adapter, 0, Answer("works", EPISODE.steps[0].next_state, 0.0, False))
    assert (result.parsed, result.exact, result.predicted) == (True, True, EPISODE.steps[0].next_state)
    assert (result.claims, result.right, result.truths, result.contradicted) == (3, 3, 3, 0)
    assert (result.changed, result.revealing, result.reward, result.predicted_reward) == (2, True, 0.0, 0.0)
    assert result.transition == EPISODE.steps[0]


def test_a_hallucinated_object_is_contradicted_and_a_missing_one_is_not(adapter):
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
    )  # the event is contradicted, the listing only missing


def test_an_unreadable_state_makes_one_contradicted_claim(adapter):
    result = judged(adapter, 1, Answer("", "mug mug mug", 0.0, False))
    assert (result.parsed, result.claims, result.right, result.contradicted, result.truths) == (
        True,
        1,
        0,
        1,
        3,
    )


def test_a_missing_answer_makes_no_claims(adapter):
    result = judged(adapter, 1, None)
    assert (result.parsed, result.exact, result.claims, result.right, result.truths, result.contradicted) == (
        False,
        False,
        0,
        0,
        3,
        0,
    )
    assert (result.predicted, result.predicted_reward) == ("", 0.0)
    assert (result.changed, result.revealing) == (1, False)


def test_every_transition_is_judged_once_with_the_real_history(adapter, learnt, lessons):
    buffer = ReplayBuffer(RetrievalConfig(k=0))
    told = []
    result = judge_predictions(learnt, buffer, adapter, lessons, rows=2, progress=lambda *of: told.append(of))
    assert told[-1] == (len(result), len(result)) and [done for done, _ in told] == sorted(
        {d for d, _ in told}
    )
    assert [j.transition.action for j in result] == [
        lessons[r].steps[n].action for n in range(4) for r in range(2) if n < len(lessons[r].steps)
    ]
    assert all(j.exact and j.predicted_reward == j.reward for j in result)
    alone = judge_predictions(learnt, buffer, adapter, lessons, rows=1)

    def order(judgement):
        return judgement.transition.episode_id, judgement.transition.step

    result, alone = sorted(result, key=order), sorted(alone, key=order)
    assert result == alone
    assert [one.confidence for one in result] == pytest.approx([one.confidence for one in alone], abs=1e-4)
    assert all(0.5 < one.confidence <= 1 for one in result), "it has memorised the lessons"


def test_the_answer_that_rl_would_get_is_judged_beside_the_greedy_one(adapter, learnt, lessons, monkeypatch):
    """The adapter of this test refuses every state of a success, whatever the history says."""
    ends = {step.next_state for episode in lessons for step in episode.steps if step.reward}
    monkeypatch.setattr(adapter, "contradiction", lambda _, state: "no" if state in ends else "")
    buffer = ReplayBuffer(RetrievalConfig(k=0))
    assert learnt.config.coherent
    before = learnt.incoherent_answers
    result = judge_predictions(learnt, buffer, adapter, lessons)
    assert all(j.exact for j in result), "the greedy answer is not checked"
    refused = [j for j in result if j.transition.next_state in ends]
    assert refused and not any(j.used_exact for j in refused)
    assert learnt.incoherent_answers > before
    monkeypatch.undo()
    used = judge_predictions(learnt, buffer, adapter, lessons)
    assert [j.answered for j in used] == [not j.incoherent for j in used], "one lesson contradicts itself"
    determined = [j for j in used if j.answered and not j.revealing]
    assert determined and all(j.used_exact and j.used_reward == j.reward for j in determined)


def test_answers_of_an_untrained_model_do_not_parse(adapter, untrained, lessons):
    result = judge_predictions(untrained, ReplayBuffer(RetrievalConfig(k=0)), adapter, lessons)
    assert len(result) == 7 and not any(j.parsed or j.answered for j in result)


@pytest.fixture(scope="module")
def won(played):
    return [e for e in played["expert"] if e.success][:6]


def test_real_successes_are_confirmed_in_every_state(adapter, won):
    replays, spent = replay(adapter, won)
    assert [(r.confirmed, r.reason) for r in replays] == [(True, "")] * len(won)
    assert all(r.agreeing_states == r.compared == len(e.steps) for r, e in zip(replays, won, strict=True))
    assert [list(r.real_states) for r in replays] == [e.states[1:] for e in won]
    assert [r.dreamed for r in replays] == won
    assert spent == sum(len(e.steps) for e in won)


def forged(episode: Trajectory, count: int) -> Trajectory:
    """The first `count` steps, with the last one marked as a success."""
    last = replace(episode.steps[count - 1], reward=1.0, done=True)
    return replace(episode, steps=(*episode.steps[: count - 1], last))


def test_forged_successes_are_denied_with_a_reason(adapter, won):
    early = forged(won[0], len(won[0].steps) - 1)
    blind = [replace(step, next_state="At desk 99: pen 1." + H) for step in won[1].steps]
    contradicting = replace(won[1], steps=(*blind[:-1], replace(blind[-1], reward=1.0)))
    replays, spent = replay(adapter, [won[2], early, contradicting, won[3]])
    assert [r.confirmed for r in replays] == [True, False, False, True]
    assert (
        replays[1].reason == "the real engine denies it" and replays[1].agreeing_states == replays[1].compared
    )
    assert replays[2].reason.startswith("contradicts itself: The dream's world has no")
    assert (replays[2].agreeing_states, replays[2].compared, replays[2].real_states) == (
        0,
        len(won[1].steps),
        (),
    )
    assert [r.playable for r in replays] == [True, True, False, True]
    assert spent == sum(len(r.real_states) for r in replays)


def test_a_success_at_a_later_step_than_the_real_one_is_denied(adapter, won):
    task = make_task(initial_state=won[0].task.initial_state, instruction=won[0].task.instruction)
    late = Trajectory(
        task,
        (
            *[replace(s, reward=0.0, done=False) for s in won[0].steps],
            replace(won[0].steps[-1], action="look"),
        ),
    )
    (result,), spent = replay(adapter, [late])
    assert (result.confirmed, result.reason) == (
        False,
        f"was won at step {len(won[0].steps) - 1}, not {len(won[0].steps)}",
    )
    assert spent == len(won[0].steps)  # nothing is stepped after the end


def test_a_dream_with_a_wrong_conclusion_is_denied(adapter):
    steps = [
        ("go to shelf 1", "At shelf 1: mug 1." + H),
        ("take mug 1 from shelf 1", "Took mug 1 from shelf 1. Holding mug 1."),
        ("go to desk 1", "At desk 1: nothing. Holding mug 1."),
        ("move mug 1 to desk 1", "Moved mug 1 to desk 1." + H),
    ]
    cold = make_episode(make_task(instruction="put a hot mug in desk"), *steps, won=True)
    plain = make_episode(
        make_task(parent="t9"), *steps, won=True
    )  # a generated task: its dream defines its world
    replays, _ = replay(adapter, [cold, plain])
    assert [(r.confirmed, r.agreeing_states, r.compared) for r in replays] == [(False, 4, 4), (True, 4, 4)]


def test_an_episode_without_success_is_compared_state_by_state(adapter, played):
    """Real episodes that did not reach their goal: in the world that they described, every state is the
    same.
    """
    lost = [e for name in ("noisy", "near_miss", "random") for e in played[name] if not e.success]
    replays, _ = replay(adapter, lost)
    assert len(lost) > 5 and all(r.playable and r.confirmed and all(r.same) for r in replays), [
        (r.reason, r.same) for r in replays
    ]
    liar = replace(
        lost[0], steps=(*lost[0].steps[:2], replace(lost[0].steps[2], next_state="At desk 1: lies." + H))
    )
    (result,), _ = replay(adapter, [liar])
    assert (result.confirmed, result.same) == (True, (True, True, False))


class Faltering:
    """An environment whose second row fails in its first `times` batches."""

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


def test_a_replay_that_infrastructure_ended_is_repeated(adapter, won):
    episodes = dict(enumerate(won))
    worlds = {number: adapter.embody(episode) for number, episode in episodes.items()}
    with closing(adapter.open()) as environment:
        result = replay_in(Faltering(environment, 1), episodes, worlds)
        assert sorted(result) == sorted(episodes) and all(
            one.confirmed and all(one.same) for one in result.values()
        )
        with pytest.raises(
            EnvironmentFailure,
            match="1 of 6 replays of dreams broke in each of 3 tries.*the engine died.*denies nothing",
        ):
            replay_in(Faltering(environment, 9), episodes, worlds)


def test_dreams_without_a_world_spend_no_real_steps(adapter):
    nowhere = make_episode(make_task(), ("go to sofa 1", "At sofa 1: mug 1." + H), won=True)
    (result,), spent = replay(adapter, [nowhere])
    assert not result.confirmed and spent == 0
    assert replay(adapter, []) == ([], 0)
