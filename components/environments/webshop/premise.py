"""The hidden fact that decides a WebShop task: which result of the first fitting search is the one to buy.

A premise is the rank of a result, such as `item 3`. On the first search that names the required kind, that
result is a product that fulfils all requirements. For a real episode the premise is read afterwards, from
what the states have shown. A dream decides it before its first step and keeps to it. Otherwise it would
imagine ten results independently, and the likeliest result never fits.
"""

from __future__ import annotations

import re

from components.environments.webshop.goals import Requirements, read_requirements
from components.environments.webshop.knowledge import (
    NO,
    YES,
    Comparison,
    Item,
    Knowledge,
    assess_item,
    collect_knowledge,
    compare_with_requirements,
    results_page_number,
)
from components.environments.webshop.states import ParsedState, read_state
from components.records import Task, Trajectory

_PREMISE = re.compile(r"^item (\d{1,2})$")


def premise(trajectory: Trajectory) -> str:
    """Return the first result of the first fitting search that turned out to fit; "" where none did.

    Only the first page of results counts.
    """
    requirements = read_requirements(trajectory.task.instruction)
    query = first_matching_query(trajectory)
    if not query:
        return ""
    knowledge = collect_knowledge(trajectory)
    ranks = knowledge.listed_ranks.get((query, 1), ())
    fitting = [rank for rank in ranks if assess_item(knowledge.items[query, rank], requirements) == YES]
    return f"item {fitting[0]}" if fitting else ""


def objection(task: Task, text: str) -> str:
    """Return why `text` cannot be the premise of `task`, judged by the task's text; "" if it can."""
    if not read_requirements(task.instruction).is_exact:
        return "malformed"
    rank = parse_premise_rank(text)
    return "" if rank and results_page_number(rank) == 1 else "malformed"


def parse_premise_rank(text: str) -> int:
    """Return the rank that a premise names; 0 if it names none."""
    match = _PREMISE.match(text.strip())
    return int(match[1]) if match else 0


def first_matching_query(trajectory: Trajectory) -> str:
    """Return the first search of the trajectory that names the required kind; "" if there was none."""
    requirements = read_requirements(trajectory.task.instruction)
    if not requirements.is_exact:
        return ""
    pages = (read_state(state) for state in trajectory.states)
    return next(
        (page.query for page in pages if page.event == "results" and names_kind(page.query, requirements)), ""
    )


def names_kind(query: str, requirements: Requirements) -> bool:
    """Return whether a search names all words of the required kind."""
    return set(requirements.kind.split()) <= set(query.split())


def premise_rank(trajectory: Trajectory, query: str) -> int:
    """Return the rank that the trajectory's premise names among the results of `query`; 0 if none.

    `query` may be the search that is about to be made.
    """
    rank = parse_premise_rank(trajectory.premise)
    if not rank:
        return 0
    requirements = read_requirements(trajectory.task.instruction)
    first = first_matching_query(trajectory) or (
        query if requirements.is_exact and names_kind(query, requirements) else ""
    )
    return rank if query == first else 0


def describe_premise(trajectory: Trajectory, query: str, page: ParsedState) -> str:
    """Describe, for the reasoning, what the dream has decided about the next page.

    Which result fits, and what it therefore has.
    """
    rank = premise_rank(trajectory, query)
    if not rank or (page.event == "results" and page.number > 1):
        return ""
    if page.event == "results":
        return f", {trajectory.premise} fits"
    knowledge = collect_knowledge(trajectory)
    requirements = read_requirements(trajectory.task.instruction)
    comparison = Comparison(trajectory.premise, f"item {page.rank}", YES if page.rank == rank else NO)
    if knowledge.rank == page.rank and page.event != "features":
        return ""
    required = requirements.attributes if page.event == "features" else requirements.options
    return f", {comparison.words}" + (
        f", with {' '.join(required)}" if page.rank == rank and required else ""
    )


def premise_conflict(trajectory: Trajectory, knowledge: Knowledge, page: ParsedState) -> str:
    """Return how the page departs from what the dream has decided; "" if it does not."""
    query = page.query if page.event == "results" else knowledge.query
    rank = premise_rank(trajectory, query)
    requirements = read_requirements(trajectory.task.instruction)
    if not rank or (page.event == "results" and page.number > 1):
        return ""
    if page.event == "results":
        items = {number: Item(number, title, price) for number, title, price in page.items}
        return (
            ""
            if rank in items and assess_item(items[rank], requirements) != NO
            else f"item {rank} should fit"
        )
    if not page.title or page.rank != rank:
        return ""
    item = Item(rank, page.title, page.price, page.groups, page.features)
    return (
        f"item {rank} should fit"
        if NO in [comparison.answer for comparison in compare_with_requirements(item, requirements)]
        else ""
    )
