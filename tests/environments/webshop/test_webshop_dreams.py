"""Dreamed episodes: contradictions, the premise, and the replay in the shop that a dream described."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shops import INSTRUCTION, make_history

from components.environments.protocol import Step
from components.environments.webshop.coherence import contradiction
from components.environments.webshop.premise import objection, premise
from components.errors import EnvironmentFailure
from components.records import Transition

LINES = [f"item {n} halden cotton oxford shirt for 25" for n in range(1, 11)]
LISTING = f"results 1 of 5 for cotton oxford shirt: {', '.join(LINES)}."
ITEM = "item 2: halden cotton oxford shirt for 25. color: navy, red. size: small, large. chosen: {}."
FEATURES = (
    "features of item 2: halden cotton oxford shirt for 25. color: navy, red. size: small, large. "
    "features: {}. chosen: nothing."
)
KNOWN = (
    "item 2: halden cotton oxford shirt for 25. color: navy, red. size: small, large. features: cotton, "
    "slim. chosen: {}."
)


def test_no_real_state_is_a_contradiction(shop, shopped):
    for episodes in shopped.values():
        for episode in episodes:
            episode_with_premise = replace(episode, premise=shop.premise(episode))
            for step in episode.steps:
                assert shop.contradiction(episode_with_premise.up_to(step.step), step.next_state) == "", (
                    step.state,
                    step.action,
                    step.next_state,
                )


@pytest.mark.parametrize(
    ("states", "following", "why"),
    [
        ((), "halden shirt", "no state after an action"),
        ((LISTING,), LISTING.replace("item 3 halden", "item 3 merrow"), "changed by themselves"),
        ((LISTING,), LISTING.replace("1 of 5", "1 of 4"), "had 5 pages"),
        ((), LISTING.replace("item 10 ", "item 11 "), "numbered wrongly"),
        ((), "results 1 of 5 for x: item 1 a for 3.", "another number of results"),
        ((), "results 3 of 2 for x: nothing.", "numbered wrongly|another number"),
        (
            (),
            "results 1 of 6 for x: " + ", ".join(f"item {n} a for 3" for n in range(1, 11)) + ".",
            "finds at most 50 products",
        ),
        ((), "results 1 of 99999999 for x: item 1 a for 3.", "no state after an action"),
        ((), f"results 1 of 1 for x: item 1 a for {'9' * 400}.", "no state after an action"),
        ((), "results 2 of 2 for x: item 11 a for 3.", "no page came before it"),
        ((LISTING,), ITEM.format("nothing").replace("item 2", "item 12"), "show no item 12"),
        (
            (LISTING,),
            ITEM.format("nothing").replace("for 25", "for 26"),
            "was halden cotton oxford shirt for 25",
        ),
        (
            (LISTING,),
            ITEM.format("nothing").replace("cotton", "wool"),
            "was halden cotton oxford shirt for 25",
        ),
        ((LISTING,), ITEM.format("navy"), "chosen changed by itself"),
        ((LISTING,), KNOWN.format("nothing"), "not read yet"),
        ((LISTING, ITEM.format("nothing")), ITEM.format("navy, large"), "more than one option"),
        ((LISTING, ITEM.format("nothing")), ITEM.format("teal"), "no option"),
        ((LISTING, ITEM.format("nothing")), ITEM.format("navy").replace("small, ", ""), "options changed"),
        (
            (LISTING, ITEM.format("nothing")),
            ITEM.format("nothing").replace("item 2", "item 3"),
            "page was of item 2",
        ),
        (
            (LISTING, ITEM.format("nothing"), FEATURES.format("cotton, slim")),
            ITEM.format("nothing"),
            "features changed",
        ),
        (
            (LISTING, ITEM.format("nothing"), FEATURES.format("cotton, slim")),
            KNOWN.format("navy"),
            "chosen changed by itself",
        ),
        ((LISTING, ITEM.format("navy")), "bought item 2. chosen: red.", "not what was looked at"),
        ((LISTING,), "bought item 2. chosen: nothing.", "not what was looked at"),
        (
            (LISTING, ITEM.format("navy")),
            "nothing happens on item 2. chosen: nothing.",
            "what is chosen navy",
        ),
        ((LISTING,), "nothing happens on item 2. chosen: nothing.", "the page was results 1"),
    ],
)
def test_a_dream_that_contradicts_itself_is_detected(states, following, why):
    import re

    assert re.search(why, contradiction(make_history(*states), following))


@pytest.mark.parametrize(
    ("states", "following"),
    [
        ((LISTING, ITEM.format("navy")), ITEM.format("red")),
        ((LISTING, ITEM.format("navy")), ITEM.format("navy, large")),
        ((LISTING, ITEM.format("navy")), LISTING),
        ((LISTING, ITEM.format("navy"), LISTING), ITEM.format("nothing")),
        ((LISTING, ITEM.format("nothing")), FEATURES.format("wool")),
        ((LISTING, ITEM.format("navy, large")), "bought item 2. chosen: navy, large."),
    ],
)
def test_a_possible_next_state_is_accepted(states, following):
    assert contradiction(make_history(*states), following) == ""


def test_the_premise_is_the_rank_of_the_fitting_result(shop, shopped):
    read = [
        premise(make_history(LISTING, ITEM.format("nothing"), FEATURES.format(features)))
        for features in ("cotton, slim", "cotton, wide")
    ]
    assert read == ["item 2", ""]
    assert premise(make_history(LISTING, KNOWN.format("nothing").replace("navy", "teal"))) == ""
    assert premise(make_history(LISTING.replace("oxford shirt:", "shirt:"), KNOWN.format("nothing"))) == ""
    premises = [shop.premise(episode) for episode in shopped["expert"]]
    assert sum(map(bool, premises)) > 50 and len(set(premises)) > 2
    assert not any(
        shop.objection(e.task, text) for e, text in zip(shopped["expert"], premises, strict=True) if text
    )


@pytest.mark.parametrize("text", ["", "item 0", "item 11", "item", "2", "item 2 fits", "mug 1 desk 1"])
def test_a_premise_that_names_no_result_of_the_first_page_is_refused(text):
    assert objection(make_history().task, text) == "malformed"
    assert objection(make_history().task, "item 10") == ""
    assert objection(make_history(instruction="be happy").task, "item 1") == "malformed"


@pytest.mark.parametrize(
    ("states", "following", "breaks"),
    [
        ((), LISTING, False),
        (
            (),
            LISTING.replace(
                "item 2 halden cotton oxford shirt for 25", "item 2 halden cotton oxford shirt for 45"
            ),
            True,
        ),
        ((), LISTING.replace("item 2 halden cotton oxford shirt", "item 2 halden wool oxford shirt"), True),
        ((), LISTING.replace("item 2 halden cotton oxford shirt", "item 2 halden cotton hoodie"), True),
        ((), LISTING.replace("item 3 halden cotton oxford shirt", "item 3 halden wool hoodie"), False),
        ((), "results 1 of 1 for hoodie: nothing.", False),  # a search for something else promises nothing
        ((LISTING,), ITEM.format("nothing"), False),
        ((LISTING,), ITEM.format("nothing").replace("navy", "teal"), True),
        ((LISTING, ITEM.format("nothing")), FEATURES.format("cotton, slim"), False),
        ((LISTING, ITEM.format("nothing")), FEATURES.format("cotton, wide"), True),
    ],
)
def test_a_dream_keeps_to_its_premise(states, following, breaks):
    assert (
        contradiction(make_history(*states, premise="item 2"), following) == "item 2 should fit"
    ) is breaks
    assert contradiction(make_history(*states), following) == ""


def test_reasoning_names_the_premise(shop):
    reasoning = shop.reason(make_history(premise="item 2"), "search[cotton oxford shirt]", LISTING, 0.0)
    assert reasoning == "on search page. works, new, item 2 fits"
    reasoning = shop.reason(
        make_history(LISTING, premise="item 2"), "click[item 2]", ITEM.format("nothing"), 0.0
    )
    assert reasoning.endswith(
        "works, new halden cotton oxford shirt for 25, item 2 want item 2: yes, with navy large"
    )
    reasoning = shop.reason(
        make_history(LISTING, premise="item 3"), "click[item 2]", ITEM.format("nothing"), 0.0
    )
    assert reasoning.endswith("for 25, item 3 want item 2: no")
    reasoning = shop.reason(
        make_history(LISTING, ITEM.format("nothing"), premise="item 2"),
        "click[features]",
        FEATURES.format("cotton"),
        0.0,
    )
    assert reasoning == "on item 2. works, new, item 2 want item 2: yes, with cotton slim"


def dreamed(actions, states, won, instruction=INSTRUCTION):
    episode = make_history(*states, instruction=instruction, won=won)
    steps = tuple(replace(step, action=action) for step, action in zip(episode.steps, actions, strict=True))
    task = replace(episode.task, parent="t0", spec='{"catalogue": "generated", "goal": "none"}')
    return replace(episode, task=task, steps=steps)


SHOPPING = (
    "search[cotton oxford shirt]",
    "click[item 2]",
    "click[navy]",
    "click[large]",
    "click[features]",
    "click[< prev]",
    "click[buy now]",
)
SHOPPED = (
    LISTING,
    ITEM.format("nothing"),
    ITEM.format("navy"),
    ITEM.format("navy, large"),
    FEATURES.format("cotton, slim").replace("chosen: nothing", "chosen: navy, large"),
    KNOWN.format("navy, large"),
    "bought item 2. chosen: navy, large.",
)


def replayed(shop, episode):
    world = shop.open()
    assert world.reset([shop.embody(episode)]) == ["search page."]
    return [world.step([step.action])[0] for step in episode.steps]


def test_a_dreamed_success_is_confirmed_in_the_shop_that_it_described(shop):
    episode = dreamed(SHOPPING, SHOPPED, won=True)
    answers = replayed(shop, episode)
    assert [answer.state for answer in answers] == episode.states[1:]
    assert [answer.reward for answer in answers] == [0.0] * 6 + [1.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for 25", "for 41"),
        ("cotton, slim.", "wool, slim."),
        ("navy, large.", "red, large."),
        ("oxford shirt for", "hoodie for"),
    ],
)
def test_a_dreamed_success_that_does_not_follow_is_denied(shop, old, new):
    states = tuple(state.replace(old, new) for state in SHOPPED)
    if old == "cotton, slim.":
        states = tuple(state.replace("halden cotton", "halden plain") for state in states)
    actions = tuple(action.replace("navy", "red") if "red" in new else action for action in SHOPPING)
    states = tuple(s.replace("chosen: navy", "chosen: red") for s in states) if "red" in new else states
    assert replayed(shop, dreamed(actions, states, won=True))[-1].reward == 0.0


def test_unseen_attributes_are_granted_to_a_success_and_denied_to_a_failure(shop):
    bare = [
        place for place, action in enumerate(SHOPPING) if action not in ("click[features]", "click[< prev]")
    ]
    actions, states = ([values[place] for place in bare] for values in (SHOPPING, SHOPPED))
    assert replayed(shop, dreamed(actions, states, won=True))[-1].reward == 1.0
    assert replayed(shop, dreamed(actions, states, won=False))[-1].reward == 0.0


def test_the_first_description_of_a_result_counts(shop):
    states = [*SHOPPED[:2], LISTING.replace("item 2 halden", "item 2 merrow")]
    episode = dreamed(
        ("search[cotton oxford shirt]", "click[item 2]", "search[cotton oxford shirt]"), states, won=False
    )
    assert [answer.state for answer in replayed(shop, episode)] == [LISTING, ITEM.format("nothing"), LISTING]


def test_pages_not_dreamed_exist_and_other_searches_find_nothing(shop):
    world = shop.open()
    world.reset([shop.embody(dreamed(SHOPPING[:1], SHOPPED[:1], won=False))])
    assert world.step([SHOPPING[0]])[0].state == LISTING
    assert world.step(["click[next >]"])[0].state.startswith(
        "results 2 of 5 for cotton oxford shirt: item 11 untold for 1"
    )
    assert world.step(["search[bread]"])[0].state == "results 1 of 1 for bread: nothing."


def test_an_instruction_that_cannot_be_read_has_no_shop(shop):
    with pytest.raises(EnvironmentFailure, match="'be happy' follows no wording"):
        shop.embody(dreamed((), (), won=False, instruction="be happy"))


def test_real_episodes_are_reproduced_in_the_shops_that_they_describe(shop, shopped):
    for name in ("near_miss", "noisy", "random"):
        episodes = shopped[name][:20]
        world = shop.open()
        world.reset([shop.embody(episode) for episode in episodes])
        for place in range(max(len(e.steps) for e in episodes)):
            answers = world.step([e.steps[place].action if place < len(e.steps) else None for e in episodes])
            for episode, answer in zip(episodes, answers, strict=True):
                if isinstance(answer, Step):
                    recorded: Transition = episode.steps[place]
                    assert (answer.state, answer.reward, answer.done) == (
                        recorded.next_state,
                        recorded.reward,
                        recorded.done,
                    ), recorded


def test_progress_rises_towards_the_purchase(shop, shopped):
    history = make_history(*SHOPPED[:-1])
    reached = [shop.progress(history.up_to(count)) for count in range(len(history.steps) + 1)]
    assert reached == sorted(reached) and reached[0] == 0.0 and reached[1] < reached[3] < reached[-1] < 1.0
    assert shop.progress(make_history(*SHOPPED, won=True)) == 1.0
    values = [shop.progress(e) for episodes in shopped.values() for e in episodes]
    assert all(0.0 <= value <= 1.0 for value in values) and len(set(values)) > 5


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("i want a cotton slim oxford shirt in red, small, and price lower than 30.00 dollars", ""),
        ("i want a cotton slim oxford shirt, and price lower than 10.00 dollars", "too cheap"),
        ("i want a cotton slim oxford shirt, and price lower than 35.00 dollars", "no such price"),
        ("i want a cotton slim oxford shirt", "no such price"),
        ("i want a cotton wool oxford shirt, and price lower than 30.00 dollars", "follows no wording"),
        ("i want a cotton item 3 oxford shirt, and price lower than 30.00 dollars", "follows no wording"),
        ("i want an organic hand soap, and price lower than 30.00 dollars", "kind held out"),
        ("put a mug in desk", "follows no wording"),
        ("", "follows no wording"),
    ],
)
def test_feasible_tasks(shop, instruction, why):
    assert shop.feasible(replace(make_history().task, instruction=instruction)) == why
    assert not any(map(shop.feasible, [*shop.tasks("test", 30, 0), *shop.tasks("train", 30, 0)]))
