"""WebShop's own product files, read from the folder that $WEBSHOP_DATA names.

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
_LONGEST_ASIN = 10


def folder() -> Path | None:
    """The folder that the environment variable names; None if it is not set."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def read(root: Path | None, goals: Literal["human", "synthetic"]) -> tuple[list[Product], list[Goal], int]:
    """Products and goals of the files in `root`, and how many products were left out because they tell no
    price in dollars.

    Raises:
        EnvironmentFailure: the variable names no folder, a file is not there or no JSON, or a product or goal
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
    sold, said = root / f"items_shuffle{size}.json", root / f"items_ins_v2{size}.json"
    attributes = _load(said, dict)
    products, unpriced = _products(_load(sold, list), attributes, str(sold))
    if goals == "synthetic":
        made = [
            goal
            for product in products
            for goal in synthetic_goals(product, attributes.get(product.asin), str(said))
        ]
        return products, made, unpriced
    written = root / "items_human_ins.json"
    entries = _load(written, dict)
    told = [
        goal
        for product in products
        for goal in human_goals(product, entries.get(product.asin, ()), str(written))
    ]
    return products, told, unpriced


def _products(records: list[Any], attributes: dict[str, Any], source: str) -> tuple[list[Product], int]:
    """The products in the order of the file, and how many tell no price and are left out.

    Of equal asins the first counts, and none that is no asin, as in the original. A product without a price,
    which costs $100 there, has no limit that a shopper could hold it against.

    Raises:
        EnvironmentFailure: no product of the file tells a price.
    """
    products: dict[str, Product] = {}
    unpriced: set[str] = set()
    for record in records:
        asin = str(record.get("asin", "")) if isinstance(record, dict) else ""
        if asin == "nan" or asin in products or asin in unpriced or len(asin) > _LONGEST_ASIN:
            continue
        if isinstance(record, dict) and not read_prices(record.get("pricing")):
            unpriced.add(asin)
        else:
            products[asin] = read_product(record, attributes, source)
    if unpriced and not products:
        found = f"{source}: none of its {len(unpriced)} products tells a price in dollars."
        raise EnvironmentFailure(
            found, "Expected a field pricing such as '$12.99'.", "Mend the file, or fetch it again."
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
