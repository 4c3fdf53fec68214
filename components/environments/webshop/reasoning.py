"""The programmatic teacher: explain each step (R* of Eq. 5) by what the shopper could know.

First comes the page, then what the action needs and whether it works, then whether the next page is new or
known. At a purchase it compares what is bought with what is required, up to the first difference, and
concludes. All comparisons have the form of the backbone's exercise (`components/language/exercises`).
Examples:

    on search page. works, new
    on results 1. item 1 item 2 item 3 want item 2: yes. works, new merrow oxford shirt for 31
    on results 1. item 1 item 2 item 3 want item 14: no. fails
    on results 5. results 5 of 5. fails
    on item 2. navy red small large want navy: yes. works, now navy
    on features of item 2. no choice here. fails
    on item 2. works, new
    on features of item 2. works, back to item 2 with navy
    on item 2. works. merrow oxford shirt want oxford shirt: yes, for 31 want lower than 40: yes, navy want
        navy: yes, cotton slim want slim: yes. done
    on item 2. works. merrow oxford shirt want oxford shirt: yes, for 31 want lower than 40: yes, navy want
        red: no. not done
"""

from __future__ import annotations

from components.environments.webshop.goals import Requirements, read_requirements
from components.environments.webshop.knowledge import (
    NO,
    UNSEEN,
    YES,
    Comparison,
    Item,
    Knowledge,
    collect_knowledge,
    compare_with_requirements,
)
from components.environments.webshop.premise import describe_premise
from components.environments.webshop.shop.reward import same_option
from components.environments.webshop.shop.session import (
    BACK_TO_SEARCH,
    BUY,
    NEXT,
    PREV,
    SUB_PAGES,
    parse_action,
)
from components.environments.webshop.states import ParsedState, read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """Return the reasoning for one transition. Its conclusion is always the shop's own outcome."""
    knowledge = collect_knowledge(trajectory)
    page = read_state(next_state)
    verb, argument = parse_action(action)
    need = (
        "no such action"
        if not verb
        else ""
        if verb == "search"
        else _describe_need(knowledge, _clicked_name(knowledge, page, argument))
    )
    head = f"on {knowledge.place or 'search page'}. "
    if page.event == "failed":
        return f"{head}{need or 'no effect'}. fails"
    if page.event == "bought":
        return f"{head}works. {describe_purchase(trajectory, knowledge, reward)}"
    need_text = f"{need}. " if need else ""
    return f"{head}{need_text}works, {_describe_outcome(trajectory, knowledge, page)}"


def _clicked_name(knowledge: Knowledge, page: ParsedState, name: str) -> str:
    """Return what a click took, as the states name it.

    `item 3` for its asin, `3 4 inch` for an option's own words.
    """
    if page.event != "item":
        return name
    if knowledge.place.startswith("results"):
        return f"item {page.rank}"
    added = [value for value in page.chosen if value not in knowledge.chosen]
    return added[0] if knowledge.item and name not in knowledge.item.values and len(added) == 1 else name


def _describe_need(knowledge: Knowledge, name: str) -> str:
    """Describe what a click needs of the page, compared with what the page has.

    "" where the page's kind alone decides and allows the click.
    """
    if knowledge.place.startswith("results"):
        return _describe_results_need(knowledge, name)
    if name == BACK_TO_SEARCH:
        return "" if knowledge.rank else "already there"
    if not knowledge.rank:
        return "nothing to click"
    if not knowledge.on_item:
        return "" if name == PREV else "no choice here"
    if name in (PREV, BUY, *SUB_PAGES):
        return ""
    values = knowledge.item.values if knowledge.item else []
    return Comparison(" ".join(values), name, YES if name in values else NO).words


def _describe_results_need(knowledge: Knowledge, name: str) -> str:
    if name == BACK_TO_SEARCH:
        return ""
    if name in (NEXT, PREV):
        return f"results {knowledge.number} of {knowledge.pages}"
    listed = [f"item {item.rank}" for item in knowledge.listed_items]
    return Comparison(" ".join(listed), name, YES if name in listed else NO).words


def _describe_outcome(trajectory: Trajectory, knowledge: Knowledge, page: ParsedState) -> str:
    """Describe the next page: new, with what the dream has decided about it, or known, with what changed."""
    query = page.query if page.event == "results" else knowledge.query
    if page.event == "search":
        return "back to search page"
    word = "new" if is_new_page(knowledge, page) else "known"
    fits = describe_premise(trajectory, query, page)
    if page.event == "results":
        return f"{word}{fits}"
    item = knowledge.items.get((query, page.rank))
    if knowledge.rank != page.rank:
        return f"{word} {item.title} for {item.price}{fits}" if item else word
    if page.event == "item" and knowledge.on_item:
        return f"now {' '.join(page.chosen) or 'nothing'}"
    if page.event == "item":
        return f"back to item {page.rank} with {' '.join(page.chosen) or 'nothing'}"
    return f"{word}{_repeat_features(item, page)}{fits}"


def _repeat_features(item: Item | None, page: ParsedState) -> str:
    """Return the features that were read before, when their page is open again."""
    return f" {' '.join(item.features)}" if page.event == "features" and item and item.features else ""


def describe_purchase(trajectory: Trajectory, knowledge: Knowledge, reward: float) -> str:
    """Compare what is bought with what is required, and conclude.

    The comparisons end at the first that says `no`.
    """
    requirements = read_requirements(trajectory.task.instruction)
    conclusion = "done" if reward > 0.5 else "not done"
    if not knowledge.item:
        return conclusion
    comparisons = []
    for comparison in compare_purchase(knowledge.item, requirements, knowledge.chosen):
        comparisons.append(comparison.words)
        if comparison.answer == NO:
            break
    return ". ".join([", ".join(comparisons), conclusion] if comparisons else [conclusion])


def compare_purchase(item: Item, requirements: Requirements, chosen: tuple[str, ...]) -> list[Comparison]:
    """Return the comparisons of a purchase: those of the product, and each option with those chosen."""
    product_checks = [
        check
        for check in compare_with_requirements(item, requirements)
        if check.required not in requirements.options
    ]
    available = " ".join(chosen) or "nothing"
    option_checks = [
        Comparison(available, required, YES if any(same_option(required, value) for value in chosen) else NO)
        for required in requirements.options
    ]
    kind_count = sum(check.required not in requirements.attributes for check in product_checks)
    return [*product_checks[:kind_count], *option_checks, *product_checks[kind_count:]]


def is_new_page(knowledge: Knowledge, page: ParsedState) -> bool:
    """Return whether the page that a state shows was not open before."""
    if page.event == "results":
        return (page.query, page.number) not in knowledge.listed_ranks
    if page.event in ("item", *SUB_PAGES):
        return (knowledge.query, page.rank, page.event) not in knowledge.opened_pages
    return False


def revealing(trajectory: Trajectory, next_state: str) -> bool:
    """Return whether `next_state` reveals something.

    It shows a page for the first time, or the result of a purchase that depended on something never looked
    at.
    """
    knowledge = collect_knowledge(trajectory)
    page = read_state(next_state)
    if page.event == "bought" and knowledge.item and not knowledge.is_purchased:
        requirements = read_requirements(trajectory.task.instruction)
        answers = [check.answer for check in compare_purchase(knowledge.item, requirements, knowledge.chosen)]
        return not requirements.is_exact or (UNSEEN in answers and NO not in answers)
    return is_new_page(knowledge, page)


def judged(trajectory: Trajectory) -> float | None:
    """Return 1.0 or 0.0 for a last step that buys, if all that decides its reward was seen; else None."""
    knowledge = collect_knowledge(trajectory.up_to(len(trajectory.steps) - 1))
    page = read_state(trajectory.states[-1])
    requirements = read_requirements(trajectory.task.instruction)
    if page.event != "bought" or not knowledge.item or knowledge.is_purchased or not requirements.is_exact:
        return None
    answers = [check.answer for check in compare_purchase(knowledge.item, requirements, knowledge.chosen)]
    return 0.0 if NO in answers else None if UNSEEN in answers else 1.0
