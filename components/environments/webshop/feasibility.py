"""Whether a generated WebShop task can be done at all, judged by what its text says."""

from __future__ import annotations

from collections.abc import Collection

from components.environments.webshop.goals import Requirements, read_requirements
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.catalogue import Catalogue

_MIN_WORDS = 3


def feasible(
    instruction: str, catalogue: Catalogue, *, allow_free_text: bool, barred_kinds: Collection[str] = ()
) -> str:
    """Return why the task is malformed or hopeless; "" if it is neither.

    Args:
        instruction: the task's.
        catalogue: the shop's products.
        allow_free_text: accept free text, as official goals are. Free text allows only a search for its
            words, so some product must have three of them.
        barred_kinds: kinds of products that may not be asked for.
    """
    requirements = read_requirements(instruction)
    if requirements.is_exact:
        return "kind held out" if requirements.kind in barred_kinds else _price_flaw(requirements)
    if (
        allow_free_text
        and requirements.limit
        and not requirements.limit % 10
        and len(requirements.words) >= _MIN_WORDS
        and _matches_a_product(requirements, catalogue)
    ):
        return ""
    return "follows no wording"


def _matches_a_product(requirements: Requirements, catalogue: Catalogue) -> bool:
    products = catalogue.search(requirements.query)
    return bool(products) and sum(word in products[0].indexed for word in requirements.words) >= _MIN_WORDS


def _price_flaw(requirements: Requirements) -> str:
    """Return what is wrong with the price limit.

    Attributes and options were checked against the kind when the instruction was read.
    """
    cheapest = BY_NAME[requirements.kind].prices[0]
    if requirements.limit % 10 or not requirements.limit:
        return "no such price"
    return "" if requirements.limit > cheapest else "too cheap"
