"""A shop's catalogue: its products, its search engine, and the goals of each split.

One catalogue is cached per setting, since several worlds share it.

The official goals are shuffled with seed 233 and cut as the benchmark cuts them. The first 500 are the test
split. From number 1500 on they are the training split. The 1000 between, the benchmark's evaluation split,
are the validation split.

In a generated catalogue the goals of held-out kinds and of every eighth product are kept for validation and
test. Which of them become test goals is decided by what is recorded
(`components/environments/validation_split.py`).
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.webshop.shop import generated, official
from components.environments.webshop.shop.assortment import HELD_OUT_KINDS
from components.environments.webshop.shop.products import Goal, Product, human_goals, read_product
from components.environments.webshop.shop.search import SearchEngine
from components.records import TEST, TRAIN, VALIDATION

GENERATED = "generated"
OFFICIAL = "official"
_SHUFFLE_SEED = 233
_TEST_END = 500
_TRAIN_BEGIN = 1500
_HELD_OUT_EVERY = 8
"""Every eighth product of a generated catalogue has no training goals."""


class Catalogue:
    """Products and goals.

    `splits` maps a split to its goals in the benchmark's order. `unpriced_count` products were left out,
    since they have no price in dollars.
    """

    def __init__(
        self, products: Sequence[Product], splits: dict[str, list[Goal]], unpriced_count: int = 0
    ) -> None:
        self.products = list(products)
        self.unpriced_count = unpriced_count
        self.splits = splits
        self._engine = SearchEngine([product.indexed for product in products])

    def search(self, query: str) -> list[Product]:
        """Return at most 50 products, the best match first."""
        return [self.products[place] for place in self._engine(query)]

    @functools.cached_property
    def goals(self) -> dict[str, Goal]:
        """All goals by key."""
        return {goal.key: goal for goals in self.splits.values() for goal in goals}

    @functools.cached_property
    def trained_queries(self) -> frozenset[str]:
        """The queries that training goals come from: the kinds of products asked for in training."""
        return frozenset(goal.query for goal in self.splits[TRAIN])


def load_catalogue(config: EnvironmentConfig) -> Catalogue:
    """Return the shop that the config asks for.

    Raises:
        EnvironmentFailure: its files cannot be read.
    """
    if config.webshop.source == OFFICIAL:
        return _official_catalogue(official.official_folder(), config.webshop.goals)
    return _generated_catalogue(config.webshop.products, config.seed)


@functools.lru_cache(maxsize=4)
def _generated_catalogue(product_count: int, seed: int) -> Catalogue:
    records, attributes, goal_entries = generated.generate_records(product_count, seed)
    products = [read_product(record, attributes, "the generated catalogue") for record in records]
    goals = [
        goal
        for product in products
        for goal in human_goals(product, goal_entries[product.asin], "the generated catalogue")
    ]
    random.Random(_SHUFFLE_SEED).shuffle(goals)
    by_held_out = {True: list[Goal](), False: list[Goal]()}
    for goal in goals:
        by_held_out[
            goal.query in HELD_OUT_KINDS or zlib.crc32(goal.asin.encode()) % _HELD_OUT_EVERY == 0
        ].append(goal)
    return Catalogue(
        products,
        {TRAIN: by_held_out[False], VALIDATION: by_held_out[True], TEST: by_held_out[True]},
    )


@functools.lru_cache(maxsize=2)
def _official_catalogue(root: Path | None, goal_source: Literal["human", "synthetic"]) -> Catalogue:
    products, goals, unpriced_count = official.read_catalogue_files(root, goal_source)
    random.Random(_SHUFFLE_SEED).shuffle(goals)
    splits = {TEST: goals[:_TEST_END], VALIDATION: goals[_TEST_END:_TRAIN_BEGIN], TRAIN: goals[_TRAIN_BEGIN:]}
    return Catalogue(products, splits, unpriced_count)
