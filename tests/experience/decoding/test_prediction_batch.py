"""Answers of a batch: what is sampled, what is refused and sampled again, and what stays of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import ROOM, VOCABULARY, WORLD, make_model, make_task, make_transition

from components.config import ExperienceModelConfig
from components.experience.decoding.answer_checks import Refusal
from components.experience.decoding.prediction_batch import Query
from components.experience.formats import compact_world
from components.experience.formats.compact_world import opening, turn
from components.experience.formats.training_examples import render_trajectory
from components.experience.model import ExperienceModel
from components.language.training.fine_tuning import supervised_finetune
from components.records import Trajectory

H = " Holding nothing."


@pytest.fixture(scope="module")
def undecided():
    """A model with two reasonings for one action, three to one, and two equally likely states behind each."""
    ends = [("At desk 1: mug 1." + H, "works, new"), ("At desk 1: nothing." + H, "works, new")] * 3
    ends += [("At desk 1: mug 1." + H, "fails"), ("At desk 1: nothing." + H, "fails")]
    steps = [
        replace(make_transition(), state=ROOM, action="look", next_state=state, reasoning=reasoning)
        for state, reasoning in ends
    ]
    episodes = [Trajectory(make_task(), (step,)) for step in steps]
    model = make_model(hidden=32)
    examples = [render_trajectory(WORLD, episode, [[]]) for episode in episodes]
    supervised_finetune(model, examples, epochs=150, learning_rate=8e-3, batch_tokens=4096, seed=0)
    return model


def opened(row, answer) -> bool:
    """The rule of the test: rows below 30 are undetermined."""
    return row < 30


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_undetermined_outcomes_are_sampled_behind_a_greedy_reasoning(undecided, temperature):
    def say(seed, leaves_open=opened):
        config = ExperienceModelConfig(max_new_tokens=40, temperature=temperature)
        batch = ExperienceModel(undecided, VOCABULARY, config, seed=seed).begin([make_task()] * 40)
        answers = batch.predict({row: Query(ROOM, "look") for row in range(40)}, None, leaves_open)
        return answers, batch.written

    answers, written = say(0)
    accepted = {row: answer for row, answer in answers.items() if answer}
    assert len(accepted) > 30 and {answer.reasoning for answer in accepted.values()} == {"works, new"}
    likeliest = {accepted[39].state}
    trained = {"At desk 1: mug 1." + H, "At desk 1: nothing." + H}
    assert {answer.state for row, answer in accepted.items() if row >= 30} == likeliest < trained
    states = {answer.state for row, answer in accepted.items() if row < 30}
    assert trained <= states if temperature else states == likeliest
    assert say(0)[0] == answers and (say(1)[0] != answers) == (temperature > 0)
    assert {answer.state for answer in say(0, None)[0].values()} == likeliest
    assert all(len(w.tokens) == len(w.logprobs) <= 40 and w.stopped for w in written.values())


def test_a_refused_sample_is_sampled_again_and_the_likeliest_answer_comes_last(undecided):
    config = ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    model = ExperienceModel(undecided, VOCABULARY, config)

    def say(accept):
        before, batch = model.incoherent_answers, model.begin([make_task()] * 40)
        answers = batch.predict({row: Query(ROOM, "look") for row in range(40)}, accept, lambda *_: True)
        return [
            answer.state if answer else None for answer in answers.values()
        ], model.incoherent_answers - before

    likeliest = model.begin([make_task()]).predict({0: Query(ROOM, "look")})[0].state
    rare = ({"At desk 1: mug 1." + H, "At desk 1: nothing." + H} - {likeliest}).pop()
    states, refused = say(lambda _, answer: answer.state == rare)
    assert states.count(rare) > 35 and refused > 10, "seven tries of an even chance"
    states, refused = say(lambda _, answer: answer.state == likeliest)
    assert states == [likeliest] * 40
    calls: list[str] = []
    states, _ = say(lambda row, answer: calls.append(answer.reasoning) or len(calls) > 500)
    assert {"works, new", "fails"} < set(calls), (
        "the reasoning is sampled too if the likeliest answer is refused"
    )


def test_an_answer_that_further_samples_do_not_repeat_is_none_in_a_dream_alone(undecided):
    """Behind either reasoning the two states are equally likely."""
    queries = {row: Query(ROOM, "look") for row in range(40)}

    def ask(samples, **checks):
        config = ExperienceModelConfig(max_new_tokens=40, resamples=0, agreeing_samples=samples)
        model = ExperienceModel(undecided, VOCABULARY, config)
        answers = model.begin([make_task()] * 40).predict(queries, **checks)
        unanswered = sum(answer is None for answer in answers.values())
        assert model.counts.refusals[Refusal.DISAGREEING] == model.unanswered_steps == unanswered
        return unanswered

    determined = {"is_undetermined": lambda *_: False}
    assert ask(0, **determined) == 0
    one, three = ask(1, **determined), ask(3, **determined)
    assert 10 <= one <= 30 < three
    assert ask(3) == 0, "fidelity is that of the model itself"
    assert ask(3, is_undetermined=lambda *_: True) == 0, "an open answer may be said otherwise"


def test_the_answers_without_the_callers_checks_are_kept(undecided):
    config = ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    model = ExperienceModel(undecided, VOCABULARY, config)
    plain = model.begin([make_task()] * 20)
    queries = {row: Query(ROOM, "look") for row in range(20)}
    bare = plain.predict(queries)
    assert plain.unchecked == bare
    checked = model.begin([make_task()] * 20)
    rare = {"At desk 1: mug 1." + H, "At desk 1: nothing." + H} - {bare[0].state}
    used = checked.predict(queries, lambda _, answer: answer.state in rare, lambda *_: True)
    assert {answer.state for answer in used.values() if answer} == rare
    assert checked.unchecked == bare
    assert [one.tokens for one in checked.greedy.values()] == [one.tokens for one in plain.written.values()]


def test_sampled_tokens_have_the_log_probabilities_of_the_model(undecided):
    """Tokens behind a rewound reasoning have the log-probabilities of one pass over the whole text."""
    config = ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    batch = ExperienceModel(undecided, VOCABULARY, config).begin([make_task()] * 6)
    batch.predict({row: Query(ROOM, "look") for row in range(6)}, None, lambda *_: True)
    assert batch._session.lengths[:6] == [len(VOCABULARY.encode(opening(make_task())))] * 6
    for row, generation in batch.written.items():
        prompt = VOCABULARY.encode(opening(make_task())) + VOCABULARY.encode(
            turn(make_task(), ROOM, "look", [])
        )
        with torch.no_grad():
            logits = undecided(torch.tensor([prompt + generation.tokens])).logits[0].log_softmax(-1)
        plain = [float(logits[len(prompt) + n - 1, token]) for n, token in enumerate(generation.tokens)]
        assert generation.logprobs == pytest.approx(plain, abs=1e-3), row


@pytest.mark.parametrize("leaves_open", [None, opened])
def test_the_token_limit_holds_for_both_parts_of_an_answer_together(undecided, leaves_open):
    def say(limit):
        config = ExperienceModelConfig(max_new_tokens=limit, resamples=0)
        batch = ExperienceModel(undecided, VOCABULARY, config).begin([make_task()])
        return batch.predict({0: Query(ROOM, "look")}, None, leaves_open)[0], batch.written[0]

    length = len(say(40)[1].tokens)
    for limit, readable in ((length, True), (length - 1, False)):
        answer, written = say(limit)
        assert (answer is not None) == readable
        assert len(written.tokens) == limit and written.stopped == readable


def test_ungrounded_reasoning_is_sampled_again(undecided):
    """The check of this test accepts only the rarer reasoning."""
    calls = []

    def grounded(task, states, action, reasoning):
        calls.append((task, states, action))
        return len(reasoning) if reasoning == "fails" else 0

    config = ExperienceModelConfig(max_new_tokens=40, temperature=0.0, resamples=60)
    model = ExperienceModel(undecided, VOCABULARY, config, grounded=grounded)
    batch = model.begin([make_task()] * 20)
    answers = batch.predict({row: Query(ROOM, "look") for row in range(20)}).values()
    assert {answer.reasoning for answer in answers if answer} == {"fails"}
    assert (
        model.ungrounded_answers >= 20
        and model.incoherent_answers == 0
        and model.unanswered_steps == sum(answer is None for answer in answers)
    )
    task, states, action = calls[0]
    assert (task, action) == (make_task(), "look") and set(states) == {task.initial_state, ROOM}
    assert batch._session.lengths[:20] == [len(VOCABULARY.encode(opening(make_task())))] * 20


def test_the_valid_prefix_stays_when_the_rest_is_sampled_again(undecided):
    """The check refuses the end of the likeliest reasoning `works, new`: every further try begins with
    `works`.
    """
    reasonings = []

    def grounded(task, states, action, reasoning):
        reasonings.append(reasoning)
        return len("works") if reasoning.startswith("works") else 0

    config = ExperienceModelConfig(max_new_tokens=40, resamples=6)
    model = ExperienceModel(undecided, VOCABULARY, config, grounded=grounded)
    answers = model.begin([make_task()] * 10).predict({row: Query(ROOM, "look") for row in range(10)})
    assert {answer.reasoning for answer in answers.values() if answer} == {"works, new"}
    assert len(reasonings) == 10 * 7 and all(reasoning.startswith("works") for reasoning in reasonings), (
        "without the prefix, a quarter would be `fails`"
    )


@pytest.mark.parametrize(
    ("reward", "contradicted", "believed"), [(0.0, False, True), (1.0, False, False), (0.0, True, False)]
)
def test_an_always_ungrounded_answer_is_accepted_only_without_reward_and_contradiction(
    monkeypatch, undecided, reward, contradicted, believed
):
    parse = compact_world.parse_answer

    def rewarded(*args, **options):
        answer = parse(*args, **options)
        return answer and replace(answer, reward=reward, done=reward > 0)

    monkeypatch.setattr(compact_world, "parse_answer", rewarded)
    model = ExperienceModel(
        undecided, VOCABULARY, ExperienceModelConfig(max_new_tokens=40), grounded=lambda *_: 0
    )
    answers = model.begin([make_task()] * 3).predict(
        {row: Query(ROOM, "look") for row in range(3)}, lambda *_: not contradicted
    )
    assert {answer.reasoning if answer else "" for answer in answers.values()} == {
        "works, new" if believed else ""
    }
    assert model.unanswered_steps == (0 if believed else 3)
