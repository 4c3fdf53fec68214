"""Whether a generated task can be done at all, judged by what its text says."""

from __future__ import annotations

from collections.abc import Collection

from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.shop.assortment import BY_NAME
from components.environments.webshop.shop.catalogue import Catalogue

_LEAST_WORDS = 3


def feasible(instruction: str, catalogue: Catalogue, *, free: bool, barred: Collection[str] = ()) -> str:
    """Why the task is malformed or hopeless; "" if it is neither.

    `free` lets free text pass, as official goals are. In it one can only look for words: some product must be
    called by three of them. `barred` are the kinds that may not be asked for.
    """
    wants = read_wants(instruction)
    if wants.exact:
        return "kind held out" if wants.kind in barred else _flaw(wants)
    if (
        free
        and wants.limit
        and not wants.limit % 10
        and len(wants.words) >= _LEAST_WORDS
        and _known_words(wants, catalogue)
    ):
        return ""
    return "follows no wording"


def _known_words(wants: Wants, catalogue: Catalogue) -> bool:
    found = catalogue.search(wants.query)
    return bool(found) and sum(word in found[0].indexed for word in wants.words) >= _LEAST_WORDS


def _flaw(wants: Wants) -> str:
    """Attributes and options were found to belong to the kind when the instruction was read; what is left is
    the price.
    """
    cheapest = BY_NAME[wants.kind].prices[0]
    if wants.limit % 10 or not wants.limit:
        return "no such price"
    return "" if wants.limit > cheapest else "too cheap"
