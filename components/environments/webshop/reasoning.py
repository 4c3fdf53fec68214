"""The programmatic teacher: why an action leads where it led (R* of Eq. 5), from what the shopper could know.

First the page; then what the action needs, and the verdict; then whether what comes is new or known; and at a
purchase what was got beside what is wanted, up to the first that differs, and the conclusion. All comparisons
have one form, that of the backbone's exercise (`language/comparing.py`). Examples:

    on search page. works, new
    on results 1. item 1 item 2 item 3 want item 2: yes. works, new merrow oxford shirt for 31
    on results 1. item 1 item 2 item 3 want item 14: no. fails
    on results 5. results 5 of 5. fails
    on item 2. navy red small large want navy: yes. works, now navy
    on features of item 2. no choice here. fails
    on item 2. works, new
    on features of item 2. works, back to item 2 with navy
    on item 2. works. merrow oxford shirt want oxford shirt: yes, for 31 want lower than 40: yes, navy want
    navy: yes, cotton slim want
    slim: yes.
        done
    on item 2. works. merrow oxford shirt want oxford shirt: yes, for 31 want lower than 40: yes, navy want
    red: no. not done
"""

from __future__ import annotations

from components.environments.webshop.goals import Wants, read_wants
from components.environments.webshop.knowledge import NO, UNSEEN, YES, Check, Item, Knowledge, judge, learn
from components.environments.webshop.premise import decided
from components.environments.webshop.shop.reward import same_option
from components.environments.webshop.shop.session import BACK_TO_SEARCH, BUY, NEXT, PREV, SUB_PAGES, parse
from components.environments.webshop.states import Seen, read_state
from components.records import Trajectory


def reason(trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
    """The reasoning for one transition; its conclusion is always the shop's own outcome."""
    known, seen = learn(trajectory), read_state(next_state)
    verb, argument = parse(action)
    need = (
        "no such action"
        if not verb
        else ""
        if verb == "search"
        else _need(known, _taken(known, seen, argument))
    )
    head = f"on {known.place or 'search page'}. "
    if seen.event == "failed":
        return f"{head}{need or 'no effect'}. fails"
    if seen.event == "bought":
        return f"{head}works. {purchase(trajectory, known, reward)}"
    told = f"{need}. " if need else ""
    return f"{head}{told}works, {_outcome(trajectory, known, seen)}"


def _taken(known: Knowledge, seen: Seen, name: str) -> str:
    """What a click took, as the states name it: `item 3` for its asin, `3 4 inch` for an option's own
    words.
    """
    if seen.event != "item":
        return name
    if known.place.startswith("results"):
        return f"item {seen.rank}"
    now = [value for value in seen.chosen if value not in known.chosen]
    return now[0] if known.item and name not in known.item.values and len(now) == 1 else name


def _need(known: Knowledge, name: str) -> str:
    """What a click asks of the page, compared with what it has; "" where the page's kind alone decides and
    allows it.
    """
    if known.place.startswith("results"):
        return _need_of_results(known, name)
    if name == BACK_TO_SEARCH:
        return "" if known.rank else "already there"
    if not known.rank:
        return "nothing to click"
    if not known.on_item:
        return "" if name == PREV else "no choice here"
    if name in (PREV, BUY, *SUB_PAGES):
        return ""
    values = known.item.values if known.item else []
    return Check(" ".join(values), name, YES if name in values else NO).words


def _need_of_results(known: Knowledge, name: str) -> str:
    if name == BACK_TO_SEARCH:
        return ""
    if name in (NEXT, PREV):
        return f"results {known.number} of {known.pages}"
    listed = [f"item {item.rank}" for item in known.listed]
    return Check(" ".join(listed), name, YES if name in listed else NO).words


def _outcome(trajectory: Trajectory, known: Knowledge, seen: Seen) -> str:
    """What comes: something new, with what the dream has decided of it, or what is known already and what of
    it changed.
    """
    query = seen.query if seen.event == "results" else known.query
    if seen.event == "search":
        return "back to search page"
    word = "new" if is_new(known, seen) else "known"
    fits = decided(trajectory, query, seen)
    if seen.event == "results":
        return f"{word}{fits}"
    item = known.items.get((query, seen.rank))
    if known.rank != seen.rank:
        return f"{word} {item.title} for {item.price}{fits}" if item else word
    if seen.event == "item" and known.on_item:
        return f"now {' '.join(seen.chosen) or 'nothing'}"
    if seen.event == "item":
        return f"back to item {seen.rank} with {' '.join(seen.chosen) or 'nothing'}"
    return f"{word}{_reread(item, seen)}{fits}"


def _reread(item: Item | None, seen: Seen) -> str:
    """The features that were read before, on their page again."""
    return f" {' '.join(item.features)}" if seen.event == "features" and item and item.features else ""


def purchase(trajectory: Trajectory, known: Knowledge, reward: float) -> str:
    """What was got beside what is wanted, up to the first that differs or was never looked at, and the
    conclusion.
    """
    wants, end = read_wants(trajectory.task.instruction), "done" if reward > 0.5 else "not done"
    if not known.item:
        return end
    said = []
    for check in bought_checks(known.item, wants, known.chosen):
        said.append(check.words)
        if check.answer == NO:
            break
    return ". ".join([", ".join(said), end] if said else [end])


def bought_checks(item: Item, wants: Wants, chosen: tuple[str, ...]) -> list[Check]:
    """What is wanted of a purchase: that of the product, and each option among those chosen."""
    product = [check for check in judge(item, wants) if check.wanted not in wants.options]
    have = " ".join(chosen) or "nothing"
    options = [
        Check(have, wanted, YES if any(same_option(wanted, value) for value in chosen) else NO)
        for wanted in wants.options
    ]
    kind = sum(check.wanted not in wants.attributes for check in product)
    return [*product[:kind], *options, *product[kind:]]


def is_new(known: Knowledge, seen: Seen) -> bool:
    """True if the page that `seen` shows was not open before."""
    if seen.event == "results":
        return (seen.query, seen.number) not in known.listings
    if seen.event in ("item", *SUB_PAGES):
        return (known.query, seen.rank, seen.event) not in known.shown
    return False


def revealing(trajectory: Trajectory, next_state: str) -> bool:
    """True if `next_state` shows a page for the first time, or what came of a purchase that hung on something
    never looked at.
    """
    known, seen = learn(trajectory), read_state(next_state)
    if seen.event == "bought" and known.item and not known.done:
        wants = read_wants(trajectory.task.instruction)
        answers = [check.answer for check in bought_checks(known.item, wants, known.chosen)]
        return not wants.exact or (UNSEEN in answers and NO not in answers)
    return is_new(known, seen)


def judged(trajectory: Trajectory) -> float | None:
    """1.0 or 0.0 of a last step that buys, if all that the reward hangs on was looked at; else None."""
    known, seen = learn(trajectory.up_to(len(trajectory.steps) - 1)), read_state(trajectory.states[-1])
    wants = read_wants(trajectory.task.instruction)
    if seen.event != "bought" or not known.item or known.done or not wants.exact:
        return None
    answers = [check.answer for check in bought_checks(known.item, wants, known.chosen)]
    return 0.0 if NO in answers else None if UNSEEN in answers else 1.0
