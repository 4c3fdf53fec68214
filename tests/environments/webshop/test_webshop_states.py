"""The states' grammar: real states are parsed, other texts are not, and facts deny claims."""

from __future__ import annotations

import pytest
from shops import make_product, make_session

from components.environments.webshop.shop.state_text import describe_page
from components.environments.webshop.states import INITIAL_STATE, contradicts, read_state, state_facts

RESULTS = (
    "results 1 of 5 for oxford shirt: item 1 halden cotton shirt for 25, item 2 gift for 2 men for 10 to 20."
)
ITEM = (
    "item 2: gift for 2 men for 31. color: navy, light blue. size: small. features: cotton, slim. "
    "chosen: navy, small."
)


def test_every_real_state_is_parsed_and_rewritten(shopped):
    for episodes in shopped.values():
        for episode in episodes:
            assert episode.states[0] == INITIAL_STATE
            for state in episode.states:
                page = read_state(state)
                assert page.event and ("unreadable", state) not in state_facts(state)
                assert _written(page) == state


def _written(page):
    """Write the state that was parsed, by a second implementation of the grammar."""
    if page.event == "search":
        return INITIAL_STATE
    chosen = f"chosen: {', '.join(page.chosen) or 'nothing'}."
    if page.event == "results":
        results = ", ".join(f"item {rank} {title} for {price}" for rank, title, price in page.items)
        return f"results {page.number} of {page.pages} for {page.query}: {results or 'nothing'}."
    if page.event == "failed":
        return f"nothing happens on {page.place}." + (f" {chosen}" if page.rank else "")
    if page.event == "bought":
        return f"bought item {page.rank}. {chosen}"
    parts = [f"{name}: {', '.join(values)}" for name, values in page.groups]
    parts += [f"features: {', '.join(page.features) or 'nothing'}"] if page.features is not None else []
    parts += [f"{page.event}: {page.text}"] if page.text else []
    return ". ".join([f"{page.place}: {page.title} for {page.price}", *parts, chosen])


def test_results_are_read_with_their_prices():
    page = read_state(RESULTS)
    assert (page.event, page.place, page.query, page.number, page.pages) == (
        "results",
        "results 1",
        "oxford shirt",
        1,
        5,
    )
    assert page.items == ((1, "halden cotton shirt", "25"), (2, "gift for 2 men", "10 to 20"))


def test_an_item_is_read_with_options_features_and_what_is_chosen():
    page = read_state(ITEM)
    assert (page.rank, page.title, page.price) == (2, "gift for 2 men", "31")
    assert page.groups == (("color", ("navy", "light blue")), ("size", ("small",)))
    assert (page.features, page.chosen) == (("cotton", "slim"), ("navy", "small"))
    assert read_state("features of item 3: a b for 4. features: nothing. chosen: nothing.").features == ()
    assert read_state("item 3: a b for 4. chosen: nothing.").features is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "search page",
        "Search page.",
        "results 1 of 5 for x: .",
        "results 1 of 5 for x: item 1 shirt.",
        "results one of 5 for x: nothing.",
        "results 1 of 5 for x: item 1 a for 3, item 2.",
        "item 2: shirt for 31.",
        "item 2: shirt for 31. color: navy.",
        "item 2: shirt for 31. chosen: navy. color: navy.",
        "item 2: shirt for 31. color navy. chosen: nothing.",
        "item 2: shirt for 31. reviews: nothing. chosen: nothing.",
        "features of item 2: shirt for 31. chosen: nothing.",
        "item 2: shirt. chosen: nothing.",
        "bought item 2.",
        "bought item 2. chosen: navy. done.",
        "nothing happens on the moon.",
        "nothing happens on item 2.",
        "nothing happens on results 1. chosen: navy.",
        "Nothing happens at shelf 2. Holding nothing.",
    ],
)
def test_an_unreadable_text_asserts_only_that(text):
    assert read_state(text).event == "" and state_facts(text) == {("unreadable", text)}


def test_groups_with_the_same_short_name_get_numbers():
    product = make_product(
        options={"size of the cup": ("large",), "size of the lid": ("small",), "reviews": ("a", "b")}
    )
    session = make_session(product)
    session.act("search[x]")
    session.act("click[item 1]")
    page = read_state(describe_page(session))
    assert page.groups == (
        ("size of the", ("large",)),
        ("size of the 2", ("small",)),
        ("reviews option", ("a", "b")),
    )


def test_facts_of_the_pages():
    assert state_facts(INITIAL_STATE) == {("at", "search page")}
    assert state_facts("results 1 of 1 for x: nothing.") == {
        ("at", "results 1"),
        ("query", "x"),
        ("pages", "1"),
        ("found", "nothing"),
    }
    assert state_facts(ITEM) == {
        *(
            ("at", "item 2"),
            ("title", "2", "gift for 2 men"),
            ("price", "2", "31"),
            ("chosen", "2", "navy"),
            ("chosen", "2", "small"),
        ),
        *(
            ("option", "2", "color", "navy"),
            ("option", "2", "color", "light blue"),
            ("option", "2", "size", "small"),
        ),
        *(("feature", "2", "cotton"), ("feature", "2", "slim")),
    }
    assert state_facts("bought item 2. chosen: nothing.") == {
        ("at", "item 2"),
        ("event", "bought"),
        ("chosen", "2", "nothing"),
    }
    assert state_facts("nothing happens on results 1.") == {("at", "results 1"), ("event", "failed")}


@pytest.mark.parametrize(
    ("claim", "denied"),
    [
        (("at", "item 3"), True),
        (("title", "2", "shirt"), True),
        (("price", "2", "32"), True),
        (("option", "2", "color", "red"), True),
        (("option", "2", "style", "plain"), True),
        (("feature", "2", "wool"), True),
        (("chosen", "2", "red"), True),
        (("event", "failed"), True),
        (("unreadable", "x"), True),
        (("title", "3", "shirt"), False),
        (("feature", "3", "wool"), False),
        (("query", "x"), False),
        (("at", "item 2"), False),
    ],
)
def test_an_item_page_denies(claim, denied):
    assert contradicts(claim, state_facts(ITEM)) is denied


@pytest.mark.parametrize(
    ("claim", "denied"),
    [
        (("title", "3", "shirt"), True),
        (("title", "1", "other"), True),
        (("found", "nothing"), True),
        (("query", "y"), True),
        (("pages", "4"), True),
        (("chosen", "1", "red"), False),
    ],
)
def test_a_results_page_denies_what_it_does_not_list(claim, denied):
    assert contradicts(claim, state_facts(RESULTS)) is denied


def test_a_page_without_features_denies_none():
    assert not contradicts(
        ("feature", "2", "wool"), state_facts("item 2: a b for 31. color: navy. chosen: nothing.")
    )
