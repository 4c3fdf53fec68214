"""The original's observation in its `text` mode: the visible strings of the page, joined by ` [SEP] `."""

from __future__ import annotations

from components.environments.webshop.shop.session import DONE, ITEM, RESULTS, SEARCH, Session

_SEPARATOR = " [SEP] "


def observation(session: Session) -> str:
    """Return what the original environment would show for the page that is open."""
    return _SEPARATOR.join(_strings(session))


def _strings(session: Session) -> list[str]:
    if session.page == DONE:
        r = session.score.r if session.score else 0.0
        return ["Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", str(r)]
    head = ["Instruction:", session.goal.instruction]
    if session.page == SEARCH:
        return ["WebShop", *head, "Search"]
    if session.page == RESULTS:
        return [*head, "Back to Search", *_results(session)]
    if session.page == ITEM:
        return [*head, "Back to Search", "< Prev", *_item(session)]
    return [*head, "Back to Search", "< Prev", *_sub_page(session)]


def _results(session: Session) -> list[str]:
    strings = [f"Page {session.number} (Total results: {len(session.results)})"]
    strings += ["< Prev"] if session.number > 1 else []
    strings += ["Next >"] if session.number < session.pages else []
    shown_ranks = [session.results[rank - 1] for rank in session.shown_ranks]
    return strings + [
        text for product in shown_ranks for text in (product.asin, product.name, product.price_tag)
    ]


def _item(session: Session) -> list[str]:
    product = session.product
    options = [text for name, values in product.options.items() for text in (name, *values)]
    return [
        *options,
        product.name,
        f"Price: {product.price_tag}",
        "Rating: N.A.",
        "Description",
        "Features",
        "Reviews",
        "Buy Now",
    ]


def _sub_page(session: Session) -> list[str]:
    if session.page == "description":
        return [session.product.description]
    return list(session.product.bullets) if session.page == "features" else ["No reviews found"]
