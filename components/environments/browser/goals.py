"""What an instruction asks for, read from its text and from what the page shows: the wishes that a solution
fulfils, one after the other.

A wish is about one element: `click` it, `fill` it with a value, `check` it, `select` an option of it. The
forms are MiniWoB's own sentences; where the value stands on the page (a table, a sum, a hint), the wish is
made from the states. Nothing is read but the text of the states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from components.environments.browser.engine.elements import EDITABLE, TEXT, Element
from components.environments.browser.states import View

BUTTONS = ("button", "item", "tab", "link", "menuitem")
LINKS = ("item", "link")
FILLED = tuple(sorted(EDITABLE))


@dataclass(frozen=True)
class Wish:
    """One thing that the goal wants done, to one element: click, fill, clear, check, uncheck or select."""

    verb: str
    name: str
    """The element's, where neither of the next two says which one it is."""
    kinds: tuple[str, ...]
    value: str = ""
    why: str = ""
    """Where the value comes from, in words of the page."""
    place: int = 0
    """The how many-th of its kinds, from 1."""
    id: str = ""

    @property
    def what(self) -> str:
        """What the element is called: its name, else `[13]` or `#2`."""
        return f"[{self.id}]" if self.id else f"#{self.place}" if self.place else self.name

    @property
    def lasting(self) -> bool:
        """True if the page shows whether it is fulfilled; that something was clicked only the history
        tells.
        """
        return self.verb != "click"


@dataclass(frozen=True)
class Goal:
    """Wishes, in order; `opens` are the kinds of elements behind which what is not visible may lie, `opener`
    what their names contain.
    """

    wishes: tuple[Wish, ...]
    opens: tuple[str, ...] = ()
    opener: str = ""


def told(name: str) -> str:
    """A name as it is told: letter for letter, without a colon behind it. A small model copies what it has
    read, and nothing else.
    """
    return name.strip(" :")


def named(name: str) -> str:
    """A name as it is compared: without case and a colon behind it. A full stop counts: `morbi` and `morbi.`
    may be two links.
    """
    return told(name).casefold()


def spaced(instruction: str) -> str:
    """An instruction with its quoted words apart from the marks: `the username " kenda "`.

    So a word has the same tokens where it is asked for, on the page (`= kenda`) and in an action; beside a
    mark it has others, and a small model that copies it slips in its letters (docs/experiments).
    """
    return _QUOTED.sub(r'" \1 "', instruction)


def closed(instruction: str) -> str:
    """The instruction as the page gives it, its quoted words beside the marks."""
    return _QUOTED.sub(r'"\1"', instruction)


_QUOTED = re.compile(r'"\s*([^"]*?)\s*"')


def find(view: View, wish: Wish) -> Element | None:
    """The element that `wish` is about, if it is visible and not disabled."""
    candidates = [e for e in view.elements if e.id and e.kind in wish.kinds and "disabled" not in e.flags]
    if wish.id:
        return next((element for element in candidates if element.id == wish.id), None)
    if wish.place:
        return candidates[wish.place - 1] if wish.place <= len(candidates) else None
    return next((element for element in candidates if named(element.name) == named(wish.name)), None)


def read_goal(instruction: str, views: Sequence[View]) -> Goal | None:
    """The goal of an instruction of a known form after `views`, the states so far (at least the first); None
    for another form.
    """
    for form, build in _FORMS:
        if found := re.fullmatch(form, closed(instruction.strip())):
            return build(*found.groups(), views=views)
    return None


def _click(name: str, kinds: Sequence[str] = BUTTONS) -> Wish:
    return Wish("click", name, tuple(kinds))


def _first(*kinds: str) -> Wish:
    """Click the first of these kinds."""
    return Wish("click", "", kinds, place=1)


def _fill(value: str, place: int = 1, why: str = "") -> Wish:
    """Fill the field at `place`."""
    return Wish("fill", "", FILLED, value, why, place)


def _submit(views: Sequence[View]) -> Wish:
    """Click what sends the form: the first button called so, else the last button."""
    buttons = [element for element in views[0].elements if element.kind in BUTTONS]
    called = [
        element for element in buttons if named(element.name) in ("submit", "login", "search", "go!", "ok")
    ]
    chosen = (called or buttons[-1:] or [Element("button", "Submit")])[0]
    return _click(chosen.name)


def _one(
    name: str, kinds: Sequence[str] = BUTTONS, opens: Sequence[str] = (), opener: str = ""
) -> Callable[..., Goal]:
    """A goal of one click: `name`, in which {} is the first group of the form."""
    return lambda *groups, views: Goal((_click(name.format(*groups), kinds),), tuple(opens), opener)


def _dialog_button(name: str, views: Sequence[View]) -> Goal:
    return Goal((_click("Close" if name == "x" else name),))


def _sequence(*names: str, views: Sequence[View]) -> Goal:
    return Goal(tuple(_click(name) for name in names))


def _section_and_submit(views: Sequence[View]) -> Goal:
    sections = [e.name for e in views[0].elements if e.kind == "tab" and named(e.name) != "submit"]
    return Goal((*(_click(name, ("tab",)) for name in sections[:1]), _click("Submit")))


def _widget(kind: str, views: Sequence[View]) -> Goal:
    return Goal((_first({"text": "textbox"}.get(kind, kind)),))


def _chosen(names: str, views: Sequence[View]) -> Goal:
    """Options or boxes to be checked, and no others; `nothing` wants none. A name may hold no comma:
    MiniWoB's never do.
    """
    wanted = [] if names == "nothing" else names.split(", ")
    boxes = {
        element.name
        for view in views
        for element in view.elements
        if element.kind == "checkbox" and "checked" in element.flags
    }
    wrong = [
        Wish("uncheck", name, ("checkbox",))
        for name in sorted(boxes)
        if named(name) not in map(named, wanted)
    ]
    return Goal((*(Wish("check", name, ("radio", "checkbox")) for name in wanted), *wrong, _submit(views)))


def _listed(option: str, views: Sequence[View]) -> Goal:
    return Goal((Wish("select", "", ("select",), option, place=1), _submit(views)))


def _typed(text: str, *how: str, views: Sequence[View]) -> Goal:
    value = {"lower": text.lower(), "upper": text.upper()}[how[0]] if how else text
    return Goal((_fill(value), _submit(views)))


def _copied(views: Sequence[View]) -> Goal:
    """The text stands before the field, so it is its name."""
    field = next((element for element in views[0].elements if element.kind in EDITABLE), Element("textbox"))
    return _typed(field.name, views=views)


def _password(text: str, views: Sequence[View]) -> Goal:
    return Goal((_fill(text), _fill(text, 2), _submit(views)))


def _date(month: str, day: str, year: str, views: Sequence[View]) -> Goal:
    return _typed(f"{year}-{month}-{day}", views=views)


def _time(hour: str, minute: str, half: str, views: Sequence[View]) -> Goal:
    return _typed(f"{int(hour) % 12 + (12 if half == 'PM' else 0):02d}:{minute}", views=views)


def _login(user: str, password: str, views: Sequence[View]) -> Goal:
    """A message that covers the form is cancelled first: its other button leaves the page."""
    last = _submit(views)
    popup = (_click("Cancel"),) if any(named(e.name) == "cancel" for e in views[-1].elements) else ()
    return Goal(
        (*popup, Wish("fill", "Username", FILLED, user), Wish("fill", "Password", FILLED, password), last)
    )


def _table(views: Sequence[View]) -> dict[str, str]:
    """Heading -> value of the rows of a table of two columns."""
    rows = [
        element.name.split(" / ", 1)
        for element in views[0].elements
        if element.kind == TEXT and " / " in element.name
    ]
    return {named(heading): value for heading, value in rows}


def _looked_up(heading: str, views: Sequence[View]) -> Goal:
    value = _table(views).get(named(heading), "")
    return Goal((_fill(value, why=f"{heading} / {value}"), _submit(views)))


def _all_looked_up(views: Sequence[View]) -> Goal:
    table = _table(views)
    fields = [element for element in views[0].elements if element.kind in EDITABLE]
    found = [(field, table.get(named(field.name), "")) for field in fields]
    wishes = [
        Wish("fill", field.name, FILLED, value, f"{field.name} / {value}", id=field.id)
        for field, value in found
    ]
    return Goal((*wishes, _submit(views)))


_SUM = re.compile(r"(-?\d+) ([-+x*]) (-?\d+)")
_EQUATION = re.compile(r"(?:(?P<left>-?\d+|x)) (?P<sign>[-+]) (?P<right>-?\d+|x) ?= ?(?P<result>-?\d+)")


def _arithmetic(views: Sequence[View]) -> Goal:
    found = next((match for e in views[0].elements if (match := _SUM.search(e.name))), None)
    value = str(_calculated(int(found[1]), found[2], int(found[3]))) if found else ""
    return Goal((_fill(value, why=f"{found[0]} is {value}" if found else ""), _submit(views)))


def _calculated(left: int, sign: str, right: int) -> int:
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def _algebra(views: Sequence[View]) -> Goal:
    found = next((match for e in views[0].elements if (match := _EQUATION.search(e.name))), None)
    value = str(_solved(found)) if found else ""
    return Goal((_fill(value, why=f"{found[0]}, x is {value}" if found else ""), _submit(views)))


def _solved(found: re.Match[str]) -> int:
    """x of `a + x = c`, `a - x = c`, `x + b = c` or `x - b = c`."""
    result, plus = int(found["result"]), found["sign"] == "+"
    if found["left"] == "x":
        return result - int(found["right"]) if plus else result + int(found["right"])
    return result - int(found["left"]) if plus else int(found["left"]) - result


def _greatest(views: Sequence[View]) -> Goal:
    cards = [e for e in views[0].elements if e.id and re.fullmatch(r"-?\d+", e.name)]
    best = max(cards, key=lambda card: int(card.name), default=Element("item"))
    return Goal((replace(_click("greatest"), id=best.id), _submit(views)))


def _odd_or_even(views: Sequence[View]) -> Goal:
    """The button before a number says that it is odd, the one behind it that it is even."""
    shown, wishes = views[0].elements, []
    for place, element in enumerate(shown):
        if element.kind == TEXT and re.fullmatch(r"-?\d+", element.name) and 0 < place < len(shown) - 1:
            chosen = shown[place - 1] if int(element.name) % 2 else shown[place + 1]
            wishes.append(
                Wish("click", chosen.name, BUTTONS, why=f"{element.name} {chosen.name}", id=chosen.id)
            )
    return Goal((*wishes, _submit(views)))


def _guess(views: Sequence[View]) -> Goal:
    """The middle of what the hints leave open."""
    low, high = 0, 9
    for element in (element for view in views for element in view.elements if element.kind != "button"):
        if found := re.search(r"number is (higher|lower) than (\d)", element.name):
            low, high = (
                (max(low, int(found[2]) + 1), high)
                if found[1] == "higher"
                else (low, min(high, int(found[2]) - 1))
            )
    value = str((low + high) // 2)
    return Goal((_fill(value, why=f"{low} to {high}"), _submit(views)))


def _movie(genre: str, director: str, year: str, views: Sequence[View]) -> Goal:
    """The fields are called otherwise on other pages: Director Name, Movie Genre, Released Date."""
    wishes = []
    for element in (element for element in views[0].elements if element.kind in EDITABLE):
        values = (("direct", director), ("year", year), ("date", year), ("genre", genre))
        value = next((value for word, value in values if word in element.name.lower()), "")
        wishes.append(Wish("fill", element.name, FILLED, value))
    return Goal((*wishes, _submit(views)))


def _nth_radio(radio: str, number: str, box: str, views: Sequence[View]) -> Goal:
    fields = [element for element in views[0].elements if element.kind in EDITABLE]
    emptied = [
        Wish("clear", e.name, FILLED, id=e.id) for place, e in enumerate(fields, 1) if place != int(box)
    ]
    return Goal(
        (Wish("check", "", ("radio",), place=int(radio)), _fill(number, int(box)), *emptied, _submit(views))
    )


def _nth_focus(place: str, views: Sequence[View]) -> Goal:
    return Goal((Wish("click", "", FILLED, place=int(place)),))


_NTH = r"([1-9])(?:st|nd|rd|th)"
_FORMS: tuple[tuple[str, Callable[..., Goal]], ...] = (
    (r"Click the button\.", lambda views: Goal((_first("button"),))),
    (r"Click button (\w+), then click button (\w+)\.", _sequence),
    (r"Click button (\w+)\.", _one("{}", ("button",))),
    (r'Click on the "(.+)" button\.', _one("{}", ("button",))),
    (r'Click on the link "(.+)"\.', _one("{}", LINKS)),
    (r"Click on (Tab #\d+)\.", _one("{}", ("tab",))),
    (r'Switch between the tabs to find and click on the link "(.+)"\.', _one("{}", LINKS, ("tab",))),
    (r'Expand the sections below, to find and click on the link "(.+)"\.', _one("{}", LINKS, ("tab",))),
    (
        r'Navigate through the file tree\. Find and click on the folder or file named "(.+)"\.',
        _one("{}", LINKS, ("item",), "expandable"),
    ),
    (r"Expand the section below and click submit\.", _section_and_submit),
    (r'Close the dialog box by clicking the "x"\.', _one("Close")),
    (r'Click the button in the dialog box labeled "(.+)"\.', _dialog_button),
    (r'Click on a "(\w+)" widget\.', _widget),
    (r"Focus into the textbox\.", lambda views: Goal((_first(*FILLED),))),
    (rf"Focus into the {_NTH} input textbox\.", _nth_focus),
    (r"Select (.+) from the list and click Submit\.", _listed),
    (r"Select (.+) and click Submit\.", _chosen),
    (r'Enter "(.+)" into the text field and press Submit\.', _typed),
    (r'Type "(.+)" in all (lower|upper) case letters in the text input and press Submit\.', _typed),
    (r"Type the text below into the text field and press Submit\.", _copied),
    (r'Enter the password "(.+)" into both text fields and press submit\.', _password),
    (r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.', _login),
    (r"Enter (\d\d)/(\d\d)/(\d{4}) as the date and hit submit\.", _date),
    (r"Enter (\d+):(\d\d)\s(AM|PM) as the time and press submit\.", _time),
    (r"Enter the value of (.+) into the text field and press Submit\.", _looked_up),
    (
        r"Enter the value that corresponds with each label into the form and submit when done\.",
        _all_looked_up,
    ),
    (r"Solve the math problem and type your answer into the textbox\. Press submit when done\.", _arithmetic),
    (r"Solve for x and type your answer into the textbox\. Press Submit when done\.", _algebra),
    (r"Find and pick the card with the greatest number, then press submit\.", _greatest),
    (r"Mark the numbers below as odd or even and press submit when done\.", _odd_or_even),
    (
        r"Guess the number between 0-9 and press Submit\. Use the feedback below to find the right number\.",
        _guess,
    ),
    (r"Search for (\w+) movies directed by (\w+) from year (\d+)\.", _movie),
    (rf'Check the {_NTH} radio button and enter the number "(.+)" into the {_NTH} textbox\.', _nth_radio),
)
