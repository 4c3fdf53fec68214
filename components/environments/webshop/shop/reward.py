"""WebShop's graded reward at `Buy Now` (Yao et al. 2022, section 3.2, in the form of the released code).

    r = r_type * (n_attr + n_opt + [price <= price_upper]) / (|attributes| + |options| + 1)

The similarity of two texts is fuzzywuzzy's token_set_ratio, which rapidfuzz computes. As in the original,
letters outside ASCII are dropped, and case and punctuation do not count. The ratio is rounded to whole
percents before it is compared. Nouns come from `nouns.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from components.environments.webshop.shop.nouns import nouns
from components.environments.webshop.shop.products import Goal, Product

SIMILAR = 85
"""Percents of similarity above which two texts count as the same."""
_COLOURS_TEXT = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel
camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry
cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey
heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight
mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow
red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal
tiger turquoise violet walnut wheat white wine yellow
"""
COLOURS = tuple(_COLOURS_TEXT.split())
"""The known colour words, in the order in which an option is searched for them."""


@dataclass(frozen=True)
class Score:
    """The reward `r` from 0 to 1, and its terms."""

    r: float
    r_type: float
    title_score: float
    attributes: int
    options: int
    price: bool


def score_purchase(product: Product, goal: Goal, chosen: Sequence[str]) -> Score:
    """Return the reward of buying `product` with the `chosen` option values."""
    title_ratio = title_score(product.name, goal.name)
    type_ratio = type_score(title_ratio, product.query == goal.query, _shared_levels(product, goal))
    texts = (product.name.lower(), " ".join(product.bullets).lower(), product.description.lower())
    attribute_count = sum(has_attribute(required, product.attributes, texts) for required in goal.attributes)
    option_count = sum(any(same_option(required, value) for value in chosen) for required in goal.options)
    is_price_met = product.price <= goal.price_upper
    r = (
        type_ratio
        * (attribute_count + option_count + is_price_met)
        / (len(goal.attributes) + len(goal.options) + 1)
    )
    return Score(r, type_ratio, title_ratio, attribute_count, option_count, is_price_met)


def title_score(bought: str, required: str) -> float:
    """Return the share of the required name's nouns that the bought name has; 0.2 if it has no noun."""
    required_nouns = nouns(required)
    return len(required_nouns & nouns(bought)) / len(required_nouns) if required_nouns else 0.2


def type_score(title: float, same_query: bool, shared_levels: int) -> float:
    """Return how well the type of the bought product fits: 1, 0.5, 0.1 or 0."""
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    return 1.0 if same_query or shared_levels >= 2 or title > 0.2 else 0.5


def _shared_levels(product: Product, goal: Goal) -> int:
    return len(_levels(product.product_category) & _levels(goal.product_category))


def _levels(category: str) -> set[str]:
    return {level.strip() for level in category.split("›")}


def has_attribute(required: str, attributes: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether `required` resembles one of `attributes` or stands in one of the lower-case `texts`."""
    return any(is_similar(required, other) for other in attributes) or any(required in text for text in texts)


def same_option(required: str, value: str) -> bool:
    """Return whether the option `value` is the required one, as far as the reward can tell."""
    return is_similar(normalise_colour(required), normalise_colour(value))


@functools.lru_cache(maxsize=100_000)
def normalise_colour(value: str) -> str:
    """Return the first known colour word that `value` contains, or `value` itself."""
    return next((colour for colour in COLOURS if colour in value), value)


@functools.lru_cache(maxsize=500_000)
def is_similar(one: str, other: str) -> bool:
    """Return whether the token_set_ratio of two texts is above SIMILAR."""
    return round(fuzz.token_set_ratio(_plain(one), _plain(other))) > SIMILAR


@functools.lru_cache(maxsize=100_000)
def _plain(text: str) -> str:
    return utils.default_process(text.encode("ascii", "ignore").decode())
