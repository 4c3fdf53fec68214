"""A shop: its products, its search engine, and the goals of each split. One is kept for each setting, since
several worlds share it.

The official goals are shuffled with seed 233 and cut as the benchmark cuts them: the first 500 are the test
split, from number 1500 on they are the training split, and the 1000 between, the benchmark's evaluation
split, are the validation split. Of a generated catalogue test and validation split have the goals of the
kinds that no training goal asks for, and of every eighth product; which of these are recorded as test goals
decides between the two (`components/environments/validation_split.py`).
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
from components.environments.webshop.shop.assortment import UNSEEN
from components.environments.webshop.shop.products import Goal, Product, human_goals, read_product
from components.environments.webshop.shop.search import SearchEngine
from components.records import TEST, TRAIN, VALIDATION

GENERATED, OFFICIAL = "generated", "official"
_SHUFFLE_SEED, _TEST_END, _TRAIN_BEGIN = 233, 500, 1500
_HELD_OUT = 8
"""Of a generated catalogue every so many-th product has test goals only."""


class Catalogue:
    """Products and goals. `splits` maps a split to its goals in the benchmark's order; `unpriced` products
    were left out.
    """

    def __init__(self, products: Sequence[Product], splits: dict[str, list[Goal]], unpriced: int = 0) -> None:
        self.products = list(products)
        self.unpriced = unpriced
        self.splits = splits
        self._engine = SearchEngine([product.indexed for product in products])

    def search(self, query: str) -> list[Product]:
        """At most 50 products, the best match first."""
        return [self.products[place] for place in self._engine(query)]

    @functools.cached_property
    def goals(self) -> dict[str, Goal]:
        """All goals by key."""
        return {goal.key: goal for goals in self.splits.values() for goal in goals}

    @functools.cached_property
    def trained(self) -> frozenset[str]:
        """The queries that training goals come from: what a shopper was asked for in training."""
        return frozenset(goal.query for goal in self.splits[TRAIN])


def catalogue_of(config: EnvironmentConfig) -> Catalogue:
    """The shop that the config asks for. Raises EnvironmentFailure if its files cannot be read."""
    if config.webshop.source == OFFICIAL:
        return _official(official.folder(), config.webshop.goals)
    return _generated(config.webshop.products, config.seed)


@functools.lru_cache(maxsize=4)
def _generated(products: int, seed: int) -> Catalogue:
    sold, attributes, written = generated.records(products, seed)
    stock = [read_product(record, attributes, "the generated catalogue") for record in sold]
    goals = [
        goal
        for product in stock
        for goal in human_goals(product, written[product.asin], "the generated catalogue")
    ]
    random.Random(_SHUFFLE_SEED).shuffle(goals)
    held = {True: list[Goal](), False: list[Goal]()}
    for goal in goals:
        held[goal.query in UNSEEN or zlib.crc32(goal.asin.encode()) % _HELD_OUT == 0].append(goal)
    return Catalogue(stock, {TRAIN: held[False], VALIDATION: held[True], TEST: held[True]})


@functools.lru_cache(maxsize=2)
def _official(root: Path | None, chosen: Literal["human", "synthetic"]) -> Catalogue:
    products, goals, unpriced = official.read(root, chosen)
    random.Random(_SHUFFLE_SEED).shuffle(goals)
    splits = {TEST: goals[:_TEST_END], VALIDATION: goals[_TEST_END:_TRAIN_BEGIN], TRAIN: goals[_TRAIN_BEGIN:]}
    return Catalogue(products, splits, unpriced)
