"""The generated catalogue: reproducible, varied, with goals that can be fulfilled and kinds that differ."""

from __future__ import annotations

import time

import pytest
from shops import settings

from components.environments import make_adapter
from components.environments.webshop.goals import read_requirements
from components.environments.webshop.shop import generated
from components.environments.webshop.shop.assortment import HELD_OUT_KINDS, KINDS
from components.environments.webshop.shop.catalogue import load_catalogue
from components.environments.webshop.shop.nouns import nouns
from components.environments.webshop.shop.products import human_goals, read_product
from components.environments.webshop.shop.reward import same_option, score_purchase


@pytest.fixture(scope="module")
def stock():
    """Products and goals of a catalogue of 1000."""
    records, attributes, goal_entries = generated.generate_records(1000, 0)
    products = [read_product(record, attributes, "f") for record in records]
    return products, [
        goal for product in products for goal in human_goals(product, goal_entries[product.asin], "f")
    ]


def test_a_catalogue_depends_on_its_seed_alone():
    assert (
        generated.generate_records(300, 1)
        == generated.generate_records(300, 1)
        != generated.generate_records(300, 2)
    )


def test_the_shop_opens_within_a_second_of_processor_time_and_is_cached():
    config = settings(products=3000)
    began = time.process_time()
    first = load_catalogue(config)
    assert time.process_time() - began < 2  # 0.4 s on an idle core; busy ones count other things too
    assert load_catalogue(config) is first and len(first.products) == 3000


def test_products_are_varied(stock):
    products, _ = stock
    assert len({product.asin for product in products}) == 1000 and all(
        len(product.asin) == 10 for product in products
    )
    assert (
        len({product.query for product in products}) == 48
        and len({product.category for product in products}) == 8
    )
    assert len({product.name.split()[0] for product in products}) > 150
    assert (
        len({value for product in products for values in product.options.values() for value in values}) > 45
    )
    assert min(product.price for product in products) < 6 and max(product.price for product in products) > 150


def test_some_products_differ_in_a_single_attribute(stock):
    products, _ = stock
    attributes_by_name: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for product in products:
        attributes_by_name.setdefault((product.name.split()[0], product.query), []).append(product.attributes)
    pairs = [
        (a, b) for same in attributes_by_name.values() for place, a in enumerate(same) for b in same[:place]
    ]
    twins = sum(sum(x != y for x, y in zip(a, b, strict=True)) == 1 for a, b in pairs)
    assert twins > 200


def test_every_goal_is_fulfilled_by_its_own_product(stock):
    products, goals = stock
    own = {product.asin: product for product in products}
    assert len(goals) == 4000
    assert all(score_purchase(own[goal.asin], goal, goal.options).r == 1.0 for goal in goals)


def test_another_kind_of_product_never_earns_the_full_reward(stock):
    products, goals = stock
    for goal in goals[::80]:
        for product in products[::5]:
            if product.query != goal.query:
                score = score_purchase(product, goal, goal.options)
                assert score.r_type <= 0.5 and score.title_score <= 0.2


def test_a_product_has_only_its_own_attributes(stock):
    products, goals = stock
    for goal in goals[::25]:
        for product in products:
            if product.query == goal.query:
                score = score_purchase(product, goal, ())
                assert score.attributes == len(set(goal.attributes) & set(product.attributes)), (
                    goal,
                    product,
                )


def test_kinds_share_no_words_and_their_options_differ():
    words = [word for kind in KINDS for word in nouns(f"{kind.name} {kind.tail}")]
    assert len(words) == len(set(words))
    for kind in KINDS:
        assert len(kind.groups) >= 3 and sum(any(map(nouns, group)) for group in kind.groups) <= 1
        for _, values in kind.options:
            assert not any(same_option(one, other) for one in values for other in values if one != other)


def test_every_instruction_is_read_exactly(stock):
    _, goals = stock
    for goal in goals:
        requirements = read_requirements(goal.instruction)
        assert (requirements.kind, requirements.attributes, requirements.options, requirements.limit) == (
            goal.query,
            goal.attributes,
            goal.options,
            goal.price_upper,
        )


def test_the_splits_share_no_product_and_the_test_split_has_kinds_of_its_own():
    splits = load_catalogue(settings()).splits
    assert not {goal.asin for goal in splits["train"]} & {goal.asin for goal in splits["test"]}
    assert {goal.query for goal in splits["test"]} - {
        goal.query for goal in splits["train"]
    } == HELD_OUT_KINDS


def test_tasks_take_turns_and_half_of_the_test_asks_for_unseen_kinds(shop):
    tasks = shop.tasks("test", 32, 0)
    assert [shop.unseen(task) for task in tasks] == [True, False] * 16
    assert len({task.family for task in tasks}) == 8 and not any(
        map(shop.unseen, shop.tasks("train", 200, 0))
    )
    assert shop.notice == "Products and goals are generated: scores are not WebShop benchmark scores."


def test_a_task_of_another_catalogue_is_refused(shop):
    from components.errors import EnvironmentFailure

    other = make_adapter(settings(products=700)).tasks("train", 1, 0)
    with pytest.raises(
        EnvironmentFailure,
        match="'products': 700.*This config opens one with .*'products': 600.*dreamgym collect",
    ):
        shop.open().reset(other)
    with pytest.raises(EnvironmentFailure, match="has the spec 'nonsense'"):
        shop.open().reset([type(other[0])(**{**other[0].__dict__, "spec": "nonsense"})])
    with pytest.raises(
        EnvironmentFailure,
        match="has 1760 goals of the split train.*at least 9999.*environment.webshop.products",
    ):
        shop.tasks("train", 9999, 0)
