"""How far the reasoning of a dreamed step quotes correctly: the page, the instruction, its own comparisons.

A small model gets letters of a copied name wrong (`username cas` for chas) or makes one up. What follows is
then approved or refused for a name that nobody wrote. Here its reasoning is parsed in the form of the
teacher's (`reasoning.reason`). It is compared only with the texts that the model was shown. What the goal
means and what the page would do is not judged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from components.environments.browser.actions import Command, read_action
from components.environments.browser.engine.elements import Element
from components.environments.browser.reasoning import checked_word
from components.environments.browser.states import View, read_state
from components.environments.browser.subgoals import display_name, normalise_name
from components.records import Task

_CHECKED_WORDS = ("checked", "plain")
_PLACEHOLDERS = frozenset({"blank", "nameless", "another", *_CHECKED_WORDS})
"""Words that stand for what a page shows without a name."""
_REFUSAL = re.compile(r"(, (disabled|no effect|a \w+ is no (field|list)|a select wants select))?\. fails")
_EFFECT = re.compile(r"\. works(, (?:new|same|known|now (?P<now>.+?)))?(?=\. |$)")
_COMPARISON = re.compile(r"(?P<said>.+?) want (?P<wanted>.+?): (?P<holds>yes|no)(?=, |\. |$)")
_CONCLUSION = re.compile(r"(\. (done|lost|not done))?")


class _Quotable(NamedTuple):
    """All that reasoning may quote.

    The present values, the names on this page and earlier ones, the instruction, and the action.
    """

    values: frozenset[str]
    names: tuple[str, ...]
    instruction: str
    command: Command


def grounded(task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
    """Return how many characters of `reasoning`, from its beginning, quote correctly.

    Reasoning about an action without an element quotes nothing.

    Args:
        task: the episode's task.
        states: the states so far; the action is taken in the last one.
        action: the action that the reasoning is about.
        reasoning: the text to be checked.
    """
    view = read_state(states[-1])
    command = read_action(action)
    if command is None or not command.id or not view.readable:
        return len(reasoning)
    head, is_possible = _expected_head(view, command)
    if not reasoning.startswith(head):
        return len(os.path.commonprefix([head, reasoning]))
    if not is_possible:
        return len(reasoning) if reasoning == f"{head}. fails" else len(head)
    if _REFUSAL.fullmatch(reasoning, len(head)):
        return len(reasoning)
    names = tuple(element.name for state in states for element in read_state(state).elements)
    quotable = _Quotable(_present_values(view, view.element(command.id)), names, task.instruction, command)
    return _grounded_end(reasoning, len(head), quotable)


def _expected_head(view: View, command: Command) -> tuple[str, bool]:
    """Return what every reasoning about this element begins with, and whether element and option exist.

    The head names the ids, the element, and for a list its options.
    """
    element = view.element(command.id)
    head = f"{' '.join(view.ids) or 'nothing'} want {command.id}: "
    if element is None:
        return f"{head}no", False
    head += f"yes, {element.kind} {display_name(element.name) or 'nameless'}"
    is_selection = command.verb == "select" and element.kind == "select" and "disabled" not in element.flags
    if not is_selection:
        return head, True
    has_option = command.text in element.options
    return (
        f"{head}, {' '.join(element.options)} want {command.text}: {'yes' if has_option else 'no'}",
        has_option,
    )


def _grounded_end(reasoning: str, place: int, quotable: _Quotable) -> int:
    """Return up to where the reasoning is correct from `place` on.

    It says that the action works, what that changes, and compares what is there with what is wanted.
    """
    effect = _EFFECT.match(reasoning, place)
    if not effect or not _is_typed_value(effect["now"], quotable):
        return place
    place = effect.end()
    comparison = _COMPARISON.match(reasoning, place + 2)
    while comparison and _is_correct(
        comparison["said"], comparison["wanted"], comparison["holds"] == "yes", quotable
    ):
        place = comparison.end()
        comparison = _COMPARISON.match(reasoning, place + 2) if reasoning.startswith(", ", place) else None
    return len(reasoning) if _CONCLUSION.fullmatch(reasoning, place) else place


def _is_typed_value(value: str | None, quotable: _Quotable) -> bool:
    return value is None or value in _PLACEHOLDERS or value == quotable.command.text


def _is_correct(said: str, required: str, holds: bool, quotable: _Quotable) -> bool:
    """Return whether one comparison is correct.

    The value that it names is on the page, what is wanted stands where it was asked for, and the answer fits
    the two.
    """
    value, quote = _split_quote(said, quotable)
    if required in _CHECKED_WORDS:
        label, _, state = value.rpartition(" ")
        # `3` is the third box, `13]` the one with that id: neither is what the page calls it.
        is_number = re.fullmatch(r"\d+\]?", label)
        is_quoted = (
            value in quotable.values
            or is_number
            or (state == "absent" and _is_quoted(label, [quotable.instruction]))
        )
        return bool(is_quoted) and holds == (state == required)
    # The page decides whether case counts, so names that differ in case alone allow both answers.
    if holds and normalise_name(value) != normalise_name(required) or not holds and value == required:
        return False
    if value not in quotable.values and value not in _PLACEHOLDERS:
        return False
    if not quote:  # no word of the instruction stands before it, or it is a name of the page
        return _is_quoted(required, [quotable.instruction, *quotable.names])
    is_source = (
        quote in quotable.instruction or " is " in quote or (" / " in quote and quote in quotable.names)
    )
    return is_source and quote.casefold().endswith(required.casefold())


def _split_quote(said: str, quotable: _Quotable) -> tuple[str, str]:
    """Return the value that a comparison names, and the quote before it.

    A name may contain a comma, so the split is where a value of the page begins.
    """
    starts = [0, *(comma.end() for comma in re.finditer(", ", said))]
    start = next((place for place in starts if said[place:] in quotable.values), starts[-1])
    return said[start:], said[: max(0, start - 2)]


def _present_values(view: View, target: Element | None) -> frozenset[str]:
    """Return what fields hold, what is checked, and the name and id of the action's element.

    Of anything else only what is wanted may be quoted.
    """
    values = {
        part
        for element in view.elements
        for part in (element.value, f"{display_name(element.name)} {checked_word(element)}")
    }
    values |= {display_name(target.name), target.id} if target else set()
    return frozenset(values - {""})


def _is_quoted(words: str, texts: Sequence[str]) -> bool:
    """Return whether `words` stand one behind the other in one of `texts`.

    Always True for what was worked out (`2 + 3 is 5`, a date), which no text contains.
    """
    if words in _PLACEHOLDERS or " is " in words or re.fullmatch(r"[\d:./-]+", words):
        return True
    form = re.compile(r"(?<!\w)" + r"\W+".join(map(re.escape, words.split())) + r"(?!\w)", re.IGNORECASE)
    return any(form.search(text) or words in text.casefold() for text in texts)
