"""Goals whose values stand on the page: in a table, a sum, an equation, cards, or hints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from components.environments.browser.engine.elements import EDITABLE, TEXT, Element
from components.environments.browser.states import View
from components.environments.browser.subgoals import (
    BUTTONS,
    EDITABLE_KINDS,
    Goal,
    Subgoal,
    click,
    click_submit,
    fill_field,
    normalise_name,
)

_SUM = re.compile(r"(-?\d+) ([-+x*]) (-?\d+)")
_EQUATION = re.compile(r"(?:(?P<left>-?\d+|x)) (?P<sign>[-+]) (?P<right>-?\d+|x) ?= ?(?P<result>-?\d+)")


def enter_table_value(heading: str, views: Sequence[View]) -> Goal:
    """Enter the value beside `heading` in the page's table."""
    value = _read_table(views).get(normalise_name(heading), "")
    return Goal((fill_field(value, source=f"{heading} / {value}"), click_submit(views)))


def enter_all_table_values(views: Sequence[View]) -> Goal:
    """Enter in each field the table's value for the field's name."""
    table = _read_table(views)
    fields = [element for element in views[0].elements if element.kind in EDITABLE]
    values = [(field, table.get(normalise_name(field.name), "")) for field in fields]
    subgoals = [
        Subgoal("fill", field.name, EDITABLE_KINDS, value, f"{field.name} / {value}", id=field.id)
        for field, value in values
    ]
    return Goal((*subgoals, click_submit(views)))


def _read_table(views: Sequence[View]) -> dict[str, str]:
    """Return heading -> value of the rows of a table of two columns."""
    rows = [
        element.name.split(" / ", 1)
        for element in views[0].elements
        if element.kind == TEXT and " / " in element.name
    ]
    return {normalise_name(heading): value for heading, value in rows}


def solve_sum(views: Sequence[View]) -> Goal:
    """Enter the result of the page's sum, such as `2 + 3`."""
    match = next((match for e in views[0].elements if (match := _SUM.search(e.name))), None)
    value = str(_calculate(int(match[1]), match[2], int(match[3]))) if match else ""
    return Goal((fill_field(value, source=f"{match[0]} is {value}" if match else ""), click_submit(views)))


def _calculate(left: int, sign: str, right: int) -> int:
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def solve_equation(views: Sequence[View]) -> Goal:
    """Enter x of the page's equation, such as `2 + x = 5`."""
    match = next((match for e in views[0].elements if (match := _EQUATION.search(e.name))), None)
    value = str(_solve_for_x(match)) if match else ""
    return Goal((fill_field(value, source=f"{match[0]}, x is {value}" if match else ""), click_submit(views)))


def _solve_for_x(match: re.Match[str]) -> int:
    """Return x of `a + x = c`, `a - x = c`, `x + b = c` or `x - b = c`."""
    result = int(match["result"])
    is_sum = match["sign"] == "+"
    if match["left"] == "x":
        return result - int(match["right"]) if is_sum else result + int(match["right"])
    return result - int(match["left"]) if is_sum else int(match["left"]) - result


def pick_greatest_card(views: Sequence[View]) -> Goal:
    """Click the card with the greatest number."""
    cards = [e for e in views[0].elements if e.id and re.fullmatch(r"-?\d+", e.name)]
    greatest = max(cards, key=lambda card: int(card.name), default=Element("item"))
    return Goal((replace(click("greatest"), id=greatest.id), click_submit(views)))


def mark_odd_or_even(views: Sequence[View]) -> Goal:
    """Click for each number the button before it if it is odd, else the button behind it."""
    elements = views[0].elements
    subgoals = []
    for place, element in enumerate(elements):
        if element.kind == TEXT and re.fullmatch(r"-?\d+", element.name) and 0 < place < len(elements) - 1:
            button = elements[place - 1] if int(element.name) % 2 else elements[place + 1]
            subgoals.append(
                Subgoal("click", button.name, BUTTONS, source=f"{element.name} {button.name}", id=button.id)
            )
    return Goal((*subgoals, click_submit(views)))


def guess_number(views: Sequence[View]) -> Goal:
    """Enter the middle of the range that the hints so far leave open."""
    low = 0
    high = 9
    for element in (element for view in views for element in view.elements if element.kind != "button"):
        if match := re.search(r"number is (higher|lower) than (\d)", element.name):
            low, high = (
                (max(low, int(match[2]) + 1), high)
                if match[1] == "higher"
                else (low, min(high, int(match[2]) - 1))
            )
    value = str((low + high) // 2)
    return Goal((fill_field(value, source=f"{low} to {high}"), click_submit(views)))
