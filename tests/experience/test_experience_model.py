"""Predictions of a batch of episodes: the same as alone, from the same text as in training, and without a
trace on the trunk.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import ROOM, VOCABULARY, make_model, make_task, make_transition

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience import model as experience_model
from components.experience.model import ExperienceModel, Query, note_form
from components.experience.prompts import Answer, growth, opening, render_trajectory, turn
from components.language.backbone import save_model
from components.language.training.examples import collate
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.token_scores import token_logprobs
from components.records import Trajectory

H = " Holding nothing."


def expected(step) -> Answer:
    return Answer(step.reasoning, step.next_state, step.reward, step.done)


def play(model, episodes, *, advance=True, demonstrations=()):
    """The answers to every step of `episodes`, all rows side by side."""
    foresight = model.begin([episode.task for episode in episodes])
    answers = [[] for _ in episodes]
    for number in range(max(len(e.steps) for e in episodes)):
        rows = {row: e.steps[number] for row, e in enumerate(episodes) if number < len(e.steps)}
        found = foresight.predict(
            {row: Query(step.state, step.action, demonstrations) for row, step in rows.items()}
        )
        for row in rows:
            answers[row].append(found[row])
        if advance:
            foresight.advance({row: (step.action, step.next_state) for row, step in rows.items()})
        foresight.finish([row for row in rows if number + 1 == len(episodes[row].steps)])
    return answers


@pytest.mark.parametrize("family", ["learnt", "learnt_qwen"])
def test_what_was_learnt_in_training_is_answered_in_the_dream(family, lessons, request):
    """Training and inference see the same text, or this would fail."""
    learnt = request.getfixturevalue(family)
    before = learnt.unparsable
    assert play(learnt, lessons) == [[expected(step) for step in episode.steps] for episode in lessons]
    assert learnt.unparsable == before


def test_prediction_in_a_batch_equals_prediction_alone(learnt, lessons):
    demo = make_transition()
    together = play(learnt, [*lessons, *lessons[::-1]], demonstrations=[demo])
    alone = [play(learnt, [episode], demonstrations=[demo])[0] for episode in lessons]
    assert together == [*alone, *alone[::-1]]


def test_history_decides_what_the_state_alone_does_not(learnt, lessons):
    third = [play(learnt, [episode])[0][2].state for episode in lessons]
    assert third[0] != third[1]
    forgotten = [play(learnt, [episode], advance=False)[0][2] for episode in lessons]
    assert forgotten[0] == forgotten[1]


def test_without_history_advance_adds_nothing(learnt, lessons):
    blind = ExperienceModel(learnt.model, VOCABULARY, ExperienceModelConfig(history=False, max_new_tokens=40))
    foresight = blind.begin([lessons[0].task])
    step = lessons[0].steps[0]
    before = foresight.predict({0: Query(step.state, step.action)})
    foresight.advance({0: (step.action, step.next_state)})
    assert foresight.predict({0: Query(step.state, step.action)}) == before
    assert foresight._session.lengths[0] == len(VOCABULARY.encode(opening(lessons[0].task)))


def test_predicting_leaves_the_trunk_as_it_was(learnt, untrained, lessons):
    episode = lessons[0]
    trunk = VOCABULARY.encode(opening(episode.task))
    for model in (learnt, untrained):
        foresight = model.begin([episode.task, episode.task])
        for _ in range(3):
            foresight.predict(
                {1: Query(episode.steps[0].state, episode.steps[0].action, [make_transition()])}
            )
            assert foresight._session.lengths[:2] == [0, len(trunk)]
        foresight.advance({1: ("go to desk 1", "At desk 1: mug 1.")})
        foresight.predict({1: Query("s", "a")})
        assert foresight._session.lengths[1] == len(trunk) + len(
            VOCABULARY.encode(growth("go to desk 1", "At desk 1: mug 1."))
        )
    first = learnt.begin([episode.task])
    asked = Query(episode.steps[0].state, episode.steps[0].action)
    first.predict({0: Query("something else", "look")})
    assert first.predict({0: asked}) == {0: expected(episode.steps[0])}


def test_the_prompt_of_the_dream_is_the_text_of_training(learnt, lessons):
    """Token by token: trunk and turn as the engine gets them, beside the rendered example."""
    episode, demo = lessons[0], make_transition()
    example = render_trajectory(VOCABULARY, episode, [[demo]] * len(episode.steps))
    branches = [segment for segment in example.segments if segment.branch]
    trunk = [segment.tokens for segment in example.segments if not segment.branch]
    foresight = learnt.begin([episode.task])
    assert foresight._pending[0] == trunk[0]
    for number, step in enumerate(episode.steps):
        prompt = foresight._prompt(0, Query(step.state, step.action, [demo]))
        answer = [
            token
            for token, wanted in zip(branches[number].tokens, branches[number].loss, strict=True)
            if wanted
        ]
        assert branches[number].tokens == prompt + answer
        foresight.advance({0: (step.action, step.next_state)})
        assert foresight._pending[0] == [token for part in trunk[: number + 2] for token in part]


def test_the_answers_probability_is_that_of_the_trained_branch(learnt, lessons):
    """The tree of training and the kept cache of the dream give each answer token the same
    log-probability.
    """
    episode = lessons[0]
    with torch.no_grad():
        batch = collate([render_trajectory(VOCABULARY, episode, [[] for _ in episode.steps])], 0)
        trained = token_logprobs(learnt.model, batch).logprobs
    dreamed = []
    session = learnt._engine(0).open(1)
    pending = VOCABULARY.encode(opening(episode.task))
    for step in episode.steps:
        session.append({0: pending})
        length = session.lengths[0]
        out = session.generate(
            {0: VOCABULARY.encode(turn(episode.task, step.state, step.action, []))},
            stop=learnt.begin([episode.task])._stop,
            max_new_tokens=60,
            temperature=0.0,
        )
        dreamed += out[0].logprobs
        session.rewind({0: length})
        pending = VOCABULARY.encode(growth(step.action, step.next_state))
    torch.testing.assert_close(torch.tensor(dreamed), trained, atol=1e-3, rtol=0)


def test_an_unreadable_answer_is_tried_again_then_given_up_and_counted(untrained):
    tasks = [make_task(n) for n in range(3)]
    answers = untrained.begin(tasks).predict({row: Query("s", "a") for row in range(3)})
    assert answers == {0: None, 1: None, 2: None}
    assert untrained.unparsable == 3
    assert 2 * 3 * 8 < untrained.tokens <= 3 * 3 * 8  # three rows, three tries; a sampled one may end early
    once = ExperienceModel(untrained.model, VOCABULARY, ExperienceModelConfig(max_new_tokens=8, resamples=0))
    once.begin(tasks).predict({0: Query("s", "a")})
    assert (once.unparsable, once.tokens) == (1, 8)


def test_the_first_further_try_that_is_accepted_counts_and_leaves_nothing_behind(learnt, lessons):
    step, tasks = lessons[0].steps[0], [lessons[0].task] * 3
    question = {row: Query(step.state, step.action) for row in range(3)}
    asked: dict[int, int] = {0: 0, 1: 0, 2: 0}

    def accept(row, answer):
        """Row 0 believes at once, row 1 the third answer, row 2 none."""
        asked[row] += 1
        return row == 0 or (row == 1 and asked[row] == 3)

    before, foresight = learnt.refused, learnt.begin(tasks)
    answers = foresight.predict(question, accept)
    assert answers[0] == answers[1] == expected(step) and answers[2] is None
    assert asked[0] == 1 and asked[1] == 3 and 1 < asked[2] <= 1 + learnt.config.resamples
    assert learnt.refused - before == asked[1] - 1 + asked[2]
    trunk = len(VOCABULARY.encode(opening(tasks[0])))
    assert foresight._session.lengths == [trunk] * 3 + [0] * (foresight._session.rows - 3)
    assert foresight.predict(question)[2] == expected(step)


def test_a_strange_question_beside_it_does_not_change_an_answer(learnt, lessons):
    step, before = lessons[0].steps[0], learnt.tokens
    rows = {0: Query(step.state, step.action), 1: Query("<success> <success>", "")}
    answers = learnt.begin([lessons[0].task] * 2).predict(rows)
    assert answers[0] == expected(step)
    assert learnt.begin([lessons[0].task] * 2).predict(rows) == answers and learnt.tokens > before


def test_greedy_answers_do_not_hang_on_the_seed_and_samples_do():
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


@pytest.fixture(scope="module")
def undecided():
    """A model that has learnt two reasonings of one action, three to one, and behind each of them two states
    as often.
    """
    ends = [("At desk 1: mug 1." + H, "works, new"), ("At desk 1: nothing." + H, "works, new")] * 3
    ends += [("At desk 1: mug 1." + H, "fails"), ("At desk 1: nothing." + H, "fails")]
    steps = [
        replace(make_transition(), state=ROOM, action="look", next_state=state, reasoning=reasoning)
        for state, reasoning in ends
    ]
    episodes = [Trajectory(make_task(), (step,)) for step in steps]
    model = make_model(hidden=32)
    examples = [render_trajectory(VOCABULARY, episode, [[]]) for episode in episodes]
    supervised_finetune(model, examples, epochs=150, learning_rate=8e-3, batch_tokens=4096, seed=0)
    return model


def opened(row, answer) -> bool:
    """The test's rule: rows below 30 ask what no history tells."""
    return row < 30


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_what_the_history_leaves_open_is_sampled_behind_a_greedy_reasoning(undecided, temperature):
    def say(seed, leaves_open=opened):
        config = ExperienceModelConfig(max_new_tokens=40, temperature=temperature)
        foresight = ExperienceModel(undecided, VOCABULARY, config, seed=seed).begin([make_task()] * 40)
        answers = foresight.predict({row: Query(ROOM, "look") for row in range(40)}, None, leaves_open)
        return answers, foresight.written

    answers, written = say(0)
    found = {row: answer for row, answer in answers.items() if answer}
    assert len(found) > 30 and {answer.reasoning for answer in found.values()} == {"works, new"}
    likeliest, learnt = {found[39].state}, {"At desk 1: mug 1." + H, "At desk 1: nothing." + H}
    assert {answer.state for row, answer in found.items() if row >= 30} == likeliest < learnt
    states = {answer.state for row, answer in found.items() if row < 30}
    assert learnt <= states if temperature else states == likeliest
    assert say(0)[0] == answers and (say(1)[0] != answers) == (temperature > 0)
    assert {answer.state for answer in say(0, None)[0].values()} == likeliest
    assert all(len(w.tokens) == len(w.logprobs) <= 40 and w.stopped for w in written.values())


def test_what_is_imagined_and_not_accepted_is_imagined_again_and_the_likeliest_comes_last(undecided):
    config = ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    model = ExperienceModel(undecided, VOCABULARY, config)

    def say(accept):
        before, foresight = model.refused, model.begin([make_task()] * 40)
        answers = foresight.predict({row: Query(ROOM, "look") for row in range(40)}, accept, lambda *_: True)
        return [answer.state if answer else None for answer in answers.values()], model.refused - before

    likeliest = model.begin([make_task()]).predict({0: Query(ROOM, "look")})[0].state
    rare = ({"At desk 1: mug 1." + H, "At desk 1: nothing." + H} - {likeliest}).pop()
    states, refused = say(lambda _, answer: answer.state == rare)
    assert states.count(rare) > 35 and refused > 10, "seven tries of an even chance"
    states, refused = say(lambda _, answer: answer.state == likeliest)
    assert states == [likeliest] * 40
    asked: list[str] = []
    states, _ = say(lambda row, answer: asked.append(answer.reasoning) or len(asked) > 500)
    assert {"works, new", "fails"} < set(asked), (
        "where the likeliest will not do either, the reasoning is sampled too"
    )


def test_what_is_imagined_has_the_probability_that_the_model_gives_it(undecided):
    """Written behind a rewound reasoning, its tokens have the log-probabilities of one pass over the whole
    text.
    """
    config = ExperienceModelConfig(max_new_tokens=40, temperature=1.0)
    foresight = ExperienceModel(undecided, VOCABULARY, config).begin([make_task()] * 6)
    foresight.predict({row: Query(ROOM, "look") for row in range(6)}, None, lambda *_: True)
    assert foresight._session.lengths[:6] == [len(VOCABULARY.encode(opening(make_task())))] * 6
    for row, generation in foresight.written.items():
        prompt = VOCABULARY.encode(opening(make_task())) + VOCABULARY.encode(
            turn(make_task(), ROOM, "look", [])
        )
        with torch.no_grad():
            logits = undecided(torch.tensor([prompt + generation.tokens])).logits[0].log_softmax(-1)
        plain = [float(logits[len(prompt) + n - 1, token]) for n, token in enumerate(generation.tokens)]
        assert generation.logprobs == pytest.approx(plain, abs=1e-3), row


@pytest.mark.parametrize("leaves_open", [None, opened])
def test_an_answer_is_no_longer_than_allowed_in_both_parts_together(undecided, leaves_open):
    def say(limit):
        config = ExperienceModelConfig(max_new_tokens=limit, resamples=0)
        foresight = ExperienceModel(undecided, VOCABULARY, config).begin([make_task()])
        return foresight.predict({0: Query(ROOM, "look")}, None, leaves_open)[0], foresight.written[0]

    length = len(say(40)[1].tokens)
    for limit, readable in ((length, True), (length - 1, False)):
        answer, written = say(limit)
        assert (answer is not None) == readable
        assert len(written.tokens) == limit and written.stopped == readable


def test_reasoning_that_quotes_what_was_not_shown_is_written_again(undecided):
    """A check of the test's own: it lets the rarer reasoning alone pass."""
    asked = []

    def grounded(task, states, action, reasoning):
        asked.append((task, states, action))
        return len(reasoning) if reasoning == "fails" else 0

    config = ExperienceModelConfig(max_new_tokens=40, temperature=0.0, resamples=60)
    model = ExperienceModel(undecided, VOCABULARY, config, grounded=grounded)
    foresight = model.begin([make_task()] * 20)
    answers = foresight.predict({row: Query(ROOM, "look") for row in range(20)}).values()
    assert {answer.reasoning for answer in answers if answer} == {"fails"}
    assert (
        model.misquoting >= 20
        and model.refused == 0
        and model.unparsable == sum(answer is None for answer in answers)
    )
    task, states, action = asked[0]
    assert (task, action) == (make_task(), "look") and set(states) == {task.initial_state, ROOM}
    assert foresight._session.lengths[:20] == [len(VOCABULARY.encode(opening(make_task())))] * 20


def test_what_quotes_rightly_stays_when_the_rest_is_written_again(undecided):
    """The likeliest reasoning is `works, new`: where the check denies its end, every further try begins with
    `works`.
    """
    seen = []

    def grounded(task, states, action, reasoning):
        seen.append(reasoning)
        return len("works") if reasoning.startswith("works") else 0

    config = ExperienceModelConfig(max_new_tokens=40, resamples=6)
    model = ExperienceModel(undecided, VOCABULARY, config, grounded=grounded)
    answers = model.begin([make_task()] * 10).predict({row: Query(ROOM, "look") for row in range(10)})
    assert {answer.reasoning for answer in answers.values() if answer} == {"works, new"}
    assert len(seen) == 10 * 7 and all(reasoning.startswith("works") for reasoning in seen), (
        "from the beginning a quarter would be `fails`"
    )


@pytest.mark.parametrize(
    ("reward", "contradicted", "believed"), [(0.0, False, True), (1.0, False, False), (0.0, True, False)]
)
def test_what_always_quotes_wrongly_is_believed_only_where_it_grants_and_contradicts_nothing(
    monkeypatch, undecided, reward, contradicted, believed
):
    parse = experience_model.parse_answer

    def rewarded(*args, **options):
        answer = parse(*args, **options)
        return answer and replace(answer, reward=reward, done=reward > 0)

    monkeypatch.setattr(experience_model, "parse_answer", rewarded)
    model = ExperienceModel(
        undecided, VOCABULARY, ExperienceModelConfig(max_new_tokens=40), grounded=lambda *_: 0
    )
    answers = model.begin([make_task()] * 3).predict(
        {row: Query(ROOM, "look") for row in range(3)}, lambda *_: not contradicted
    )
    assert {answer.reasoning if answer else "" for answer in answers.values()} == {
        "works, new" if believed else ""
    }
    assert model.unparsable == (0 if believed else 3)


def test_variations_are_instructions_that_ended(learnt, untrained):
    assert learnt.vary([], seed=0) == []
    said = learnt.vary([make_task(), make_task(1)], seed=0, temperature=0.0)
    assert said == ["put a hot mug in desk"] * 2
    assert learnt.vary([make_task()] * 5, seed=1) == learnt.vary([make_task()] * 5, seed=1)
    before = untrained.tokens
    assert untrained.vary([make_task()] * 8, seed=0).count("") >= 6
    assert untrained.tokens > before


def test_a_model_of_another_form_is_refused_with_what_to_type(tmp_path, learnt):
    save_model(learnt.model, VOCABULARY, tmp_path / "model")
    assert (
        ExperienceModel.load(tmp_path / "model", ExperienceModelConfig(reasoning=False)).config.reasoning
        is False
    )
    note_form(tmp_path / "model", ExperienceModelConfig(reasoning=False))
    ExperienceModel.load(tmp_path / "model", ExperienceModelConfig(reasoning=False))
    with pytest.raises(
        ExperienceModelError, match="trained with reasoning=false.*Add experience_model.reasoning=false"
    ):
        ExperienceModel.load(tmp_path / "model", ExperienceModelConfig())
