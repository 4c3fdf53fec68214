"""The forms of instructions that are read, and how each becomes a goal. They are MiniWoB's own sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.environments.browser.engine.elements import EDITABLE, Element
from components.environments.browser.page_values import (
    enter_all_table_values,
    enter_table_value,
    guess_number,
    mark_odd_or_even,
    pick_greatest_card,
    solve_equation,
    solve_sum,
)
from components.environments.browser.states import View
from components.environments.browser.subgoals import (
    BUTTONS,
    EDITABLE_KINDS,
    LINKS,
    Goal,
    Subgoal,
    click,
    click_first,
    click_submit,
    fill_field,
    normalise_name,
)


def _click_one(
    name: str, kinds: Sequence[str] = BUTTONS, opens: Sequence[str] = (), opener: str = ""
) -> Callable[..., Goal]:
    """Return a builder of one-click goals. In `name`, {} is the first group of the form."""
    return lambda *groups, views: Goal((click(name.format(*groups), kinds),), tuple(opens), opener)


def _click_dialog_button(name: str, views: Sequence[View]) -> Goal:
    return Goal((click("Close" if name == "x" else name),))


def _click_in_order(*names: str, views: Sequence[View]) -> Goal:
    return Goal(tuple(click(name) for name in names))


def _open_section_and_submit(views: Sequence[View]) -> Goal:
    sections = [e.name for e in views[0].elements if e.kind == "tab" and normalise_name(e.name) != "submit"]
    return Goal((*(click(name, ("tab",)) for name in sections[:1]), click("Submit")))


def _click_widget(kind: str, views: Sequence[View]) -> Goal:
    return Goal((click_first({"text": "textbox"}.get(kind, kind)),))


def _check_exactly(names: str, views: Sequence[View]) -> Goal:
    """Check the named options or boxes and no others; `nothing` names none.

    A name may contain no comma. MiniWoB's never do.
    """
    required = [] if names == "nothing" else names.split(", ")
    checked = {
        element.name
        for view in views
        for element in view.elements
        if element.kind == "checkbox" and "checked" in element.flags
    }
    unchecks = [
        Subgoal("uncheck", name, ("checkbox",))
        for name in sorted(checked)
        if normalise_name(name) not in map(normalise_name, required)
    ]
    return Goal(
        (
            *(Subgoal("check", name, ("radio", "checkbox")) for name in required),
            *unchecks,
            click_submit(views),
        )
    )


def _select_option(option: str, views: Sequence[View]) -> Goal:
    return Goal((Subgoal("select", "", ("select",), option, place=1), click_submit(views)))


def _enter_text(text: str, *cases: str, views: Sequence[View]) -> Goal:
    value = {"lower": text.lower(), "upper": text.upper()}[cases[0]] if cases else text
    return Goal((fill_field(value), click_submit(views)))


def _copy_text(views: Sequence[View]) -> Goal:
    """Enter the text that the page shows. It stands before the field, so it is the field's name."""
    field = next((element for element in views[0].elements if element.kind in EDITABLE), Element("textbox"))
    return _enter_text(field.name, views=views)


def _enter_password_twice(text: str, views: Sequence[View]) -> Goal:
    return Goal((fill_field(text), fill_field(text, 2), click_submit(views)))


def _enter_date(month: str, day: str, year: str, views: Sequence[View]) -> Goal:
    return _enter_text(f"{year}-{month}-{day}", views=views)


def _enter_time(hour: str, minute: str, half: str, views: Sequence[View]) -> Goal:
    return _enter_text(f"{int(hour) % 12 + (12 if half == 'PM' else 0):02d}:{minute}", views=views)


def _log_in(user: str, password: str, views: Sequence[View]) -> Goal:
    """Log in. A message that covers the form is cancelled first, since its other button leaves the page."""
    last = click_submit(views)
    popup = (click("Cancel"),) if any(normalise_name(e.name) == "cancel" for e in views[-1].elements) else ()
    return Goal(
        (
            *popup,
            Subgoal("fill", "Username", EDITABLE_KINDS, user),
            Subgoal("fill", "Password", EDITABLE_KINDS, password),
            last,
        )
    )


def _search_movie(genre: str, director: str, year: str, views: Sequence[View]) -> Goal:
    """Fill the search fields, whose names differ by page: Director Name, Movie Genre, Released Date."""
    subgoals = []
    for element in (element for element in views[0].elements if element.kind in EDITABLE):
        values = (("direct", director), ("year", year), ("date", year), ("genre", genre))
        value = next((value for word, value in values if word in element.name.lower()), "")
        subgoals.append(Subgoal("fill", element.name, EDITABLE_KINDS, value))
    return Goal((*subgoals, click_submit(views)))


def _check_radio_and_fill(radio: str, text: str, box: str, views: Sequence[View]) -> Goal:
    fields = [element for element in views[0].elements if element.kind in EDITABLE]
    clears = [
        Subgoal("clear", e.name, EDITABLE_KINDS, id=e.id)
        for place, e in enumerate(fields, 1)
        if place != int(box)
    ]
    return Goal(
        (
            Subgoal("check", "", ("radio",), place=int(radio)),
            fill_field(text, int(box)),
            *clears,
            click_submit(views),
        )
    )


def _focus_field(place: str, views: Sequence[View]) -> Goal:
    return Goal((Subgoal("click", "", EDITABLE_KINDS, place=int(place)),))


_ORDINAL = r"([1-9])(?:st|nd|rd|th)"
FORMS: tuple[tuple[str, Callable[..., Goal]], ...] = (
    (r"Click the button\.", lambda views: Goal((click_first("button"),))),
    (r"Click button (\w+), then click button (\w+)\.", _click_in_order),
    (r"Click button (\w+)\.", _click_one("{}", ("button",))),
    (r'Click on the "(.+)" button\.', _click_one("{}", ("button",))),
    (r'Click on the link "(.+)"\.', _click_one("{}", LINKS)),
    (r"Click on (Tab #\d+)\.", _click_one("{}", ("tab",))),
    (r'Switch between the tabs to find and click on the link "(.+)"\.', _click_one("{}", LINKS, ("tab",))),
    (r'Expand the sections below, to find and click on the link "(.+)"\.', _click_one("{}", LINKS, ("tab",))),
    (
        r'Navigate through the file tree\. Find and click on the folder or file named "(.+)"\.',
        _click_one("{}", LINKS, ("item",), "expandable"),
    ),
    (r"Expand the section below and click submit\.", _open_section_and_submit),
    (r'Close the dialog box by clicking the "x"\.', _click_one("Close")),
    (r'Click the button in the dialog box labeled "(.+)"\.', _click_dialog_button),
    (r'Click on a "(\w+)" widget\.', _click_widget),
    (r"Focus into the textbox\.", lambda views: Goal((click_first(*EDITABLE_KINDS),))),
    (rf"Focus into the {_ORDINAL} input textbox\.", _focus_field),
    (r"Select (.+) from the list and click Submit\.", _select_option),
    (r"Select (.+) and click Submit\.", _check_exactly),
    (r'Enter "(.+)" into the text field and press Submit\.', _enter_text),
    (r'Type "(.+)" in all (lower|upper) case letters in the text input and press Submit\.', _enter_text),
    (r"Type the text below into the text field and press Submit\.", _copy_text),
    (r'Enter the password "(.+)" into both text fields and press submit\.', _enter_password_twice),
    (r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.', _log_in),
    (r"Enter (\d\d)/(\d\d)/(\d{4}) as the date and hit submit\.", _enter_date),
    (r"Enter (\d+):(\d\d)\s(AM|PM) as the time and press submit\.", _enter_time),
    (r"Enter the value of (.+) into the text field and press Submit\.", enter_table_value),
    (
        r"Enter the value that corresponds with each label into the form and submit when done\.",
        enter_all_table_values,
    ),
    (r"Solve the math problem and type your answer into the textbox\. Press submit when done\.", solve_sum),
    (r"Solve for x and type your answer into the textbox\. Press Submit when done\.", solve_equation),
    (r"Find and pick the card with the greatest number, then press submit\.", pick_greatest_card),
    (r"Mark the numbers below as odd or even and press submit when done\.", mark_odd_or_even),
    (
        r"Guess the number between 0-9 and press Submit\. Use the feedback below to find the right number\.",
        guess_number,
    ),
    (r"Search for (\w+) movies directed by (\w+) from year (\d+)\.", _search_movie),
    (
        rf'Check the {_ORDINAL} radio button and enter the number "(.+)" into the {_ORDINAL} textbox\.',
        _check_radio_and_fill,
    ),
)
"""Regular expression of an instruction -> a builder of its goal, called with the groups and `views`."""
