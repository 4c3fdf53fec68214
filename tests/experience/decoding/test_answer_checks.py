"""The checks of an answer: their order, what they count, and what they leave of an ungrounded answer."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, WORLD, make_task

from components.experience.decoding.answer_checks import (
    AnswerChecks,
    DecodingCounts,
    ReadAnswer,
    Refusal,
    StepContext,
)
from components.experience.formats.world_format import Answer
from components.language.engines.engine_protocol import Generation
from components.language.vocabulary.markers import CONTINUE, STATE, THINK

REASONING = "works, new mug 1"
PIECES = [THINK, REASONING, STATE, "At desk 1: mug 1.", CONTINUE]
ANSWER = Answer(REASONING, "At desk 1: mug 1.", 0.0, False)
CONTEXT = StepContext(make_task(), ["In the room.", "At shelf 1."], "go to desk 1")


def generated(pieces=PIECES):
    tokens = VOCABULARY.encode(pieces)
    return Generation(tokens, [-float(place) for place in range(len(tokens))], True)


def make_checks(grounding=None, is_coherent=None):
    counts = DecodingCounts()
    return counts, AnswerChecks(WORLD, counts, grounding=grounding, is_coherent=is_coherent)


def test_an_answer_that_passes_all_checks_is_accepted_and_nothing_is_counted():
    counts, checks = make_checks(lambda task, states, action, reasoning: len(reasoning), lambda *_: True)
    read = checks.read(generated(), CONTEXT)
    assert read == ReadAnswer(ANSWER, None)
    assert checks.accept(0, read) == ANSWER and not counts.refusals


@pytest.mark.parametrize(
    ("pieces", "grounded_characters", "is_coherent", "refusal"),
    [
        (PIECES, 0, False, Refusal.UNGROUNDED),
        (PIECES[:3], 0, True, Refusal.UNGROUNDED),
        (PIECES[:3], 100, False, Refusal.UNPARSABLE),
        (PIECES, 100, False, Refusal.INCOHERENT),
    ],
    ids=["grounding first", "grounding before form", "form before coherence", "coherence"],
)
def test_the_first_failed_check_is_counted(pieces, grounded_characters, is_coherent, refusal):
    counts, checks = make_checks(lambda *_: grounded_characters, lambda *_: is_coherent)
    assert checks.accept(0, checks.read(generated(pieces), CONTEXT)) is None
    assert counts.refusals == {refusal: 1}


def test_the_checks_get_the_row_and_what_the_episode_has_shown():
    calls = []

    def grounding(task, states, action, reasoning):
        calls.append((task, list(states), action, reasoning))
        return len(reasoning)

    _, checks = make_checks(grounding, lambda row, answer: calls.append((row, answer)))
    checks.accept(7, checks.read(generated(), CONTEXT))
    assert calls == [(CONTEXT.task, CONTEXT.states, CONTEXT.action, REASONING), (7, ANSWER)]


@pytest.mark.parametrize("grounded_characters", range(len(REASONING)))
def test_the_valid_prefix_is_the_longest_one_in_whole_tokens(grounded_characters):
    _, checks = make_checks(lambda *_: grounded_characters)
    answer = generated()
    prefix = checks.longest_valid_prefix(answer, CONTEXT)
    count = len(prefix.tokens)
    assert (prefix.tokens, prefix.logprobs) == (answer.tokens[:count], answer.logprobs[:count])
    assert not prefix.stopped and answer.tokens[0] == VOCABULARY.marker_id(THINK)
    texts = ["".join(VOCABULARY.pieces(answer.tokens[1:end])[:1]) for end in (count, count + 1)]
    assert len(texts[0]) <= grounded_characters < len(texts[1])


def test_without_a_grounding_check_every_reasoning_is_grounded():
    _, checks = make_checks()
    assert checks.read(generated(), CONTEXT) == ReadAnswer(ANSWER, None)


def test_an_answer_without_reasoning_has_no_valid_prefix():
    _, checks = make_checks(lambda *_: 0)
    assert checks.longest_valid_prefix(generated([STATE, "At desk 1.", CONTINUE]), CONTEXT) is None
