"""Predictions in a batch equal those alone, use the text of training, and do not change the trunk."""

from __future__ import annotations

import pytest
import torch
from builders import VOCABULARY, WORLD, make_model, make_task, make_transition

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience.decoding.answer_checks import Refusal
from components.experience.decoding.prediction_batch import Query
from components.experience.formats.compact_world import growth, opening, turn
from components.experience.formats.training_examples import render_trajectory
from components.experience.formats.world_format import Answer
from components.experience.model import ExperienceModel, save_prompt_form
from components.language.backbone import save_model
from components.language.training.examples import collate
from components.language.training.token_scores import token_logprobs

H = " Holding nothing."


def expected(step) -> Answer:
    return Answer(step.reasoning, step.next_state, step.reward, step.done)


def play(model, episodes, *, advance=True, demonstrations=()):
    """The answers to every step of `episodes`, one row an episode."""
    batch = model.begin([episode.task for episode in episodes])
    answers = [[] for _ in episodes]
    for number in range(max(len(e.steps) for e in episodes)):
        rows = {row: e.steps[number] for row, e in enumerate(episodes) if number < len(e.steps)}
        predictions = batch.predict(
            {row: Query(step.state, step.action, demonstrations) for row, step in rows.items()}
        )
        for row in rows:
            answers[row].append(predictions[row])
        if advance:
            batch.advance({row: (step.action, step.next_state) for row, step in rows.items()})
        batch.finish([row for row in rows if number + 1 == len(episodes[row].steps)])
    return answers


@pytest.mark.parametrize("family", ["learnt", "learnt_qwen"])
def test_trained_answers_are_given_in_the_dream(family, lessons, request):
    """This holds only if training and inference use the same text."""
    learnt = request.getfixturevalue(family)
    before = learnt.unanswered_steps
    assert play(learnt, lessons) == [[expected(step) for step in episode.steps] for episode in lessons]
    assert learnt.unanswered_steps == before


def test_prediction_in_a_batch_equals_prediction_alone(learnt, lessons):
    demo = make_transition()
    together = play(learnt, [*lessons, *lessons[::-1]], demonstrations=[demo])
    alone = [play(learnt, [episode], demonstrations=[demo])[0] for episode in lessons]
    assert together == [*alone, *alone[::-1]]


def test_the_history_decides_between_equal_states(learnt, lessons):
    third = [play(learnt, [episode])[0][2].state for episode in lessons]
    assert third[0] != third[1]
    forgotten = [play(learnt, [episode], advance=False)[0][2] for episode in lessons]
    assert forgotten[0] == forgotten[1]


def test_without_history_advance_adds_nothing(learnt, lessons):
    blind = ExperienceModel(learnt.model, VOCABULARY, ExperienceModelConfig(history=False, max_new_tokens=40))
    batch = blind.begin([lessons[0].task])
    step = lessons[0].steps[0]
    before = batch.predict({0: Query(step.state, step.action)})
    batch.advance({0: (step.action, step.next_state)})
    assert batch.predict({0: Query(step.state, step.action)}) == before
    assert batch._session.lengths[0] == len(VOCABULARY.encode(opening(lessons[0].task)))


def test_a_prediction_does_not_change_the_trunk(learnt, untrained, lessons):
    episode = lessons[0]
    trunk = VOCABULARY.encode(opening(episode.task))
    for model in (learnt, untrained):
        batch = model.begin([episode.task, episode.task])
        for _ in range(3):
            batch.predict({1: Query(episode.steps[0].state, episode.steps[0].action, [make_transition()])})
            assert batch._session.lengths[:2] == [0, len(trunk)]
        batch.advance({1: ("go to desk 1", "At desk 1: mug 1.")})
        batch.predict({1: Query("s", "a")})
        assert batch._session.lengths[1] == len(trunk) + len(
            VOCABULARY.encode(growth("go to desk 1", "At desk 1: mug 1."))
        )
    first = learnt.begin([episode.task])
    calls = Query(episode.steps[0].state, episode.steps[0].action)
    first.predict({0: Query("something else", "look")})
    assert first.predict({0: calls}) == {0: expected(episode.steps[0])}


def test_the_prompt_in_the_dream_equals_the_text_in_training(learnt, lessons):
    """Trunk and turn, as the engine gets them, equal the rendered example token by token."""
    episode, demo = lessons[0], make_transition()
    example = render_trajectory(WORLD, episode, [[demo]] * len(episode.steps))
    branches = [segment for segment in example.segments if segment.branch]
    trunk = [segment.tokens for segment in example.segments if not segment.branch]
    batch = learnt.begin([episode.task])
    assert batch._pending[0] == trunk[0]
    for number, step in enumerate(episode.steps):
        prompt = batch._prompt(0, Query(step.state, step.action, [demo]))
        answer = [
            token
            for token, wanted in zip(branches[number].tokens, branches[number].loss, strict=True)
            if wanted
        ]
        assert branches[number].tokens == prompt + answer
        batch.advance({0: (step.action, step.next_state)})
        assert batch._pending[0] == [token for part in trunk[: number + 2] for token in part]


def test_answer_probabilities_equal_those_of_the_trained_branch(learnt, lessons):
    """The segments of training and the kept cache give each answer token the same log-probability."""
    episode = lessons[0]
    with torch.no_grad():
        batch = collate([render_trajectory(WORLD, episode, [[] for _ in episode.steps])], 0)
        trained = token_logprobs(learnt.model, batch).logprobs
    dreamed = []
    session = learnt._engine(0).open(1)
    pending = VOCABULARY.encode(opening(episode.task))
    for step in episode.steps:
        session.append({0: pending})
        length = session.lengths[0]
        out = session.generate(
            {0: VOCABULARY.encode(turn(episode.task, step.state, step.action, []))},
            stop=learnt.text.stop,
            max_new_tokens=60,
            temperature=0.0,
        )
        dreamed += out[0].logprobs
        session.rewind({0: length})
        pending = VOCABULARY.encode(growth(step.action, step.next_state))
    torch.testing.assert_close(torch.tensor(dreamed), trained, atol=1e-3, rtol=0)


def test_an_unparsable_answer_is_sampled_again_then_given_up_and_counted(untrained):
    tasks = [make_task(n) for n in range(3)]
    answers = untrained.begin(tasks).predict({row: Query("s", "a") for row in range(3)})
    assert answers == {0: None, 1: None, 2: None}
    assert untrained.unanswered_steps == 3
    assert 2 * 3 * 8 < untrained.tokens <= 3 * 3 * 8  # three rows, three tries; a sampled one may end early
    once = ExperienceModel(untrained.model, VOCABULARY, ExperienceModelConfig(max_new_tokens=8, resamples=0))
    once.begin(tasks).predict({0: Query("s", "a")})
    assert (once.unanswered_steps, once.tokens) == (1, 8)


def test_the_first_accepted_try_counts_and_spare_rows_are_cleared(learnt, lessons):
    step, tasks = lessons[0].steps[0], [lessons[0].task] * 3
    question = {row: Query(step.state, step.action) for row in range(3)}
    calls: dict[int, int] = {0: 0, 1: 0, 2: 0}

    def accept(row, answer):
        """Accept the first answer of row 0, the third of row 1, and none of row 2."""
        calls[row] += 1
        return row == 0 or (row == 1 and calls[row] == 3)

    before, batch = learnt.incoherent_answers, learnt.begin(tasks)
    answers = batch.predict(question, accept)
    assert answers[0] == answers[1] == expected(step) and answers[2] is None
    assert calls[0] == 1 and calls[1] == 3 and 1 < calls[2] <= 1 + learnt.config.resamples
    assert learnt.incoherent_answers - before == calls[1] - 1 + calls[2]
    trunk = len(VOCABULARY.encode(opening(tasks[0])))
    assert batch._session.lengths == [trunk] * 3 + [0] * (batch._session.rows - 3)
    assert batch.predict(question)[2] == expected(step)


def test_an_unusual_query_in_the_batch_does_not_change_an_answer(learnt, lessons):
    step, before = lessons[0].steps[0], learnt.tokens
    rows = {0: Query(step.state, step.action), 1: Query("<success> <success>", "")}
    answers = learnt.begin([lessons[0].task] * 2).predict(rows)
    assert answers[0] == expected(step)
    assert learnt.begin([lessons[0].task] * 2).predict(rows) == answers and learnt.tokens > before


def test_samples_depend_on_the_seed_and_greedy_answers_do_not():
    model = make_model(scale=2.0)
    tasks = [make_task()]

    def say(temperature, seed):
        warm = ExperienceModel(
            model, VOCABULARY, ExperienceModelConfig(max_new_tokens=8, temperature=temperature, resamples=0)
        )
        session = warm._engine(seed).open(1)
        prompt = VOCABULARY.encode([*opening(tasks[0]), *turn(tasks[0], "s", "a", [])])
        return session.generate(
            {0: prompt}, stop=set(), max_new_tokens=8, temperature=warm.config.temperature
        )[0].tokens

    assert say(0.0, 1) == say(0.0, 2)
    assert say(1.0, 1) == say(1.0, 1) != say(1.0, 2)


def test_variations_are_instructions_that_ended_in_time(learnt, untrained):
    assert learnt.vary([], seed=0) == []
    instructions = learnt.vary([make_task(), make_task(1)], seed=0, temperature=0.0)
    assert instructions == ["put a hot mug in desk"] * 2
    assert learnt.vary([make_task()] * 5, seed=1) == learnt.vary([make_task()] * 5, seed=1)
    before = untrained.tokens
    assert untrained.vary([make_task()] * 8, seed=0).count("") >= 6
    assert untrained.tokens > before


def test_a_model_of_another_prompt_form_is_refused_with_the_setting_to_add(tmp_path, learnt):
    save_model(learnt.model, VOCABULARY, tmp_path / "model")
    assert (
        ExperienceModel.load(tmp_path / "model", ExperienceModelConfig(reasoning=False)).config.reasoning
        is False
    )
    save_prompt_form(tmp_path / "model", ExperienceModelConfig(reasoning=False))
    ExperienceModel.load(tmp_path / "model", ExperienceModelConfig(reasoning=False))
    with pytest.raises(
        ExperienceModelError, match="trained with reasoning=false.*Add experience_model.reasoning=false"
    ):
        ExperienceModel.load(tmp_path / "model", ExperienceModelConfig())


@pytest.mark.parametrize(("floor", "is_given"), [(0.5, True), (0.999999, False)])
def test_an_answer_that_the_model_is_unsure_of_is_none_in_a_dream_alone(learnt, lessons, floor, is_given):
    """The model has memorised the lessons: it is sure of them, but never as sure as the higher floor."""
    config = learnt.config.model_copy(update={"min_confidence": floor})
    model = ExperienceModel(learnt.model, learnt.vocabulary, config)
    step = lessons[0].steps[0]
    query = {0: Query(step.state, step.action)}

    def ask(**checks):
        return model.begin([lessons[0].task]).predict(query, **checks)[0]

    determined = ask(is_undetermined=lambda row, answer: False)
    assert determined == (expected(step) if is_given else None)
    assert model.counts.refusals[Refusal.UNSURE] == model.unanswered_steps == int(not is_given)
    assert ask(is_undetermined=lambda row, answer: True) == expected(step), "an open answer may be unlikely"
    assert ask() == expected(step), "fidelity is that of the model itself"
