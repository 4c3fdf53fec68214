"""The commands of an agent in a browser: their grammar, when one is impossible, and their form in BrowserGym.

    click [13]           dblclick [13]      hover [13]         drag [13] to [14]
    fill [16] kenda      clear [16]         select [13] Chad   press [16] Enter
    scroll down          scroll up
    back    forward    tab 2    close tab    goto http://...    answer 42

The last row is for web tasks only: leaving its page ends a MiniWoB task. Ids are those that the state shows.
An element that the state does not name cannot be acted on, so a dream, which knows only the states, can tell
what is possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from components.environments.browser.engine.elements import EDITABLE, Element
from components.environments.browser.states import View

_ID = r"\[(?P<id>[a-zA-Z]*\d+)\]"
_KEY = (
    r"(?:(?:Control|Shift|Alt)\+)*(?:Enter|Tab|Escape|Backspace|Delete|Space|Arrow(?:Up|Down|Left|Right)|Page(?:Up|Down)|Home|End|F\d\d?"
    r"|[!-~])"
)
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<verb>click|dblclick|hover|clear) {_ID}",
        rf"(?P<verb>fill|select) {_ID} (?P<text>\S(?:.*\S)?)",
        rf"(?P<verb>press) {_ID} (?P<text>{_KEY})",
        rf"(?P<verb>drag) {_ID} to \[(?P<text>[a-zA-Z]*\d+)\]",
        r"(?P<verb>scroll) (?P<text>up|down)",
        r"(?P<verb>back|forward|close tab)",
        r"(?P<verb>tab) (?P<text>[1-9]\d{0,2})",
        r"(?P<verb>goto|answer) (?P<text>\S(?:.*\S)?)",
    )
)
WEB_ONLY = frozenset({"back", "forward", "close tab", "tab", "goto", "answer"})
"""Verbs that only web tasks allow."""
MAX_ACTION_LENGTH = 1000
"""Most characters of an action."""
_SCROLL_CALLS = {"down": "scroll(0, 300)", "up": "scroll(0, -300)"}


@dataclass(frozen=True)
class Command:
    """A parsed action: its verb, the id that it names, and the text behind it; "" where it has none."""

    verb: str
    id: str = ""
    text: str = ""


def read_action(action: str) -> Command | None:
    """Return the command of an action that follows the grammar, else None."""
    if len(action) > MAX_ACTION_LENGTH or not action.isprintable():
        return None
    for form in _FORMS:
        if match := form.fullmatch(action.strip()):
            parts = match.groupdict()
            return Command(parts["verb"], parts.get("id") or "", parts.get("text") or "")
    return None


def find_obstacle(action: str, view: View, *, web: bool, sites: Iterable[str] = ()) -> str:
    """Return why `action` cannot be carried out in `view`; "" if nothing prevents it.

    Args:
        action: an action in any form.
        view: what the agent sees.
        web: the task is on web sites, not on a MiniWoB page.
        sites: hosts that `goto` may name.

    Returns:
        A key of `states.FAILURES`, or "".
    """
    command = read_action(action)
    if command is None:
        return "malformed"
    if command.verb in WEB_ONLY:
        return "" if web and _is_allowed(command, sites) else "place"
    ids = [command.id] if command.id else []
    if command.verb == "drag":
        ids.append(command.text)
    elements = [view.element(name) for name in ids]
    if None in elements:
        return "missing"
    return _find_misfit(command, elements[0]) if elements and elements[0] else ""


def _is_allowed(command: Command, sites: Iterable[str]) -> bool:
    if command.verb != "goto":
        return True
    try:
        address = urlsplit(command.text)
    except ValueError:  # not an address, such as http://[
        return False
    return address.scheme in ("http", "https") and bool(address.netloc) and address.netloc in set(sites)


def _find_misfit(command: Command, element: Element) -> str:
    """Return why the command does not fit the element; "" if it does."""
    if "disabled" in element.flags:
        return "disabled"
    if command.verb in ("fill", "clear"):
        return "" if element.kind in EDITABLE else "kind"
    if command.verb == "select":
        return "kind" if element.kind != "select" else "" if command.text in element.options else "option"
    if element.kind == "select" and command.verb != "press":
        return "kind"  # its native list would cover the page
    return ""


def to_browsergym(action: str, view: View = View()) -> str:
    """Return a well-formed action as a call of BrowserGym's high-level action set.

    An option is named in the words of `view`'s page.
    """
    command = read_action(action)
    assert command is not None, "only well-formed actions are carried out"
    names = {"select": "select_option", "drag": "drag_and_drop", "goto": "goto", "answer": "send_msg_to_user"}
    verb = names.get(command.verb, command.verb)
    if command.verb == "scroll":
        return _SCROLL_CALLS[command.text]
    if command.verb == "tab":
        return f"tab_focus({int(command.text) - 1})"
    if command.verb == "select" and (element := view.element(command.id)):
        command = replace(command, text=element.label(command.text))
    simple = {"back": "go_back()", "forward": "go_forward()", "close tab": "tab_close()"}
    if command.verb in simple:
        return simple[command.verb]
    return f"{verb}({', '.join(repr(part) for part in (command.id, command.text) if part)})"


def well_formed(action: str) -> bool:
    """Return whether `action` follows the grammar."""
    return read_action(action) is not None


def admissible_actions(view: View, instruction: str) -> tuple[str, ...]:
    """Return the actions that `view` allows, in the order of the page.

    Fields are filled with what the instruction quotes.
    """
    actions: list[str] = []
    words = quoted_words(instruction)
    for element in view.elements:
        if not element.id or "disabled" in element.flags:
            continue
        if element.kind == "select":
            actions += [
                f"select [{element.id}] {option}"
                for option in element.options
                if option and option != element.value
            ]
            continue
        actions.append(f"click [{element.id}]")
        if element.kind in EDITABLE:
            actions += [f"fill [{element.id}] {word}" for word in words]
            actions += [f"clear [{element.id}]"] if element.value else []
            actions.append(f"press [{element.id}] Enter")
    return tuple(actions)


def quoted_words(instruction: str) -> Sequence[str]:
    """Return at most six different texts that an instruction gives in quotation marks, in order.

    Where it quotes nothing, its words that hold digits or are names.
    """
    words = re.findall(r'"\s*([^"]*[^"\s])\s*"', instruction) or re.findall(
        r"\b(?:\d[\w/:.,-]*|[A-Z][a-z]+)\b", instruction
    )
    return list(dict.fromkeys(word.strip().rstrip(",.") for word in words if word.strip(" ,.")))[:6]
