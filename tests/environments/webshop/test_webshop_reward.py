"""The graded reward, with every term compared with values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.environments.webshop.shop.nouns import nouns
from components.environments.webshop.shop.products import NO_LIMIT, Goal, Product, price_limit
from components.environments.webshop.shop.reward import (
    is_similar,
    normalise_colour,
    same_option,
    score_purchase,
    title_score,
    type_score,
)

SHIRT = Product(
    "B1",
    "Halden Slim Oxford Shirt, Button Collar",
    "clothing",
    "oxford shirt",
    "clothing › shirts › oxford",
    "Soft and light.",
    ("Machine wash warm", "Long sleeve"),
    {"color": ("navy", "red"), "size": ("small", "large")},
    ("slim fit", "cotton"),
    (24.99,),
    24.99,
)
GOAL = Goal(
    "B1/0",
    "B1",
    "clothing",
    "oxford shirt",
    "Halden Slim Oxford Shirt, Button Collar",
    "clothing › shirts › oxford",
    "...",
    ("cotton", "long sleeve"),
    ("navy", "large"),
    30.0,
)


def r(product=SHIRT, goal=GOAL, chosen=("navy", "large")):
    return score_purchase(product, goal, chosen)


def test_a_fully_correct_purchase_earns_one():
    assert r().r == 1.0
    assert (r().attributes, r().options, r().price, r().r_type, r().title_score) == (2, 2, True, 1.0, 1.0)


@pytest.mark.parametrize(
    ("chosen", "matched", "expected"),
    [
        ((), 0, 3 / 5),
        (("navy",), 1, 4 / 5),
        (("red", "large"), 1, 4 / 5),
        (("navy", "small"), 1, 4 / 5),
        (("large", "navy"), 2, 1.0),
    ],
)
def test_each_option_counts_one_fifth(chosen, matched, expected):
    assert r(chosen=chosen).options == matched and r(chosen=chosen).r == pytest.approx(expected)


def test_a_price_at_the_limit_counts():
    assert r(replace(SHIRT, price=30.0)).r == 1.0
    assert (
        r(replace(SHIRT, price=30.01)).r == pytest.approx(4 / 5) and not r(replace(SHIRT, price=30.01)).price
    )


@pytest.mark.parametrize(
    ("attributes", "name", "bullets", "description", "matched"),
    [
        (("cotton", "long sleeves"), "x shirt", (), "", 2),  # 2 * 11 / 23 = 96 %
        (("cotton blend fabric",), "x shirt", (), "", 1),  # all words of the wanted one are in it: 100 %
        ((), "Cotton Shirt", (), "", 1),
        ((), "x shirt", ("LONG SLEEVE", "soft cotton"), "", 2),
        ((), "x shirt", ("long", "sleeve"), "of cotton", 2),  # bullets are joined by a blank
        ((), "x shirt", ("sleeve long",), "", 0),
        (("linen", "short sleeve"), "x shirt", (), "", 0),  # 2 * 8 / 23 = 70 %
    ],
)
def test_an_attribute_may_be_in_the_attributes_or_in_the_texts(
    attributes, name, bullets, description, matched
):
    product = replace(SHIRT, attributes=attributes, name=name, bullets=bullets, description=description)
    assert r(product).attributes == matched


def test_without_attributes_in_common_the_rest_still_counts():
    bare = replace(SHIRT, attributes=(), bullets=(), description="")
    assert r(bare).r == pytest.approx(3 / 5)
    assert r(bare, replace(GOAL, options=()), ()).r == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("value", "colour"),
    [
        ("navy blue", "blue"),
        ("dark red", "dark"),
        ("rose gold", "gold"),
        ("xl", "xl"),
        ("standard", "tan"),
        ("red", "red"),
    ],
)
def test_an_option_is_its_first_known_colour_in_the_order_of_the_list(value, colour):
    assert normalise_colour(value) == colour


@pytest.mark.parametrize(
    ("required", "value", "same"),
    [
        ("light blue", "sky blue", True),  # "blue" stands before "light" in the list: blue against blue
        ("dark green", "green", False),  # dark against green
        ("navy blue", "royal blue", True),  # blue against blue
        ("x-large", "large", True),  # the words of one are among those of the other, as the original has it
        ("small", "large", False),
        ("pack of 12", "12 pack", True),
        ("xl", "xxl", False),  # 2 * 2 / 5 = 80 %
        ("8", "9", False),
    ],
)
def test_options_are_compared_by_colour_and_words(required, value, same):
    assert same_option(required, value) == same


def test_the_ratio_is_rounded_before_it_is_compared():
    # inch 12 against inch 14: 6 of 7 letters in order on each side, 2 * 6 / 14 = 85.7 %, rounded 86
    assert is_similar("12 inch", "14 inch")
    assert not is_similar("long sleeve", "short sleeve") and not is_similar("", "cotton")
    assert is_similar("crème cotton", "crme cotton!")  # letters outside ASCII and signs do not count


@pytest.mark.parametrize(
    ("title", "query", "levels", "expected"),
    [
        (1.0, True, 3, 1.0),
        (0.21, False, 0, 1.0),
        (0.2, False, 0, 0.5),
        (0.2, False, 1, 0.5),
        (0.2, False, 2, 1.0),
        (0.2, True, 0, 1.0),
        (0.1, False, 0, 0.5),
        (0.09, True, 3, 0.1),
        (0.0, True, 3, 0.0),
    ],
)
def test_type_score(title, query, levels, expected):
    assert type_score(title, query, levels) == expected


def test_the_type_score_multiplies_the_other_terms():
    other = replace(SHIRT, query="cardigan", product_category="clothing › knits › cardigan")
    # nouns of the goal: halden, oxford, shirt, button, collar; one of five is in the bought name: 0.2 is not
    # above 0.2
    one_of_five = r(replace(other, name="Merrow Collar Cardigan"))
    assert (one_of_five.title_score, one_of_five.r_type, one_of_five.r) == (0.2, 0.5, 0.5)
    assert r(replace(other, name="Merrow Collar Button Cardigan")).r == 1.0
    assert r(replace(SHIRT, name="Merrow Cardigan")).r == 0.0
    shared = replace(other, name="Merrow Collar Cardigan", product_category="oxford › clothing › knits")
    assert r(shared).r == 1.0  # two levels shared, in whatever order


def test_a_name_without_nouns_scores_one_fifth():
    assert title_score("Halden Shirt", "Slim 2 in 1, Large") == 0.2
    assert type_score(0.2, False, 0) == 0.5


def test_nouns_exclude_adjectives_numbers_and_function_words():
    name = (
        "Halden Women's Waterproof Hiking Boots for the Mountain, Size 8 (Pack of 2), Breathable & "
        "Padded 12oz"
    )
    assert nouns(name) == {"halden", "women's", "boots", "mountain", "size", "pack"}


@pytest.mark.parametrize(
    ("price", "limits"), [(24.99, {40.0, 50.0, 60.0}), (30.0, {50.0, 60.0, 70.0}), (0.0, {20.0, 30.0, 40.0})]
)
def test_the_limit_is_the_larger_of_two_of_the_next_four_tens(price, limits):
    drawn = [price_limit(price, f"key {number}") for number in range(600)]
    assert set(drawn) == limits
    # of the six pairs three have the fourth as the larger one, two the third, one the second
    counts = sorted(drawn.count(limit) for limit in limits)
    assert counts == pytest.approx([100, 200, 300], abs=45)
    assert [price_limit(price, f"key {number}") for number in range(600)] == drawn


def test_a_price_above_the_highest_limit_has_no_limit():
    assert price_limit(979.0, "a") == 990.0
    assert price_limit(980.0, "a") == NO_LIMIT == price_limit(5000.0, "b")
