"""The text of transitions: it parses back, no text forges a marker, the loss is on the answers alone."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, WORLD, make_episode, make_task, make_transition
from hypothesis import given, settings
from hypothesis import strategies as st

from components.experience.formats.compact_world import (
    CompactWorld,
    answer_pieces,
    growth,
    opening,
    parse_answer,
    turn,
)
from components.experience.formats.training_examples import render_trajectory, render_variation
from components.experience.formats.world_format import Answer, recorded_answer
from components.language.vocabulary.markers import (
    ACTION,
    CONTINUE,
    DEMO,
    END,
    FAILURE,
    RECALL,
    STATE,
    SUCCESS,
    TASK,
    THINK,
    TURN,
    Marker,
)

HOSTILE = [
    "<success>",
    "mug <continue> <state> mug",
    "<think>",
    "</s><end>",
    "< success >",
    "line\nline <failure>",
    "ünïcödé ☃ <turn>",
    "<pad>",
]
ANY = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=30)).map(str.strip).filter(bool)


def tokens_with_loss(segment):
    return [token for token, has_loss in zip(segment.tokens, segment.loss, strict=True) if has_loss]


def pieces(tokens):
    """Pieces, with markers distinguished from texts that spell them."""
    return [(piece, isinstance(piece, Marker)) for piece in VOCABULARY.pieces(tokens)]


def marked(rendered):
    return [(piece, isinstance(piece, Marker)) for piece in rendered]


@settings(max_examples=150, deadline=None)
@given(ANY, ANY, st.booleans(), st.booleans(), st.booleans())
def test_a_rendered_answer_parses_to_the_same_answer(thought, state, done, won, reasoning):
    step = make_transition(reasoning=thought, next_state=state, done=done, reward=float(done and won))
    try:
        tokens = VOCABULARY.encode(answer_pieces(recorded_answer(step), reasoning=reasoning))
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    read = parse_answer(VOCABULARY.pieces(tokens), reasoning=reasoning)
    assert read == Answer(thought if reasoning else "", state, float(done and won), done)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_adds_no_marker_to_a_prompt(text):
    task = make_task(instruction=text, initial_state=text)
    demo = make_transition(state=text, action=text, next_state=text)
    rendered = [*opening(task), *growth(text, text), *turn(task, text, text, [demo])]
    markers = [piece for piece, is_marker in pieces(VOCABULARY.encode(rendered)) if is_marker]
    assert markers == [TASK, STATE, ACTION, STATE, DEMO, ACTION, STATE, TURN, STATE, STATE, ACTION]


GOOD = [THINK, "works", STATE, "At desk 1", CONTINUE]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        ["works"],
        GOOD[:-1],
        GOOD[1:],
        GOOD[2:],
        [*GOOD, "more"],
        [*GOOD, CONTINUE],
        [*GOOD[:4], END],
        [*GOOD[:4], "<success>"],
        ["<think>", *GOOD[1:]],
        [THINK, "works", "<state>", *GOOD[3:]],
        [THINK, STATE, "At desk 1", CONTINUE],
        [THINK, "works", STATE, CONTINUE],
        [THINK, "a", THINK, "b", STATE, "s", CONTINUE],
        [STATE, "s", THINK, "works", CONTINUE],
        [THINK, "works", ACTION, "s", CONTINUE],
        [THINK, "works", STATE, SUCCESS, CONTINUE],
        [THINK, SUCCESS, STATE, "s", CONTINUE],
        [THINK, "w", STATE, "s", STATE, "s", CONTINUE],
    ],
)
def test_an_answer_of_another_form_does_not_parse(bad):
    assert parse_answer(GOOD, reasoning=True) == Answer("works", "At desk 1", 0.0, False)
    assert parse_answer(bad, reasoning=True) is None


@pytest.mark.parametrize(
    "bad",
    [
        GOOD,
        [STATE, "s"],
        ["<state>", "s", CONTINUE],
        [STATE, CONTINUE],
        [STATE, "s", "<continue>"],
        ["s", STATE, CONTINUE],
    ],
)
def test_without_reasoning_an_answer_is_state_and_outcome(bad):
    assert parse_answer([STATE, "s", FAILURE], reasoning=False) == Answer("", "s", 0.0, True)
    assert parse_answer(bad, reasoning=False) is None


@pytest.mark.parametrize(
    ("reward", "done", "outcome"), [(0.0, False, CONTINUE), (1.0, True, SUCCESS), (0.0, True, FAILURE)]
)
def test_the_outcome_is_the_last_marker(reward, done, outcome):
    last = answer_pieces(recorded_answer(make_transition(reward=reward, done=done)), reasoning=True)[-1]
    assert last == outcome and isinstance(last, Marker)


def test_the_turn_starts_with_the_least_similar_demonstration_and_repeats_the_task():
    near, far = make_transition(action="near"), make_transition(action="far")
    task = make_task()
    rendered = turn(task, "now", "go", [near, far])
    assert [rendered[3], rendered[9]] == ["far", "near"]
    assert rendered[12:] == [
        TURN,
        "put a mug in desk",
        STATE,
        task.initial_state,
        STATE,
        "now",
        ACTION,
        "go",
    ]


EPISODE = make_episode(
    make_task(), ("go to desk 1", "At desk 1: mug 1."), ("take mug 1 from desk 1", "Took mug 1."), won=True
)
DEMOS = [[make_transition(7)], []]


def test_the_loss_is_on_the_answers_and_the_branches_follow_the_trunk():
    example = render_trajectory(WORLD, EPISODE, DEMOS)
    assert [segment.branch for segment in example.segments] == [False, True, False, True, False]
    trunk = [token for segment in example.segments if not segment.branch for token in segment.tokens]
    steps = [piece for step in EPISODE.steps for piece in growth(step.action, step.next_state)]
    assert pieces(trunk) == marked([*opening(EPISODE.task), *steps])
    branches = [segment for segment in example.segments if segment.branch]
    for segment, step, demos in zip(branches, EPISODE.steps, DEMOS, strict=True):
        target = answer_pieces(recorded_answer(step), reasoning=True)
        assert tokens_with_loss(segment) == VOCABULARY.encode(target)
        assert pieces(segment.tokens) == marked(
            [*turn(EPISODE.task, step.state, step.action, demos), *target]
        )
        assert segment.loss == sorted(segment.loss)
    assert not any(any(segment.loss) for segment in example.segments if not segment.branch)


def test_the_turn_repeats_earlier_states_that_mention_the_action():
    back = ("go to desk 1", "At desk 1: nothing. Holding mug 1.")
    shown = [("go to desk 1", "At desk 1: mug 1."), ("go to shelf 2", "At shelf 2: nothing."), back]
    episode = make_episode(make_task(), *shown)
    example = render_trajectory(CompactWorld(VOCABULARY, recalled=4), episode, [[], [], []])
    last = pieces([s for s in example.segments if s.branch][-1].tokens)
    expected = turn(episode.task, "At shelf 2: nothing.", "go to desk 1", [], ["At desk 1: mug 1."])
    assert last[: len(marked(expected))] == marked(expected)
    assert RECALL in expected


def test_without_history_the_trunk_is_the_task_alone():
    example = render_trajectory(WORLD, EPISODE, DEMOS, history=False)
    assert [segment.branch for segment in example.segments] == [False, True, True]
    assert pieces(example.segments[0].tokens) == marked(opening(EPISODE.task))
    with_history = render_trajectory(WORLD, EPISODE, DEMOS)
    assert [s.tokens for s in example.segments if s.branch] == [
        s.tokens for s in with_history.segments if s.branch
    ]


def test_without_reasoning_no_reasoning_is_rendered():
    example = render_trajectory(CompactWorld(VOCABULARY, reasoning=False), EPISODE, DEMOS)
    assert not any(VOCABULARY.marker_id(THINK) in segment.tokens for segment in example.segments)
    assert [pieces(tokens_with_loss(s))[0] for s in example.segments if s.branch] == [(STATE, True)] * 2


def test_each_step_needs_a_list_of_demonstrations():
    with pytest.raises(ValueError, match="shorter"):
        render_trajectory(WORLD, EPISODE, DEMOS[:1])


def test_a_variation_ends_with_the_other_instruction_and_the_end_marker():
    example = render_variation(WORLD, make_task(), "put a hot mug in desk")
    assert [segment.branch for segment in example.segments] == [False, True]
    assert pieces(example.segments[0].tokens) == marked(opening(make_task()))
    assert pieces(example.segments[1].tokens) == marked([TURN, TASK, "put a hot mug in desk", END])
    assert pieces(tokens_with_loss(example.segments[1])) == marked(["put a hot mug in desk", END])


def test_a_premise_follows_the_room_in_trunk_and_turn():
    task = make_task()
    assert marked(opening(task, "mug 1 shelf 1"))[-2:] == [(THINK, True), ("mug 1 shelf 1", False)]
    assert opening(task, "") == opening(task)
    step = make_transition()
    rendered = [piece for piece, _ in marked(turn(task, step.state, step.action, [], ["s"], "mug 1 shelf 1"))]
    assert rendered[: rendered.index(RECALL)] == [
        TURN,
        task.instruction,
        STATE,
        task.initial_state,
        THINK,
        "mug 1 shelf 1",
    ]
