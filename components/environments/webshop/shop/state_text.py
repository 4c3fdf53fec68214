"""Write the state of a page of the shop: the text that the agent sees (grammar in `states.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.webshop.shop.products import Product
from components.environments.webshop.shop.session import DONE, ITEM, RESULTS, SEARCH, Session
from components.environments.webshop.states import INITIAL_STATE, NO_WORDS
from components.environments.webshop.wording import (
    MAX_DESCRIPTION_WORDS,
    MAX_FEATURES,
    MAX_GROUPS,
    MAX_OPTIONS,
    option_names,
    plain,
    short_feature,
    short_group,
    short_price,
    short_title,
)


def describe_page(session: Session) -> str:
    """Return the state of the page that is open."""
    if session.page == SEARCH:
        return INITIAL_STATE
    if session.page == RESULTS:
        results = ", ".join(
            f"item {rank} {_describe_product(session.results[rank - 1])}" for rank in session.shown_ranks
        )
        return (
            f"results {session.number} of {session.pages} for {session.query or NO_WORDS}: "
            f"{results or 'nothing'}."
        )
    if session.page == DONE:
        return f"bought item {session.rank}. {_describe_choice(session)}"
    product = _describe_product(session.product)
    return f"{_place(session)}: {product}. {_details(session)}{_describe_choice(session)}"


def describe_failure(session: Session) -> str:
    """Return the state after an action that is impossible on the page that is open."""
    chosen = f" {_describe_choice(session)}" if session.rank else ""
    return f"nothing happens on {_place(session)}.{chosen}"


def _place(session: Session) -> str:
    if session.page == SEARCH:
        return "search page"
    if session.page == RESULTS:
        return f"results {session.number}"
    return (
        f"item {session.rank}" if session.page in (ITEM, DONE) else f"{session.page} of item {session.rank}"
    )


def _describe_product(product: Product) -> str:
    return f"{short_title(product.name)} for {short_price(product)}"


def _details(session: Session) -> str:
    """Return options, features if they were read in this search, and what the sub-page shows."""
    product = session.product
    parts = [
        f"{name}: {', '.join(_shown_values(session, values))}"
        for name, values in _shown_groups(product).items()
    ]
    if (session.query, session.rank, "features") in session.opened_sub_pages:
        parts.append(
            f"features: {', '.join(map(short_feature, product.bullets[:MAX_FEATURES])) or 'nothing'}"
        )
    if session.page in ("description", "reviews"):
        shown = (
            plain(product.description, MAX_DESCRIPTION_WORDS)
            if session.page == "description" and product.description
            else "nothing"
        )
        parts.append(f"{session.page}: {shown}")
    return "".join(f"{part}. " for part in parts)


def _shown_groups(product: Product) -> dict[str, Sequence[str]]:
    """Return short name -> values of the groups that are shown.

    Of two groups with one short name the second has a number behind it.
    """
    groups: dict[str, Sequence[str]] = {}
    for number, (name, values) in enumerate([*product.options.items()][:MAX_GROUPS], 1):
        short = short_group(name)
        groups[f"{short} {number}" if short in groups else short] = values
    return groups


def _shown_values(session: Session, values: Sequence[str]) -> list[str]:
    """Return the values of a group, at most MAX_OPTIONS.

    Of a long group those come first whose words all stand in the instruction.
    """
    names = list(option_names(tuple(values)).values())
    if len(names) <= MAX_OPTIONS:
        return names
    words = set(session.goal.instruction.lower().replace(",", " ").replace(".", " ").split())
    return sorted(names, key=lambda value: not set(value.split()) <= words)[:MAX_OPTIONS]


def _describe_choice(session: Session) -> str:
    return f"chosen: {', '.join(_chosen_values(session)) or 'nothing'}."


def _chosen_values(session: Session) -> list[str]:
    """Return the chosen values in the order of their groups."""
    return [
        option_names(values)[session.chosen[name]]
        for name, values in session.product.options.items()
        if name in session.chosen
    ]
