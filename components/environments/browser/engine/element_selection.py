"""Choose the elements of a page that a state shows: name the nameless fields, keep what the task needs most.

Of more elements than the limit those stay that share most with the instruction, fields and buttons before
links.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from components.environments.browser.engine.elements import (
    EDITABLE,
    FIELDS,
    MAX_OPTIONS,
    RUNNING_TEXT,
    TABLE_ROW,
    TEXT,
    Element,
    field_name,
)

_KIND_WEIGHTS = {
    **dict.fromkeys(EDITABLE, 2.0),
    "select": 2.0,
    "checkbox": 1.5,
    "radio": 1.5,
    "button": 1.5,
    "tab": 1.5,
    "slider": 1.5,
}


def join_labels(elements: Sequence[Element]) -> list[Element]:
    """Give each nameless field the text beside it as its name, and drop text that repeats a neighbour's name.

    The name is the text before the field. It is the text behind it where every nameless field has text there
    and the first one has none before it.
    """
    elements = _join_labels_behind(elements)
    labelled: list[Element] = []
    for element in elements:
        before = labelled[-1] if labelled else None
        if before and before.kind == TEXT and element.kind in FIELDS and not element.name:
            labelled[-1] = replace(element, name=field_name(before.name))
        elif before and not before.id and element.id and element.name == before.name:
            labelled[-1] = element
        elif not (before and not element.id and element.name == before.name):
            labelled.append(element)
    return labelled


def _join_labels_behind(elements: Sequence[Element]) -> Sequence[Element]:
    nameless = [
        place for place, element in enumerate(elements) if element.kind in FIELDS and not element.name
    ]
    followed = [place for place in nameless if place + 1 < len(elements) and elements[place + 1].kind == TEXT]
    if len(nameless) < 2 or followed != nameless or (nameless[0] and elements[nameless[0] - 1].kind == TEXT):
        return elements
    label_places = {place + 1 for place in nameless}
    renamed = [
        replace(element, name=field_name(elements[place + 1].name)) if place in nameless else element
        for place, element in enumerate(elements)
    ]
    return [element for place, element in enumerate(renamed) if place not in label_places]


def select_elements(elements: Sequence[Element], instruction: str, limit: int) -> tuple[list[Element], int]:
    """Return at most `limit` elements that can be acted on, in order, and how many such were left out.

    At most `limit // 2 + 1` lines of text are kept in addition.
    """
    task_words = _words(instruction)
    actionable = [place for place, element in enumerate(elements) if element.id]
    texts = [place for place, element in enumerate(elements) if not element.id]
    texts = [
        place
        for place in texts
        if elements[place].kind != RUNNING_TEXT or _words(elements[place].name) & task_words
    ]
    actionable.sort(key=lambda place: (-_relevance(elements[place], instruction.lower(), task_words), place))
    texts.sort(key=lambda place: (-len(_words(elements[place].name) & task_words), place))
    places = sorted([*actionable[:limit], *texts[: limit // 2 + 1]])
    return [_shorten_options(elements[place], task_words) for place in places], max(
        0, len(actionable) - limit
    )


def _relevance(element: Element, instruction: str, task_words: frozenset[str]) -> float:
    """Return a score that is higher the more an element has to do with the instruction (in lower case)."""
    names = [element.name, *element.options]
    exact = max(
        (
            4.0
            for name in names
            if name and re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", instruction)
        ),
        default=0.0,
    )
    words = _words(" ".join(names))
    shared = 2.0 * len(words & task_words) / len(words) if words else 0.0
    return (
        exact
        + shared
        + _KIND_WEIGHTS.get(element.kind, 1.0)
        + (1.0 if "focused" in element.flags or "checked" in element.flags else 0.0)
    )


def _shorten_options(element: Element, task_words: frozenset[str]) -> Element:
    """Return the element with at most MAX_OPTIONS options, and with TEXT as kind of all text.

    The current option stays, then those that share a word with the instruction, then the first ones.
    """
    if element.kind in (TABLE_ROW, RUNNING_TEXT):
        return replace(element, kind=TEXT)
    if len(element.options) <= MAX_OPTIONS:
        return element
    ranked = sorted(
        range(len(element.options)),
        key=lambda place: (
            element.options[place] != element.value,
            not _words(element.options[place]) & task_words,
            place,
        ),
    )
    places = sorted(ranked[:MAX_OPTIONS])
    return replace(
        element,
        options=tuple(element.options[place] for place in places),
        labels=tuple(element.labels[place] for place in places),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
