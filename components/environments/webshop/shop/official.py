"""Read WebShop's own product files from the folder that $WEBSHOP_DATA names.

`items_shuffle.json` (or `items_shuffle_1000.json`), the `items_ins_v2` file of the same size, and
`items_human_ins.json` for the goals that people wrote.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from components.config.worlds.webshop_config import VARIABLE
from components.environments.webshop.shop.prices import read_prices
from components.environments.webshop.shop.products import (
    Goal,
    Product,
    human_goals,
    read_product,
    synthetic_goals,
)
from components.errors import EnvironmentFailure

_SIZES = ("", "_1000")
_MAX_ASIN_LENGTH = 10


def official_folder() -> Path | None:
    """Return the folder that the environment variable names; None if it is not set."""
    path = os.environ.get(VARIABLE, "")
    return Path(path) if path else None


def read_catalogue_files(
    root: Path | None, goals: Literal["human", "synthetic"]
) -> tuple[list[Product], list[Goal], int]:
    """Return products and goals of the files in `root`, and how many products were left out.

    Products without a price in dollars are left out.

    Raises:
        EnvironmentFailure: the variable names no folder, a file is missing or not JSON, or a product or goal
            lacks a field.
    """
    if root is None or not root.is_dir():
        raise EnvironmentFailure(
            f"{VARIABLE} is {str(root or '')!r}.",
            "Expected the folder of WebShop's product files.",
            "Point it there (WebShop's setup.sh fetches them), or set "
            "environment.webshop.catalogue=generated.",
        )
    size = next((size for size in _SIZES if (root / f"items_shuffle{size}.json").is_file()), _SIZES[0])
    product_file = root / f"items_shuffle{size}.json"
    attribute_file = root / f"items_ins_v2{size}.json"
    attributes = _load(attribute_file, dict)
    products, unpriced = _read_products(_load(product_file, list), attributes, str(product_file))
    if goals == "synthetic":
        synthetic = [
            goal
            for product in products
            for goal in synthetic_goals(product, attributes.get(product.asin), str(attribute_file))
        ]
        return products, synthetic, unpriced
    goal_file = root / "items_human_ins.json"
    entries = _load(goal_file, dict)
    human = [
        goal
        for product in products
        for goal in human_goals(product, entries.get(product.asin, ()), str(goal_file))
    ]
    return products, human, unpriced


def _read_products(records: list[Any], attributes: dict[str, Any], source: str) -> tuple[list[Product], int]:
    """Return the products in the order of the file, and how many have no price and are left out.

    As in the original, the first of equal asins counts, and records without an asin do not count. The
    original gives a product without a price $100. Here it is left out, since a shopper could compare it with
    no limit.

    Raises:
        EnvironmentFailure: no product of the file has a price.
    """
    products: dict[str, Product] = {}
    unpriced: set[str] = set()
    for record in records:
        asin = str(record.get("asin", "")) if isinstance(record, dict) else ""
        if asin == "nan" or asin in products or asin in unpriced or len(asin) > _MAX_ASIN_LENGTH:
            continue
        if isinstance(record, dict) and not read_prices(record.get("pricing")):
            unpriced.add(asin)
        else:
            products[asin] = read_product(record, attributes, source)
    if unpriced and not products:
        raise EnvironmentFailure(
            f"{source}: none of its {len(unpriced)} products has a price in dollars.",
            "Expected a field pricing such as '$12.99'.",
            "Correct the file, or fetch it again.",
        )
    return list(products.values()), len(unpriced)


def _load(path: Path, kind: type) -> Any:
    if not path.is_file():
        raise EnvironmentFailure(
            f"There is no {path}.",
            f"Expected WebShop's product files in ${VARIABLE}.",
            "Fetch it with WebShop's setup.sh.",
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EnvironmentFailure(
            f"{path} is no JSON: {error}.", "Expected WebShop's product files.", "Fetch it again."
        ) from None
    if not isinstance(values, kind):
        raise EnvironmentFailure(
            f"{path} holds a {type(values).__name__}.", f"Expected a {kind.__name__}.", "Fetch it again."
        )
    return values
