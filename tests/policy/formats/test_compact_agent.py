"""The agent's text: parsing of replies, and the loss of demonstrations."""

from __future__ import annotations

import pytest
from builders import AGENT, VOCABULARY, make_episode, make_task, with_thoughts
from hypothesis import given, settings
from hypothesis import strategies as st

from components.language.vocabulary.markers import ACTION, END, STATE, SUCCESS, TASK, THINK, TURN, Marker
from components.policy.formats.compact_agent import parse_reply
from components.policy.formats.demonstrations import render_demonstration

HOSTILE = ["<end>", "go <action> there", "<think>", "<state> At desk 1", "a\nb <end>", "ünïcödé ☃"]
ANY = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).map(str.strip),
).filter(bool)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.just(""), ANY), ANY)
def test_any_thought_and_action_survive_encoding_and_parsing(thought, action):
    assert AGENT.parse(AGENT.reply(thought, action)) == (thought, action)


@pytest.mark.parametrize(
    ("pieces", "thought"),
    [
        ([], ""),
        ([END], ""),
        (["find mug"], "find mug"),
        (["find mug", END], "find mug"),
        (["find mug", ACTION], "find mug <action>"),
        ([ACTION, END], "<action>"),
        (["find", "<action>", "go"], "find <action> go"),
        ([ACTION, "go", ACTION, "go"], "<action> go <action> go"),
        (["a", ACTION, "go", STATE, "s"], "a <action> go <state> s"),
        (["a", STATE, "go"], "a <state> go"),
        ([ACTION, STATE], "<action> <state>"),
        ([ACTION, SUCCESS, END], "<action> <success>"),
        (["a", ACTION, SUCCESS], "a <action> <success>"),
        ([STATE, ACTION, "go"], "<state> <action> go"),
    ],
)
def test_another_form_gives_no_action_and_no_marker(pieces, thought):
    parsed = parse_reply(pieces)
    assert parsed == (thought, "")
    assert not any(isinstance(text, Marker) for text in parsed)


def test_a_reply_without_its_end_marker_still_has_an_action():
    assert parse_reply(["find mug", ACTION, "go to desk 1"]) == ("find mug", "go to desk 1")
    assert parse_reply([ACTION, "go to desk 1"]) == ("", "go to desk 1")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_state_adds_no_marker(text):
    task = make_task(instruction=text, initial_state=text)
    tokens = AGENT.opening(task) + AGENT.ask(task) + AGENT.reply(text, text) + AGENT.observation(text)
    markers = [piece for piece in VOCABULARY.pieces(tokens) if isinstance(piece, Marker)]
    assert markers == [TASK, STATE, TURN, STATE, THINK, ACTION, END, STATE]


def test_cloning_has_loss_on_thoughts_and_actions_only():
    episode = make_episode(
        make_task(), ("go to desk 1", "At desk 1: mug 1."), ("take mug 1 from desk 1", "Took mug 1.")
    )
    example = render_demonstration(AGENT, with_thoughts(episode, "find mug", "mug 1 at desk 1"))
    assert not any(segment.branch for segment in example.segments)
    loss_tokens = [t for s in example.segments for t, flag in zip(s.tokens, s.loss, strict=True) if flag]
    replies = [
        AGENT.reply("find mug", "go to desk 1"),
        AGENT.reply("mug 1 at desk 1", "take mug 1 from desk 1"),
    ]
    assert loss_tokens == replies[0] + replies[1]
    all_tokens = [t for s in example.segments for t in s.tokens]
    task = episode.task
    assert all_tokens == [
        *AGENT.opening(task),
        *AGENT.ask(task),
        *replies[0],
        *AGENT.observation("At desk 1: mug 1."),
        *AGENT.ask(task),
        *replies[1],
        *AGENT.observation("Took mug 1."),
    ]
    with pytest.raises(ValueError, match="shorter"):
        render_demonstration(AGENT, episode, thoughts=["find mug"])
