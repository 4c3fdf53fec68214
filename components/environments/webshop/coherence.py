"""Contradictions between a WebShop state and the states before it.

Results that changed by themselves, a title or price that differs from the listing, options that nobody chose,
and features that were forgotten. Nothing hidden is asked, and no rule of the shop: whether an action should
have worked is not judged here.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.webshop.knowledge import Item, Knowledge, collect_knowledge, results_page_number
from components.environments.webshop.premise import premise_conflict
from components.environments.webshop.shop.search import MAX_RESULTS
from components.environments.webshop.shop.session import RESULTS_PER_PAGE
from components.environments.webshop.states import ParsedState, read_state
from components.environments.webshop.wording import MAX_GROUPS, MAX_OPTIONS
from components.records import Trajectory


def contradiction(trajectory: Trajectory, next_state: str) -> str:
    """Return what in `next_state` cannot be true if all states of `trajectory` are; "" if nothing."""
    knowledge = collect_knowledge(trajectory)
    page = read_state(next_state)
    if not page.event:
        return "it is no state after an action"
    if page.event == "search":
        return ""
    if page.event == "results":
        return _check_results(knowledge, page) or premise_conflict(trajectory, knowledge, page)
    if page.event == "failed":
        is_same = page.place == knowledge.place and page.chosen == knowledge.chosen
        chosen = ", ".join(knowledge.chosen) or "nothing"
        return "" if is_same else f"the page was {knowledge.place} and what is chosen {chosen}"
    if page.event == "bought":
        return (
            ""
            if knowledge.on_item and (page.rank, page.chosen) == (knowledge.rank, knowledge.chosen)
            else "that is not what was looked at"
        )
    return _check_item(knowledge, page) or premise_conflict(trajectory, knowledge, page)


def _check_results(knowledge: Knowledge, page: ParsedState) -> str:
    ranks = [rank for rank, _, _ in page.items]
    if (
        ranks
        != list(
            range(
                (page.number - 1) * RESULTS_PER_PAGE + 1,
                (page.number - 1) * RESULTS_PER_PAGE + 1 + len(ranks),
            )
        )
        or len(ranks) > RESULTS_PER_PAGE
    ):
        return "its results are numbered wrongly"
    if page.pages > MAX_RESULTS // RESULTS_PER_PAGE:
        return f"a search finds at most {MAX_RESULTS} products"
    if (
        page.number > page.pages
        or (page.number < page.pages and len(ranks) < RESULTS_PER_PAGE)
        or (not ranks and page.pages > 1)
    ):
        return "it has another number of results than of pages"
    if page.number > 1 and (page.query, page.number - 1) not in knowledge.listed_ranks:
        return "no page came before it"
    if knowledge.page_counts.get(page.query, page.pages) != page.pages:
        return f"the search had {knowledge.page_counts[page.query]} pages"
    if (page.query, page.number) in knowledge.listed_ranks:
        before = [
            knowledge.items[page.query, rank] for rank in knowledge.listed_ranks[page.query, page.number]
        ]
        if [(item.rank, item.title, item.price) for item in before] != list(page.items):
            return "the results changed by themselves"
    return ""


def _check_item(knowledge: Knowledge, page: ParsedState) -> str:
    item = knowledge.items.get((knowledge.query, page.rank))
    if item is None or results_page_number(page.rank) != knowledge.number:
        return f"the results show no item {page.rank}"
    if (page.title, page.price) != (item.title, item.price):
        return f"item {page.rank} was {item.title} for {item.price}"
    if knowledge.rank and page.rank != knowledge.rank:
        return f"the page was of item {knowledge.rank}"
    return _check_details(knowledge, page, item) or _check_choice(knowledge, page)


def _check_details(knowledge: Knowledge, page: ParsedState, item: Item) -> str:
    if item.groups is not None and page.groups != item.groups:
        return "its options changed by themselves"
    if item.features is not None and page.features != item.features:
        return "its features changed by themselves"
    if item.features is None and page.features is not None and page.event != "features":
        return "its features were not read yet"
    new_description = page.event == "description" and item.description and page.text != item.description
    return "its description changed by itself" if new_description else ""


def _check_choice(knowledge: Knowledge, page: ParsedState) -> str:
    """Check that what is chosen are options, and that at most one group changes at a time.

    On arrival at an item nothing is chosen, and a sub-page changes no choice.
    """
    if not _lists_all_options(page):
        return ""
    before, after = (
        _choices_by_group(page, chosen)
        for chosen in (knowledge.chosen if knowledge.rank else (), page.chosen)
    )
    if len(after) < len(page.chosen) or "" in after:
        return "what is chosen is no option"
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if page.event != "item" or not knowledge.on_item:
        return "what is chosen changed by itself" if changed else ""
    return (
        "more than one option was chosen at once" if len(changed) > 1 or before.keys() - after.keys() else ""
    )


def _choices_by_group(page: ParsedState, chosen: Sequence[str]) -> dict[str, str]:
    """Return group -> chosen value.

    A value that several groups have belongs to the last of them that has none yet.
    """
    choices: dict[str, str] = {}
    for value in reversed(chosen):
        choices[
            next(
                (name for name, values in reversed(page.groups) if value in values and name not in choices),
                "",
            )
        ] = value
    return choices


def _lists_all_options(page: ParsedState) -> bool:
    """Return whether no list of options was cut off, so that all options are listed."""
    return len(page.groups) < MAX_GROUPS and all(len(values) < MAX_OPTIONS for _, values in page.groups)
