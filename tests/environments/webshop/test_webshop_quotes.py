"""How far a dreamed step's reasoning about the shop quotes correctly."""

from __future__ import annotations

import pytest

from components.environments.webshop.quotes import grounded
from components.environments.webshop.states import INITIAL_STATE
from components.records import TRAIN, Task

WANTED = "find me a backpack that is padded, with brown and standard, and price lower than 60.00 dollars"
RESULTS = (
    "results 1 of 5 for padded backpack: item 1 norlund padded sturdy backpack for 35, item 2 falmark "
    "padded backpack for 67."
)
ITEM = (
    "item 2: falmark padded backpack for 67. color: yellow, brown. size: travel, standard. chosen: nothing."
)
CHOSEN = ITEM.replace("nothing", "brown, standard")


def wrong(states, action, reasoning, instruction=WANTED):
    """Return what of `reasoning` stands behind its first error."""
    task = Task("webshop/bags/backpack/x", "webshop", TRAIN, instruction, INITIAL_STATE, "bags", "")
    return reasoning[grounded(task, [INITIAL_STATE, *states], action, reasoning) :]


@pytest.mark.parametrize(
    ("states", "action", "reasoning"),
    [
        ([], "search[padded backpack]", "on search page. works, new, item 1 fits"),
        (
            [RESULTS],
            "click[item 2]",
            "on results 1. item 1 item 2 want item 2: yes. works, new falmark padded backpack for 67",
        ),
        ([RESULTS], "click[item 4]", "on results 1. item 1 item 2 want item 4: no. fails"),
        (
            [RESULTS],
            "click[item 2]",
            "on results 1. item 1 item 2 want item 2: yes. works, new falmark padded backpack for 67, item "
            "1 want item 2: no",
        ),
        (
            [RESULTS, ITEM],
            "click[brown]",
            "on item 2. yellow brown travel standard want brown: yes. works, now brown",
        ),
        ([RESULTS, ITEM], "click[ brown]", "on item 2. yellow brown travel standard want  brown: no. fails"),
        ([RESULTS, ITEM], "click[features]", "on item 2. works, new, item 2 want item 2: yes, with padded"),
        (
            [RESULTS, CHOSEN],
            "click[buy now]",
            "on item 2. works. falmark padded backpack want backpack: yes, for 67 want lower than 60: no. "
            "not done",
        ),
        (
            [RESULTS, ITEM],
            "click[buy now]",
            "on item 2. works. for 67 want lower than 60: no, nothing want brown: no. not done",
        ),
        ([RESULTS, ITEM], "look around", "on item 2. no such action. fails"),
    ],
)
def test_correct_quotes_and_comparisons_are_accepted(states, action, reasoning):
    assert wrong(states, action, reasoning) == ""


@pytest.mark.parametrize(
    ("states", "action", "reasoning", "rest"),
    [
        ([], "search[padded backpack]", "on results 1. works, new", "results 1. works, new"),
        ([RESULTS], "click[item 4]", "on results 1. item 1 item 2 want item 4: yes. works", "yes. works"),
        ([RESULTS], "click[item 2]", "on results 1. item 1 item 2 want item 2: yes. fails", "fails"),
        (
            [RESULTS],
            "click[item 2]",
            "on results 1. item 1 item 2 want item 2: yes. works, new falmark padded backpack for 35",
            "35",
        ),
        (
            [RESULTS],
            "click[item 2]",
            "on results 1. item 1 item 2 want item 2: yes. works, new falmark padded backpack for 67, item "
            "1 want item 2: yes",
            "yes",
        ),
        (
            [RESULTS, ITEM],
            "click[ brown]",
            "on item 2. yellow brown travel standard want brown: yes. works",
            "brown: yes. works",
        ),
        (
            [RESULTS, CHOSEN],
            "click[buy now]",
            "on item 2. works. falmark padded backpack want backpack: yes, for 67 want lower than 60: yes. "
            "done",
            "yes. done",
        ),
        (
            [RESULTS, CHOSEN],
            "click[buy now]",
            "on item 2. works. falmark padded backpack want backpack: yes, for 67 want lower than 90: yes. "
            "done",
            "90: yes. done",
        ),
        (
            [RESULTS, ITEM],
            "click[buy now]",
            "on item 2. works. brown want brown: yes. done",
            "brown want brown: yes. done",
        ),
        (
            [RESULTS, CHOSEN],
            "click[buy now]",
            "on item 2. works. for 67 want lower than 60: no. done",
            ". done",
        ),
    ],
)
def test_the_text_before_the_first_error_is_kept(states, action, reasoning, rest):
    assert wrong(states, action, reasoning) == rest


def test_a_purchase_needs_all_comparisons():
    """The model may decide on what was not read (`padded` among the features)."""
    item = ITEM.replace("falmark padded backpack for 67", "falmark lined backpack for 37")
    results, chosen = (
        RESULTS.replace("falmark padded backpack for 67", "falmark lined backpack for 37"),
        item.replace("nothing", "brown"),
    )
    whole = (
        "on item 2. works. falmark lined backpack want backpack: yes, for 37 want lower than 60: yes, brown "
        "standard want brown: yes, "
        "brown standard want standard: yes, falmark lined backpack want padded: unseen"
    )
    both = chosen.replace("chosen: brown", "chosen: brown, standard")
    for verdict in (". done", ". not done"):
        assert wrong([results, both], "click[buy now]", whole + verdict) == ""
    assert wrong([results, both], "click[buy now]", "on item 2. works. done") == "done"
    early = (
        "on item 2. works. falmark lined backpack want backpack: yes, for 37 want lower than 60: yes. done"
    )
    assert wrong([results, chosen], "click[buy now]", early) == ". done"
    assert wrong([results, chosen], "click[buy now]", early.replace("done", "not done")) == ""


def test_free_text_is_not_judged():
    assert wrong([RESULTS], "click[item 2]", "on results 7. whatever", "something to carry my books in") == ""
