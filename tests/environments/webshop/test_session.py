"""Pages, what can be clicked on them, and what actions lead to, in our states and in the original's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import text
from shops import INSTRUCTION, make_product, make_session

from components.environments.webshop.environment import WebshopEnvironment, admissible_actions
from components.environments.webshop.shop.pages import observation
from components.environments.webshop.shop.search import SearchEngine
from components.environments.webshop.shop.session import parse_action
from components.environments.webshop.shop.state_text import describe_page

TWENTY_THREE = [
    make_product(f"Brand{n} Cotton Oxford Shirt, Collar", 20 + n, asin=f"B{n:09d}") for n in range(23)
]
HEAD = f"Instruction: [SEP] {INSTRUCTION}"


def played(session, *actions):
    """Return whether each action was possible."""
    return [session.act(action) for action in actions]


@pytest.mark.parametrize(
    ("action", "parts"),
    [
        ("search[Red Shoes]", ("search", "red shoes")),
        (" click[Buy Now] ", ("click", "buy now")),
        ("click[a[b]]", ("", "")),  # greedy, as the original reads it
        ("click[]", ("", "")),
        ("Search[x]", ("", "")),
        ("buy[x]", ("", "")),
        ("click", ("", "")),
        ("", ("", "")),
    ],
)
def test_an_action_is_a_verb_and_its_argument(action, parts):
    assert parse_action(action) == parts


def test_the_search_page_allows_only_a_search():
    session = make_session()
    assert session.clickables() == [] and describe_page(session) == "search page."
    assert observation(session) == f"WebShop [SEP] {HEAD} [SEP] Search"
    assert (
        played(session, "click[search]", "click[buy now]", "click[back to search]", "click[item 1]", "shirt")
        == [False] * 5
    )
    assert admissible_actions(session) == ("search[cotton slim oxford shirt navy large]",)


def test_results_have_ten_items_per_page_and_page_links():
    session = make_session(*TWENTY_THREE)
    assert played(session, "search[Cotton SHIRT!]") == [True]
    assert describe_page(session).startswith(
        "results 1 of 3 for cotton shirt: item 1 brand0 cotton oxford shirt for 20, item 2 brand1 "
    )
    assert session.clickables() == ["back to search", "next >", *(f"item {n}" for n in range(1, 11))]
    assert played(
        session, "click[< prev]", "click[item 11]", "click[next >]", "click[next >]", "click[next >]"
    ) == [*(False, False, True, True, False)]
    assert describe_page(session) == (
        "results 3 of 3 for cotton shirt: item 21 brand20 cotton oxford shirt for 40, item 22 brand21 "
        "cotton oxford shirt for 41, "
        "item 23 brand22 cotton oxford shirt for 42."
    )
    assert session.clickables() == ["back to search", "< prev", "item 21", "item 22", "item 23"]
    assert observation(session) == (
        f"{HEAD} [SEP] Back to Search [SEP] Page 3 (Total results: 23) [SEP] < Prev [SEP] B000000020 [SEP] "
        "Brand20 Cotton Oxford Shirt, "
        "Collar [SEP] $40 [SEP] B000000021 [SEP] Brand21 Cotton Oxford Shirt, Collar [SEP] $41 [SEP] "
        "B000000022 [SEP] Brand22 Cotton "
        "Oxford Shirt, Collar [SEP] $42"
    )


def test_a_search_without_results_shows_an_empty_page():
    session = make_session()
    assert played(session, "search[the moon]", "click[next >]", "click[item 1]") == [True, False, False]
    assert describe_page(session) == "results 1 of 1 for the moon: nothing." and session.clickables() == [
        "back to search"
    ]
    assert played(session, "search[!!!]") == [True] and describe_page(session).startswith(
        "results 1 of 1 for ?: item 1 "
    )


@pytest.mark.parametrize("name", ["item 2", "b000000001", "B000000001"])
def test_a_result_is_opened_by_its_rank_or_its_asin(name):
    session = make_session(*TWENTY_THREE)
    assert played(session, "search[shirt]", f"click[{name}]") == [True, True]
    assert (
        describe_page(session)
        == "item 2: brand1 cotton oxford shirt for 21. color: navy, red. size: small, large. chosen: nothing."
    )
    assert session.clickables() == [
        *(
            "back to search",
            "< prev",
            "navy",
            "red",
            "small",
            "large",
            "description",
            "features",
            "reviews",
            "buy now",
        )
    ]
    assert observation(session) == (
        f"{HEAD} [SEP] Back to Search [SEP] < Prev [SEP] color [SEP] navy [SEP] red [SEP] size [SEP] small "
        "[SEP] large [SEP] Brand1 Cotton "
        "Oxford Shirt, Collar [SEP] Price: $21 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] "
        "Reviews [SEP] Buy Now"
    )


def test_one_option_per_group_is_chosen_and_shown_in_page_order():
    session = make_session()
    assert played(
        session, "search[shirt]", "click[item 1]", "click[large]", "click[red]", "click[NAVY]", "click[blue]"
    ) == [*(True, True, True, True, True, False)]
    assert describe_page(session).endswith("chosen: navy, large.")


def test_sub_pages_lead_back_and_features_stay_in_the_state():
    session = make_session()
    played(session, "search[shirt]", "click[item 1]", "click[red]", "click[features]")
    line = "item 1: halden cotton slim oxford shirt for 25. color: navy, red. size: small, large."
    assert describe_page(session) == f"features of {line} features: cotton, slim, washable. chosen: red."
    assert (
        observation(session)
        == f"{HEAD} [SEP] Back to Search [SEP] < Prev [SEP] cotton [SEP] slim [SEP] washable"
    )
    assert played(session, "click[navy]", "click[buy now]", "click[features]", "click[< prev]") == [
        False,
        False,
        False,
        True,
    ]
    assert describe_page(session) == f"{line} features: cotton, slim, washable. chosen: red."
    played(session, "click[description]")
    assert (
        describe_page(session)
        == f"description of {line} features: cotton, slim, washable. description: a shirt of cotton soft. "
        "chosen: red."
    )
    played(session, "click[< prev]", "click[reviews]")
    assert (
        describe_page(session)
        == f"reviews of {line} features: cotton, slim, washable. reviews: nothing. chosen: red."
    )
    assert observation(session).endswith("[SEP] No reviews found")
    played(session, "click[< prev]", "click[< prev]", "click[item 1]")
    assert describe_page(session) == f"{line} features: cotton, slim, washable. chosen: nothing."
    played(session, "search[other words]", "click[item 1]")
    assert describe_page(session) == f"{line} chosen: nothing."


def test_a_new_search_clears_the_chosen_options():
    session = make_session()
    played(session, "search[shirt]", "click[item 1]", "click[red]", "click[back to search]")
    assert describe_page(session) == "search page." and (session.chosen, session.query, session.results) == (
        {},
        "",
        (),
    )
    assert (
        played(session, "search[shirt]", "click[item 1]", "click[red]", "search[shirt]") == [True] * 4
        and session.chosen == {}
    )


def test_a_value_of_two_groups_belongs_to_the_last_group():
    product = make_product(
        options={"fit type": ("3 | 4 inch", "regular"), "features": ("regular", "1,000 pcs (big)")}
    )
    session = make_session(product)
    played(session, "search[x]", "click[item 1]", "click[regular]")
    assert session.chosen == {"features": "regular"}
    assert describe_page(session).endswith(
        "fit type: 3 4 inch, regular. features option: regular, 1 000 pcs big. chosen: regular."
    )
    assert played(session, "click[3 4 inch]", "click[3 | 4 inch]", "click[1 000 pcs big]") == [
        True,
        True,
        True,
    ]
    assert session.chosen == {"features": "1,000 pcs (big)", "fit type": "3 | 4 inch"}


def test_an_option_is_chosen_by_its_own_words_first():
    """A short value keeps its own words. Of values with the same short name the later has a number."""
    long = "extra wide cushioned summer sandal insole"
    session = make_session(
        make_product(
            options={"pack": ("red (2 pack)", "red 2 pack"), "zone": (f"{long}, zone a", f"{long}, zone b")}
        )
    )
    played(session, "search[x]", "click[item 1]")
    assert describe_page(session).endswith(
        f"pack: red 2 pack 2, red 2 pack. zone: {long}, {long} 2. chosen: nothing."
    )
    for name, value in (
        ("red 2 pack", "red 2 pack"),
        ("red (2 pack)", "red (2 pack)"),
        ("red 2 pack 2", "red (2 pack)"),
    ):
        assert played(session, f"click[{name}]") == [True] and session.chosen["pack"] == value
    assert {f"{long} 2", long} <= set(session.clickables())
    assert played(session, f"click[{long} 2]") == [True] and session.chosen["zone"] == f"{long}, zone b"
    assert describe_page(session).endswith(f"chosen: red 2 pack 2, {long} 2.")


def test_a_purchase_ends_the_episode_with_outcome_and_graded_reward():
    world = WebshopEnvironment(lambda task: make_session())
    world.reset([_task()])
    for action in ("search[shirt]", "click[item 1]", "click[navy]"):
        assert world.step([action])[0].reward == 0.0
    step = world.step(["click[buy now]"])[0]
    assert (step.state, step.reward, step.done) == ("bought item 1. chosen: navy.", 0.0, True)
    assert step.info["score"] == {
        "r": 0.8,
        "r_type": 1.0,
        "title_score": 1.0,
        "attributes": 2,
        "options": 1,
        "price": True,
    }
    assert (
        step.info["observation"]
        == "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 0.8"
    )
    assert step.info["admissible"] == ()
    world.reset([_task()])
    for action in ("search[shirt]", "click[item 1]", "click[navy]", "click[large]"):
        step = world.step([action])[0]
        assert "score" not in step.info
    step = world.step(["click[buy now]"])[0]
    assert (step.reward, step.done, step.info["score"]["r"]) == (1.0, True, 1.0)


def test_an_impossible_action_leaves_the_page_and_is_reported():
    world = WebshopEnvironment(lambda task: make_session())
    world.reset([_task()])
    assert world.step(["click[buy now]"])[0].state == "nothing happens on search page."
    world.step(["search[shirt]"])
    assert world.step(["click[large]"])[0].state == "nothing happens on results 1."
    world.step(["click[item 1]"])
    world.step(["click[large]"])
    step = world.step(["click[item 1]"])[0]
    assert (step.state, step.reward, step.done) == ("nothing happens on item 1. chosen: large.", 0.0, False)
    assert "Buy Now" in step.info["observation"] and "click[large]" in step.info["admissible"]
    world.step(["click[features]"])
    assert world.step(["click[red]"])[0].state == "nothing happens on features of item 1. chosen: large."


def test_a_probe_returns_next_states_and_changes_no_session():
    world = WebshopEnvironment(lambda task: make_session(), budget=9)
    world.reset([_task()])
    world.step(["search[shirt]"])
    world.step(["click[item 1]"])
    before = world.interactions
    (steps,) = world.probe([["click[red]", "click[features]", "click[buy now]", "click[moon]"]])
    assert [step.done for step in steps] == [False, False, True, False] and world.interactions == before + 4
    assert steps[0].state.endswith("chosen: red.") and steps[3].state.startswith("nothing happens")
    assert world.step(["click[large]"])[0].state.endswith("small, large. chosen: large.")


def _task():
    from shops import make_history

    return make_history().task


@pytest.mark.parametrize(
    "action",
    [
        "search[" + "x" * 500 + "]",
        "search[" + "word " * 60 + "]",
        "search[<success> юбка 裙子]",
        "click[裙子]",
    ],
)
def test_queries_are_shortened_in_any_script(action):
    world = WebshopEnvironment(
        lambda task: make_session(
            make_product("Юбка Летняя,裙子", bullets=("裙子",), options={"цвет": ("красный",)})
        )
    )
    world.reset([_task()])
    state = world.step([action])[0].state
    assert len(state) < 320 and "<" not in state
    world.step(["search[юбка]"])
    assert (
        world.step(["click[item 1]"])[0].state
        == "item 1: юбка летняя for 25. цвет: красный. chosen: nothing."
    )


ENGINE = SearchEngine(["dog's padded bed", "s", "xs shirt"])


@given(text())
def test_any_words_can_be_searched_for(words):
    assert set(ENGINE(words)) <= {0, 1, 2}


def test_words_of_two_letters_are_not_stemmed():
    """Porter's stemmer would leave nothing of an `s`; Lucene does not stem it."""
    assert (
        sorted(ENGINE("s")) == [0, 1]
        and ENGINE("xs") == [2]
        and ENGINE("x") == []
        and ENGINE("shirts") == [2]
    )
