"""What of the hidden shop decides a task: which result of the first fitting search is the one to buy.

A premise is the rank of a result, such as `item 3`: the first search that names the wanted kind shows there a
product with everything that is wanted. Of a real episode it is read afterwards, from what the states have
shown; a dream decides it before its first step and keeps to it, in place of imagining ten results by
themselves, of which the likeliest never fits.
"""

from __future__ import annotations

import re

from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.knowledge import (
    NO,
    YES,
    Check,
    Item,
    Knowledge,
    judge,
    learn,
    page_of,
    verdict,
)
from components.environments.webshop.states import Seen, read_state
from components.records import Task, Trajectory

_PREMISE = re.compile(r"^item (\d{1,2})$")


def premise(trajectory: Trajectory) -> str:
    """The rank of the first result on the first page of the first fitting search that turned out to fit; ""
    where none did.
    """
    wants, query = read_wants(trajectory.task.instruction), first_query(trajectory)
    if not query:
        return ""
    known = learn(trajectory)
    listed = known.listings.get((query, 1), ())
    fitting = [rank for rank in listed if verdict(known.items[query, rank], wants) == YES]
    return f"item {fitting[0]}" if fitting else ""


def objection(task: Task, text: str) -> str:
    """Why `text` cannot be the premise of `task`, judged by the task's text; "" if it can."""
    if not read_wants(task.instruction).exact:
        return "malformed"
    rank = rank_of(text)
    return "" if rank and page_of(rank) == 1 else "malformed"


def rank_of(text: str) -> int:
    """The rank that a premise names; 0 if it names none."""
    found = _PREMISE.match(text.strip())
    return int(found[1]) if found else 0


def first_query(trajectory: Trajectory) -> str:
    """The first search of the trajectory that names the wanted kind; "" if there was none."""
    wants = read_wants(trajectory.task.instruction)
    if not wants.exact:
        return ""
    seen = (read_state(state) for state in trajectory.states)
    return next(
        (page.query for page in seen if page.event == "results" and names_kind(page.query, wants)), ""
    )


def names_kind(query: str, wants: Wants) -> bool:
    """True if a search names all words of the wanted kind."""
    return set(wants.kind.split()) <= set(query.split())


def promised(trajectory: Trajectory, query: str) -> int:
    """The rank that the trajectory's premise promises among the results of `query`, which may be the search
    at hand; 0 if none.
    """
    rank = rank_of(trajectory.premise)
    if not rank:
        return 0
    wants = read_wants(trajectory.task.instruction)
    first = first_query(trajectory) or (query if wants.exact and names_kind(query, wants) else "")
    return rank if query == first else 0


def decided(trajectory: Trajectory, query: str, seen: Seen) -> str:
    """What the dream has decided about the page that comes, for the reasoning: which result fits, and what it
    therefore has.
    """
    rank = promised(trajectory, query)
    if not rank or (seen.event == "results" and seen.number > 1):
        return ""
    if seen.event == "results":
        return f", {trajectory.premise} fits"
    known, wants = learn(trajectory), read_wants(trajectory.task.instruction)
    asked = Check(trajectory.premise, f"item {seen.rank}", YES if seen.rank == rank else NO)
    if known.rank == seen.rank and seen.event != "features":
        return ""
    wanted = wants.attributes if seen.event == "features" else wants.options
    return f", {asked.words}" + (f", with {' '.join(wanted)}" if seen.rank == rank and wanted else "")


def broken(trajectory: Trajectory, known: Knowledge, seen: Seen) -> str:
    """How `seen` departs from what the dream has decided; "" if it does not."""
    query = seen.query if seen.event == "results" else known.query
    rank, wants = promised(trajectory, query), read_wants(trajectory.task.instruction)
    if not rank or (seen.event == "results" and seen.number > 1):
        return ""
    if seen.event == "results":
        lines = {number: Item(number, title, price) for number, title, price in seen.items}
        return "" if rank in lines and verdict(lines[rank], wants) != NO else f"item {rank} should fit"
    if not seen.title or seen.rank != rank:
        return ""
    item = Item(rank, seen.title, seen.price, seen.groups, seen.features)
    return f"item {rank} should fit" if NO in [check.answer for check in judge(item, wants)] else ""
