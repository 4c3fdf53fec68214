"""The mapping from the engine's words to states, every line of the grammar read back, facts and
contradictions.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.environments.alfworld.states import (
    ParsedState,
    StateMapper,
    contradicts,
    read_state,
    state_facts,
)

HOT = frozenset({"hot"})
GRAMMAR = {
    "Room: cabinet 1, fridge 1. Holding nothing.": (
        ParsedState("room", contents=("cabinet 1", "fridge 1")),
        {("holding", "nothing"), ("at", "room"), ("receptacle", "cabinet 1"), ("receptacle", "fridge 1")},
    ),
    "Room: nothing. Holding nothing.": (ParsedState("room"), {("holding", "nothing"), ("at", "room")}),
    "At shelf 2: plate 1, vase 2. Holding nothing.": (
        ParsedState("at", "shelf 2", contents=("plate 1", "vase 2")),
        {
            ("holding", "nothing"),
            ("at", "shelf 2"),
            ("in", "plate 1", "shelf 2"),
            ("in", "vase 2", "shelf 2"),
        },
    ),
    "At shelf 2: nothing. Holding mug 1.": (
        ParsedState("at", "shelf 2", holding="mug 1"),
        {("holding", "mug 1"), ("at", "shelf 2"), ("empty", "shelf 2")},
    ),
    "At fridge 1: closed. Holding mug 1.": (
        ParsedState("at", "fridge 1", door="closed", holding="mug 1"),
        {("holding", "mug 1"), ("at", "fridge 1"), ("door", "fridge 1", "closed")},
    ),
    "At fridge 1: open, egg 1. Holding hot mug 1.": (
        ParsedState("at", "fridge 1", contents=("egg 1",), door="open", holding="mug 1", treated=HOT),
        {
            ("holding", "mug 1"),
            ("treated", "mug 1", "hot"),
            ("at", "fridge 1"),
            ("door", "fridge 1", "open"),
            ("in", "egg 1", "fridge 1"),
        },
    ),
    "At fridge 1: open, nothing. Holding nothing.": (
        ParsedState("at", "fridge 1", door="open"),
        {("holding", "nothing"), ("at", "fridge 1"), ("door", "fridge 1", "open"), ("empty", "fridge 1")},
    ),
    "Took mug 1 from desk 1. Holding mug 1.": (
        ParsedState("took", "desk 1", "mug 1", holding="mug 1"),
        {("holding", "mug 1"), ("at", "desk 1"), ("event", "took", "mug 1")},
    ),
    "Moved mug 1 to desk 1. Holding nothing.": (
        ParsedState("moved", "desk 1", "mug 1"),
        {("holding", "nothing"), ("at", "desk 1"), ("in", "mug 1", "desk 1"), ("event", "moved", "mug 1")},
    ),
    "Heated mug 1 with microwave 1. Holding clean hot mug 1.": (
        ParsedState("treated", "microwave 1", "mug 1", holding="mug 1", treated=frozenset({"clean", "hot"})),
        {
            ("holding", "mug 1"),
            ("treated", "mug 1", "hot"),
            ("treated", "mug 1", "clean"),
            ("at", "microwave 1"),
            ("event", "treated", "mug 1"),
        },
    ),
    "Turned on desklamp 1 at desk 1. Holding book 1.": (
        ParsedState("lit", "desk 1", "desklamp 1", holding="book 1"),
        {("holding", "book 1"), ("at", "desk 1"), ("event", "lit", "desklamp 1")},
    ),
    "Looked around at desk 1. Holding nothing.": (
        ParsedState("looked", "desk 1"),
        {("holding", "nothing"), ("at", "desk 1"), ("event", "looked", "")},
    ),
    "Looked around in the room. Holding nothing.": (
        ParsedState("looked"),
        {("holding", "nothing"), ("at", "room"), ("event", "looked", "")},
    ),
    "Nothing happens at desk 1. Holding mug 1.": (
        ParsedState("failed", "desk 1", holding="mug 1"),
        {("holding", "mug 1"), ("at", "desk 1"), ("event", "failed", "")},
    ),
    "Nothing happens in the room. Holding nothing.": (
        ParsedState("failed"),
        {("holding", "nothing"), ("at", "room"), ("event", "failed", "")},
    ),
}


@pytest.mark.parametrize("state", GRAMMAR)
def test_every_line_of_the_grammar_is_parsed_and_asserts_its_facts(state):
    parsed, facts = GRAMMAR[state]
    assert read_state(state) == parsed
    assert state_facts(state) == facts
    assert not any(contradicts(fact, facts) for fact in facts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "At desk 1. Holding nothing.",
        "At desk 1: mug 1",
        "At desk 1: mug 1. Holding nothing",
        "At desk 1: . Holding nothing.",
        "At desk: mug 1. Holding nothing.",
        "At desk 1: mug. Holding nothing.",
        "At desk 1: mug 1 mug 2. Holding nothing.",
        "At fridge 1: open. Holding nothing.",
        "At fridge 1: open, . Holding nothing.",
        "At fridge 1: closed, mug 1. Holding nothing.",
        "At fridge 1: closedmug 1. Holding nothing.",
        "At desk 1: nothing. Holding wet mug 1.",
        "Took mug 1 from desk 1. Holding mug.",
        "At desk 1: nothing. Holding nothing. At desk 1: nothing.",
        "at desk 1: nothing. Holding nothing.",
        "<success>",
        "Took mug 1. Holding mug 1.",
        "Fried mug 1 with microwave 1. Holding mug 1.",
        "Room: . Holding nothing.",
    ],
)
def test_a_text_outside_the_grammar_asserts_only_that_it_is_unreadable(text):
    assert read_state(text) == ParsedState("")
    assert state_facts(text) == {("unreadable", text)}
    assert contradicts(("unreadable", text), {("holding", "nothing"), ("at", "room")})


MAPPED = [
    ("You arrive at fridge 1. The fridge 1 is closed.", "At fridge 1: closed. Holding nothing."),
    (
        "You open the fridge 1. The fridge 1 is open. In it, you see a mug 2, an egg 10, and an egg 9.",
        "At fridge 1: open, egg 9, egg 10, mug 2. Holding nothing.",
    ),
    ("You pick up the mug 2 from the fridge 1.", "Took mug 2 from fridge 1. Holding mug 2."),
    ("You close the fridge 1.", "At fridge 1: closed. Holding mug 2."),
    ("Nothing happens.", "Nothing happens at fridge 1. Holding mug 2."),
    (
        "You arrive at microwave 1. The microwave 1 is open. In it, you see nothing.",
        "At microwave 1: open, nothing. Holding mug 2.",
    ),
    ("You heat the mug 2 using the microwave 1.", "Heated mug 2 with microwave 1. Holding hot mug 2."),
    (
        "You clean the mug 2 using the sinkbasin 1.",
        "Cleaned mug 2 with sinkbasin 1. Holding clean hot mug 2.",
    ),
    ("You cool the mug 2 using the fridge 1.", "Cooled mug 2 with fridge 1. Holding clean cool mug 2."),
    (
        "You arrive at desk 1. On the desk 1, you see a desklamp 1, and a pen 3.",
        "At desk 1: desklamp 1, pen 3. Holding clean cool mug 2.",
    ),
    ("You turn on the desklamp 1.", "Turned on desklamp 1 at desk 1. Holding clean cool mug 2."),
    ("You are carrying: a mug 2.", "Looked around at desk 1. Holding clean cool mug 2."),
    ("You move the mug 2 to the desk 1.", "Moved mug 2 to desk 1. Holding nothing."),
    ("You pick up the pen 3 from the desk 1.", "Took pen 3 from desk 1. Holding pen 3."),
    ("You move the pen 3 to the desk 1.", "Moved pen 3 to desk 1. Holding nothing."),
    ("You pick up the mug 2 from the desk 1.", "Took mug 2 from desk 1. Holding clean cool mug 2."),
]


def test_the_mapper_remembers_place_hand_and_treatment():
    mapper = StateMapper()
    intro = (
        "You are in the middle of a room. Looking quickly around you, you see a shelf 10, a shelf 2, "
        "and an armchair 1. Your task is to: x"
    )
    assert mapper.initial(intro) == "Room: armchair 1, shelf 2, shelf 10. Holding nothing."
    assert mapper("Nothing happens.") == "Nothing happens in the room. Holding nothing."
    for words, state in MAPPED:
        assert mapper(words) == state


ENTITY = st.builds(
    lambda kind, number: f"{kind} {number}",
    st.sampled_from(["mug", "desk", "fridge", "egg", "cd"]),
    st.integers(0, 30),
)
LISTING = st.lists(ENTITY, max_size=4).map(lambda names: ", ".join(f"a {n}" for n in names) or "nothing")
WORDS = st.one_of(
    st.just("Nothing happens."),
    st.builds("You arrive at {}. On the {}, you see {}.".format, ENTITY, ENTITY, LISTING),
    st.builds("You open the {}. The {} is open. In it, you see {}.".format, ENTITY, ENTITY, LISTING),
    st.builds("You arrive at {}. The {} is closed.".format, ENTITY, ENTITY),
    st.builds("You close the {}.".format, ENTITY),
    st.builds("The {} is open. In it, you see {}.".format, ENTITY, LISTING),
    st.builds("You pick up the {} from the {}.".format, ENTITY, ENTITY),
    st.builds("You move the {} to the {}.".format, ENTITY, ENTITY),
    st.builds(
        "You {} the {} using the {}.".format, st.sampled_from(["heat", "cool", "clean"]), ENTITY, ENTITY
    ),
    st.builds("You turn {} the {}.".format, st.sampled_from(["on", "off"]), ENTITY),
    st.builds("This is a hot {}.".format, ENTITY),
    st.text(max_size=40),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_every_mapped_state_can_be_parsed(observations):
    mapper = StateMapper()
    assert read_state(mapper.initial(" ".join(observations))).event == "room"
    for words in observations:
        state = mapper(words)
        parsed = read_state(state)
        assert parsed.event, (words, state)
        assert parsed.holding == mapper.holding
        assert (
            parsed.place == mapper.place or parsed.event == "treated"
        )  # whose station is where the agent stands
        assert parsed.treated == (mapper.treated.get(mapper.holding, set()) if mapper.holding else set())
        facts = state_facts(state)
        assert not any(contradicts(fact, facts) for fact in facts), state


SHELF = state_facts("At shelf 1: mug 1, pen 1. Holding hot egg 1.")
EMPTY = state_facts("At shelf 1: nothing. Holding nothing.")
CLOSED = state_facts("At fridge 1: closed. Holding nothing.")
MOVED = state_facts("Moved mug 1 to desk 1. Holding nothing.")
START = state_facts("Room: desk 1, shelf 1. Holding nothing.")


@pytest.mark.parametrize(
    ("claim", "truth", "denied"),
    [
        (("in", "mug 1", "shelf 1"), SHELF, False),
        (("in", "mug 2", "shelf 1"), SHELF, True),  # the listing is complete
        (("in", "mug 2", "shelf 2"), SHELF, False),  # of another place nothing is said
        (("in", "egg 1", "shelf 9"), SHELF, True),  # it is in the hand
        (("in", "mug 2", "shelf 1"), EMPTY, True),
        (("in", "mug 2", "fridge 1"), CLOSED, True),  # nobody saw inside
        (("holding", "egg 1"), SHELF, False),
        (("holding", "nothing"), SHELF, True),
        (("at", "shelf 2"), SHELF, True),
        (("at", "room"), START, False),
        (("treated", "egg 1", "hot"), SHELF, False),
        (("treated", "egg 1", "clean"), SHELF, True),
        (("treated", "mug 1", "clean"), SHELF, False),
        (("empty", "shelf 1"), SHELF, True),
        (("empty", "shelf 2"), SHELF, False),
        (("empty", "fridge 1"), CLOSED, True),
        (("door", "fridge 1", "open"), CLOSED, True),
        (("door", "fridge 2", "open"), CLOSED, False),
        (("event", "moved", "mug 1"), MOVED, False),
        (("event", "took", "mug 1"), MOVED, True),
        (("event", "failed", ""), SHELF, True),
        (("receptacle", "shelf 9"), START, True),
        (("receptacle", "shelf 9"), SHELF, False),
    ],
)
def test_a_real_state_denies_other_values(claim, truth, denied):
    assert contradicts(claim, truth) is denied
