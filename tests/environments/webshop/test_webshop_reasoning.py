"""The programmatic teacher of WebShop: its conclusions, its comparisons, and what it calls new."""

from __future__ import annotations

import pytest
from shops import INSTRUCTION, make_history

from components.environments.webshop.reasoning import judged, reason, revealing

LISTING = (
    "results 1 of 1 for cotton oxford shirt: item 1 halden cotton oxford shirt for 45, item 2 merrow "
    "slim oxford shirt for 31."
)
ITEM = "item 2: merrow slim oxford shirt for 31. color: navy, red. size: small, large. chosen: {}."
FEATURES = (
    "features of item 2: merrow slim oxford shirt for 31. color: navy, red. size: small, large. "
    "features: {}. chosen: nothing."
)
KNOWN = (
    "item 2: merrow slim oxford shirt for 31. color: navy, red. size: small, large. features: cotton, "
    "slim. chosen: {}."
)
BOUGHT = "bought item 2. chosen: {}."


@pytest.mark.parametrize(
    ("states", "action", "following", "reward", "words"),
    [
        ((), "search[cotton oxford shirt]", LISTING, 0, "on search page. works, new"),
        (
            (),
            "click[item 1]",
            "nothing happens on search page.",
            0,
            "on search page. nothing to click. fails",
        ),
        ((), "buy", "nothing happens on search page.", 0, "on search page. no such action. fails"),
        ((LISTING,), "search[cotton oxford shirt]", LISTING, 0, "on results 1. works, known"),
        (
            (LISTING,),
            "click[item 2]",
            ITEM.format("nothing"),
            0,
            "on results 1. item 1 item 2 want item 2: yes. works, new merrow slim oxford shirt for 31",
        ),
        (
            (LISTING,),
            "click[b0002]",
            ITEM.format("nothing"),
            0,
            "on results 1. item 1 item 2 want item 2: yes. works, new merrow slim oxford shirt for 31",
        ),
        (
            (LISTING, ITEM.format("nothing")),
            "click[navy (blue)]",
            ITEM.format("navy"),
            0,
            "on item 2. navy red small large want navy: yes. works, now navy",
        ),
        (
            (LISTING,),
            "click[item 7]",
            "nothing happens on results 1.",
            0,
            "on results 1. item 1 item 2 want item 7: no. fails",
        ),
        (
            (LISTING,),
            "click[next >]",
            "nothing happens on results 1.",
            0,
            "on results 1. results 1 of 1. fails",
        ),
        ((LISTING,), "click[back to search]", "search page.", 0, "on results 1. works, back to search page"),
        (
            (LISTING, ITEM.format("nothing")),
            "click[red]",
            ITEM.format("red"),
            0,
            "on item 2. navy red small large want red: yes. works, now red",
        ),
        (
            (LISTING, ITEM.format("red")),
            "click[moon]",
            "nothing happens on item 2. chosen: red.",
            0,
            "on item 2. navy red small large want moon: no. fails",
        ),
        (
            (LISTING, ITEM.format("nothing")),
            "click[features]",
            FEATURES.format("cotton, slim"),
            0,
            "on item 2. works, new",
        ),
        (
            (LISTING, ITEM.format("nothing"), FEATURES.format("cotton, slim")),
            "click[red]",
            "nothing happens on features of item 2. chosen: nothing.",
            0,
            "on features of item 2. no choice here. fails",
        ),
        (
            (LISTING, ITEM.format("nothing"), FEATURES.format("cotton, slim")),
            "click[< prev]",
            KNOWN.format("nothing"),
            0,
            "on features of item 2. works, back to item 2 with nothing",
        ),
        (
            (LISTING, ITEM.format("nothing"), FEATURES.format("cotton, slim"), KNOWN.format("nothing")),
            "click[features]",
            FEATURES.format("cotton, slim"),
            0,
            "on item 2. works, known cotton slim",
        ),
        (
            (LISTING, ITEM.format("red"), LISTING),
            "click[item 2]",
            ITEM.format("nothing"),
            0,
            "on results 1. item 1 item 2 want item 2: yes. works, known merrow slim oxford shirt for 31",
        ),
        (
            (LISTING, ITEM.format("navy, large")),
            "click[buy now]",
            BOUGHT.format("navy, large"),
            0,
            "on item 2. works. merrow slim oxford shirt want oxford shirt: yes, for 31 want lower than 40: "
            "yes, navy large want navy: yes, "
            "navy large want large: yes, merrow slim oxford shirt want cotton: unseen, merrow slim oxford "
            "shirt want slim: yes. not done",
        ),
        (
            (LISTING, KNOWN.format("navy, large")),
            "click[buy now]",
            BOUGHT.format("navy, large"),
            1,
            "on item 2. works. merrow slim oxford shirt want oxford shirt: yes, for 31 want lower than 40: "
            "yes, navy large want navy: yes, "
            "navy large want large: yes, cotton slim want cotton: yes, cotton slim want slim: yes. done",
        ),
        (
            (LISTING, KNOWN.format("navy")),
            "click[buy now]",
            BOUGHT.format("navy"),
            0,
            "on item 2. works. merrow slim oxford shirt want oxford shirt: yes, for 31 want lower than 40: "
            "yes, navy want navy: yes, "
            "navy want large: no. not done",
        ),
    ],
)
def test_reasoning(states, action, following, reward, words):
    assert reason(make_history(*states), action, following, float(reward)) == words


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((LISTING, KNOWN.format("navy, large"), BOUGHT.format("navy, large")), 1.0),
        ((LISTING, KNOWN.format("navy"), BOUGHT.format("navy")), 0.0),
        (
            (LISTING, ITEM.format("navy, large"), BOUGHT.format("navy, large")),
            None,
        ),  # whether it is of cotton was not looked at
        ((LISTING, ITEM.format("nothing"), BOUGHT.format("nothing")), 0.0),
        ((LISTING, KNOWN.format("navy, large")), None),
    ],
)
def test_a_purchase_is_judged_by_what_was_looked_at(states, outcome):
    assert judged(make_history(*states)) == outcome


def test_the_judgement_agrees_with_the_shops_reward(shop, shopped):
    played = [episode for name in ("expert", "noisy", "near_miss", "random") for episode in shopped[name]]
    outcomes = [(shop.judged(episode), float(episode.success)) for episode in played]
    assert all(judgement in (None, reward) for judgement, reward in outcomes)
    assert {judgement for judgement, _ in outcomes} == {None, 0.0, 1.0}


def test_a_purchase_succeeds_unless_a_comparison_says_no(shop, shopped):
    counts = {True: 0, False: 0}
    for episode in (e for name in ("expert", "noisy", "near_miss", "random") for e in shopped[name]):
        for step in episode.steps:
            if step.next_state.startswith("bought"):
                assert step.reasoning.endswith(". done" if step.reward else "not done")
                hidden = shop.revealing(episode.up_to(step.step), step.action, step.next_state)
                assert hidden == (": unseen" in step.reasoning and ": no" not in step.reasoning)
                if not hidden:
                    assert (": no" not in step.reasoning) == bool(step.reward)
                counts[hidden] += 1
            else:
                assert ("fails" in step.reasoning) == shop.refused(
                    step.next_state
                ) and "no effect" not in step.reasoning
    assert counts[True] > 5 and counts[False] > 50


@pytest.mark.parametrize(
    ("states", "following", "new"),
    [
        ((), LISTING, True),
        ((LISTING,), LISTING, False),
        ((LISTING,), ITEM.format("nothing"), True),
        ((LISTING, ITEM.format("red")), ITEM.format("red, large"), False),
        ((LISTING, ITEM.format("nothing")), FEATURES.format("cotton"), True),
        ((LISTING, ITEM.format("nothing"), FEATURES.format("cotton")), KNOWN.format("nothing"), False),
        ((LISTING,), "nothing happens on results 1.", False),
        ((LISTING,), "search page.", False),
        ((LISTING, ITEM.format("navy, large")), BOUGHT.format("navy, large"), True),
        ((LISTING, ITEM.format("navy")), BOUGHT.format("navy"), False),
        ((LISTING, KNOWN.format("navy, large")), BOUGHT.format("navy, large"), False),
    ],
)
def test_a_step_reveals_what_the_history_does_not_determine(states, following, new):
    assert revealing(make_history(*states), following) is new


def test_every_purchase_for_free_text_reveals_something():
    history = make_history(LISTING, KNOWN.format("navy"), instruction="something nice for my friend")
    assert revealing(history, BOUGHT.format("navy")) and not revealing(
        make_history(LISTING, instruction=INSTRUCTION), LISTING
    )
    assert reason(history, "click[buy now]", BOUGHT.format("navy"), 1.0) == "on item 2. works. done"
