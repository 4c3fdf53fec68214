"""The scripted shoppers and their thoughts, judged by what an agent can see."""

from __future__ import annotations

import pytest
from builders import with_thoughts
from shops import INSTRUCTION, make_history

from components.environments.webshop.goals import keywords, read_requirements
from components.environments.webshop.knowledge import assess_item, collect_knowledge, next_missing_option
from components.environments.webshop.thoughts import think
from components.errors import EnvironmentFailure
from components.policy.early_experience import ExploredEpisode, reflections
from components.trajectories.recording import collect, plan

WANTS = read_requirements(INSTRUCTION)
LISTING = (
    "results 1 of 2 for cotton slim oxford shirt: "
    + ", ".join(
        [
            *("item 1 halden cotton wool oxford shirt for 45", "item 2 halden slim dry oxford shirt for 25"),
            *("item 3 halden cotton slim oxford shirt for 31", "item 4 halden relaxed oxford shirt for 31"),
            *(f"item {rank} x for 9" for rank in range(5, 11)),
        ]
    )
    + "."
)
SHIRT = "item 3: halden cotton slim oxford shirt for 31. color: navy, red. size: small, large. chosen: {}."
DRY = "item 2: halden slim dry oxford shirt for 25. color: navy. size: large. chosen: nothing."
READ = (
    "features of item 2: halden slim dry oxford shirt for 25. color: navy. size: large. features: wool, "
    "slim. chosen: nothing."
)


def after(*states):
    return collect_knowledge(make_history(*states))


@pytest.mark.parametrize(
    ("instruction", "kind", "attributes", "options", "limit"),
    [
        (INSTRUCTION, "oxford shirt", ("cotton", "slim"), ("navy", "large"), 40),
        (
            "find me an oxford shirt that is dry clean and slim, with navy and xl, and price lower than "
            "30.00 dollars",
            "oxford shirt",
            ("dry clean", "slim"),
            ("navy", "xl"),
            30,
        ),
        (
            "i want an organic sensitive skin shampoo, and price lower than 10.00 dollars",
            "shampoo",
            ("organic", "sensitive skin"),
            (),
            10,
        ),
        ("find me a hoodie that is wool", "hoodie", ("wool",), (), 0),
    ],
)
def test_both_wordings_are_read(instruction, kind, attributes, options, limit):
    requirements = read_requirements(instruction)
    assert (requirements.kind, requirements.attributes, requirements.options, requirements.limit) == (
        kind,
        attributes,
        options,
        limit,
    )


@pytest.mark.parametrize(
    "instruction",
    [
        "i need a red shirt, and price lower than 40.00 dollars",
        "i want a cotton wool oxford shirt, and price lower than 40.00 dollars",  # two materials
        "i want a cotton oxford shirt in navy, red, and price lower than 40.00 dollars",  # two colours
        "i want a cotton oxford shirt in dozen, and price lower than 40.00 dollars",  # no size
        "i want a gluten free oxford shirt, and price lower than 40.00 dollars",
        "i want an oxford shirt, and price lower than 40.00 dollars",
        "find me a spoon that is steel, and price lower than 40.00 dollars",
    ],
)
def test_another_wording_or_an_unknown_attribute_is_free_text(instruction):
    requirements = read_requirements(instruction)
    assert not requirements.is_exact and requirements.limit == 40 and requirements.words


def test_the_query_leaves_out_filler_words():
    assert keywords(INSTRUCTION) == "cotton slim oxford shirt navy large"
    assert keywords(
        "I would like a 3 ounce bottle of bright citrus deodorant, and price lower than 50.00 dollars"
    ) == ("3 ounce bottle bright citrus deodorant")
    assert keywords("the") == "product"


@pytest.mark.parametrize(("rank", "answer"), [(1, "no"), (2, "unseen"), (3, "unseen"), (4, "no"), (5, "no")])
def test_a_listing_shows_mismatches(rank, answer):
    assert assess_item(after(LISTING).items["cotton slim oxford shirt", rank], WANTS) == answer


def test_options_and_features_complete_the_assessment():
    key = ("cotton slim oxford shirt", 3)
    knowledge = after(LISTING, SHIRT.format("nothing"))
    assert (
        assess_item(knowledge.items[key], WANTS) == "yes"
        and next_missing_option(knowledge.items[key], WANTS, ()) == "navy"
    )
    assert (
        next_missing_option(knowledge.items[key], WANTS, ("navy",)) == "large"
        and next_missing_option(knowledge.items[key], WANTS, ("navy", "large")) == ""
    )
    assert (
        assess_item(after(LISTING, SHIRT.format("nothing").replace("navy", "teal")).items[key], WANTS) == "no"
    )
    other = ("cotton slim oxford shirt", 2)
    assert assess_item(after(LISTING, DRY).items[other], WANTS) == "unseen"
    assert assess_item(after(LISTING, DRY, READ).items[other], WANTS) == "no"


@pytest.mark.parametrize(
    ("states", "thought"),
    [
        ((), "search cotton slim oxford shirt navy large"),
        ((LISTING,), "item 3 halden cotton slim oxford shirt for 31. open item 3"),
        ((LISTING, SHIRT.format("nothing")), "nothing want navy: no, nothing want large: no. choose navy"),
        ((LISTING, SHIRT.format("navy")), "navy want navy: yes, navy want large: no. choose large"),
        (
            (LISTING, SHIRT.format("navy, large")),
            "navy large want navy: yes, navy large want large: yes. buy",
        ),
        (
            (LISTING, SHIRT.format("nothing"), LISTING),
            "tried item 3. item 3 halden cotton slim oxford shirt for 31. open item 3",
        ),
        ((LISTING, DRY), "halden slim dry oxford shirt want cotton: unseen. read features"),
        ((LISTING, DRY, READ), "wool slim want cotton: no. search again"),
        ((LISTING.replace("for 31", "for 99").replace("for 25", "for 99"),), "none fits. search on"),
    ],
)
def test_a_thought_compares_and_names_the_next_step(states, thought):
    assert think(WANTS, after(*states)) == thought


def test_only_steps_that_the_expert_decided_have_its_thought(shopped):
    thoughts = {
        name: [step.thought for episode in episodes for step in episode.steps]
        for name, episodes in shopped.items()
    }
    shares = {name: sum(map(bool, texts)) / len(texts) for name, texts in thoughts.items()}
    assert shares["expert"] == 1 and shares["random"] == 0
    assert 0.6 < shares["noisy"] < 0.9 and 0.1 < shares["near_miss"] < 0.6


def test_experts_succeed_and_the_other_behaviours_often_fail(shopped):
    won = {name: sum(e.success for e in episodes) / len(episodes) for name, episodes in shopped.items()}
    assert (
        won["expert"] >= 0.95
        and 0.75 <= won["noisy"] <= 1.0
        and 0.15 <= won["near_miss"] <= 0.6
        and won["random"] <= 0.2
    )
    assert {action for e in shopped["expert"] for action in [e.steps[0].action[:7]]} == {"search["}


def test_near_misses_make_every_kind_of_mistake(shop):
    tasks = shop.tasks("train", 100, 2)
    world, scores = shop.open(), []
    for episode in collect(shop, plan(tasks, {"near_miss": 1}, 0), 20, rows=100):
        world.reset([episode.task])
        info = [world.step([step.action])[0].info for step in episode.steps][-1]
        goal = world._sessions[0].goal
        if "score" in info:
            scores.append((info["score"], len(goal.attributes), len(goal.options)))
    assert sum(score["r_type"] < 1 for score, *_ in scores) >= 3
    assert sum(not score["price"] for score, *_ in scores) >= 3
    assert sum(score["attributes"] < count for score, count, _ in scores) >= 10
    assert sum(score["options"] < count for score, _, count in scores) >= 10
    assert sum(score["r"] == 1 for score, *_ in scores) >= 10


def test_the_data_has_impossible_and_malformed_actions(shop, shopped):
    steps = [step for name in ("near_miss", "random") for e in shopped[name] for step in e.steps]
    refused = [step for step in steps if shop.refused(step.next_state)]
    assert len(refused) > len(steps) / 5
    assert any(not shop.well_formed(step.action) for step in refused) and any(
        shop.well_formed(step.action) for step in refused
    )
    assert all(shop.refused(step.next_state) for step in steps if not shop.well_formed(step.action))


def test_a_reflection_names_the_consequences_of_alternatives(shop):
    history = make_history(LISTING, SHIRT.format("nothing"))
    tried = [
        ("click[red]", SHIRT.format("red")),
        ("click[moon]", "nothing happens on item 3. chosen: nothing."),
        ("click[buy now]", "bought item 3. chosen: nothing."),
    ]
    thought = "nothing want navy: no, nothing want large: no. choose navy"
    assert shop.reflect(history, tried, thought) == (
        "click[red] would not help. click[moon] would fail. click[buy now] would buy the wrong thing. "
        "nothing want navy: no, nothing want large: no. choose navy"
    )


def test_a_required_option_that_was_not_chosen_first_is_not_called_useless(shop):
    episode = make_history(LISTING, SHIRT.format("nothing"), SHIRT.format("navy"))
    tried = (("click[large]", SHIRT.format("large")), ("click[red]", SHIRT.format("red")))
    entry = ExploredEpisode(with_thoughts(episode, "search", "open", "choose navy"), ((), (), tried))
    assert reflections([entry], shop.reflect, shop.progress) == [
        ["search", "open", "click[red] would not help. choose navy"]
    ]


def test_an_unknown_behaviour_is_refused(shop):
    with pytest.raises(EnvironmentFailure, match="no behaviour policy 'clever'"):
        shop.behaviour("clever", make_history().task, 0)
