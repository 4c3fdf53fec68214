"""What a state contradicts in the states before it: results that changed by themselves, a title or price that
is another than was listed, options that nobody chose, features that were forgotten. Nothing hidden is asked,
and no rule of the shop: whether an action should have worked is not judged here.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.webshop.knowledge import Item, Knowledge, learn, page_of
from components.environments.webshop.premise import broken
from components.environments.webshop.shop.search import FOUND
from components.environments.webshop.shop.session import PAGE
from components.environments.webshop.states import Seen, read_state
from components.environments.webshop.wording import MOST_GROUPS, MOST_OPTIONS
from components.records import Trajectory


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """What in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    known, seen = learn(trajectory), read_state(next_state)
    if not seen.event:
        return "it is no state after an action"
    if seen.event == "search":
        return ""
    if seen.event == "results":
        return _of_results(known, seen) or broken(trajectory, known, seen)
    if seen.event == "failed":
        same = seen.place == known.place and seen.chosen == known.chosen
        return (
            ""
            if same
            else f"the page was {known.place} and what is chosen {', '.join(known.chosen) or 'nothing'}"
        )
    if seen.event == "bought":
        return (
            ""
            if known.on_item and (seen.rank, seen.chosen) == (known.rank, known.chosen)
            else "that is not what was looked at"
        )
    return _of_item(known, seen) or broken(trajectory, known, seen)


def _of_results(known: Knowledge, seen: Seen) -> str:
    ranks = [rank for rank, _, _ in seen.items]
    if (
        ranks != list(range((seen.number - 1) * PAGE + 1, (seen.number - 1) * PAGE + 1 + len(ranks)))
        or len(ranks) > PAGE
    ):
        return "its results are numbered wrongly"
    if seen.pages > FOUND // PAGE:
        return f"a search finds at most {FOUND} products"
    if (
        seen.number > seen.pages
        or (seen.number < seen.pages and len(ranks) < PAGE)
        or (not ranks and seen.pages > 1)
    ):
        return "it has another number of results than of pages"
    if seen.number > 1 and (seen.query, seen.number - 1) not in known.listings:
        return "no page came before it"
    if known.lengths.get(seen.query, seen.pages) != seen.pages:
        return f"the search had {known.lengths[seen.query]} pages"
    if (seen.query, seen.number) in known.listings:
        before = [known.items[seen.query, rank] for rank in known.listings[seen.query, seen.number]]
        if [(item.rank, item.title, item.price) for item in before] != list(seen.items):
            return "the results changed by themselves"
    return ""


def _of_item(known: Knowledge, seen: Seen) -> str:
    item = known.items.get((known.query, seen.rank))
    if item is None or page_of(seen.rank) != known.number:
        return f"the results show no item {seen.rank}"
    if (seen.title, seen.price) != (item.title, item.price):
        return f"item {seen.rank} was {item.title} for {item.price}"
    if known.rank and seen.rank != known.rank:
        return f"the page was of item {known.rank}"
    return _of_details(known, seen, item) or _of_choice(known, seen)


def _of_details(known: Knowledge, seen: Seen, item: Item) -> str:
    if item.groups is not None and seen.groups != item.groups:
        return "its options changed by themselves"
    if item.features is not None and seen.features != item.features:
        return "its features changed by themselves"
    if item.features is None and seen.features is not None and seen.event != "features":
        return "its features were not read yet"
    new_description = seen.event == "description" and item.description and seen.text != item.description
    return "its description changed by itself" if new_description else ""


def _of_choice(known: Knowledge, seen: Seen) -> str:
    """What is chosen are options, of one group more or another at a time, and none on arrival or on a
    sub-page.
    """
    if not _whole(seen):
        return ""
    before, after = (_by_group(seen, chosen) for chosen in (known.chosen if known.rank else (), seen.chosen))
    if len(after) < len(seen.chosen) or "" in after:
        return "what is chosen is no option"
    moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if seen.event != "item" or not known.on_item:
        return "what is chosen changed by itself" if moved else ""
    return "more than one option was chosen at once" if len(moved) > 1 or before.keys() - after.keys() else ""


def _by_group(seen: Seen, chosen: Sequence[str]) -> dict[str, str]:
    """Group -> chosen value; of a value that several groups have, the last one that has none yet."""
    found: dict[str, str] = {}
    for value in reversed(chosen):
        found[
            next(
                (name for name, values in reversed(seen.groups) if value in values and name not in found), ""
            )
        ] = value
    return found


def _whole(seen: Seen) -> bool:
    """True if no list of options was cut off, so that all that can be chosen is on it."""
    return len(seen.groups) < MOST_GROUPS and all(len(values) < MOST_OPTIONS for _, values in seen.groups)
