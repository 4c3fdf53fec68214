"""One line of a browser state: an element of the page, with its kind, name, value, options and flags.

    [16] textbox: Username = kenda (focused)
    [13] select: Country = Chad {Aruba | Chad | Peru}
    [21] checkbox: Send me news (checked)
    [27] item: proin                       a clickable thing without a role of its own
    text: The number is higher than 5.     words that cannot be acted on, so they have no id

`accessibility_tree.py` reads elements from a page, `element_selection.py` chooses those that a state shows.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

TEXT = "text"
"""The kind of words that cannot be acted on."""
TABLE_ROW = "row"
"""Kind of text while a page is read: a row of a table, which names no field. It becomes TEXT."""
RUNNING_TEXT = "running"
"""Kind of text while a page is read: words around links, which are no message. It becomes TEXT."""
DIRECT_TEXT = "direct"
"""Kind of text while a page is read: a node's own words. It becomes TEXT or RUNNING_TEXT."""
KIND_BY_ROLE = {
    "button": "button",
    "link": "link",
    "checkbox": "checkbox",
    "radio": "radio",
    "tab": "tab",
    "menuitem": "menuitem",
    "slider": "slider",
    "treeitem": "treeitem",
    "listbox": "listbox",
    "textbox": "textbox",
    "searchbox": "textbox",
    "spinbutton": "textbox",
    "switch": "checkbox",
    "option": "option",
    "menuitemcheckbox": "checkbox",
    "menuitemradio": "radio",
    "combobox": "textbox",
    "DisclosureTriangle": "button",
    "Date": "date",
    "DateTime": "date",
    "InputTime": "time",
    "ColorWell": "textbox",
    "Summary": "button",
}
"""Role in the accessibility tree -> the word for it in a state."""
ACTIONABLE_KINDS = frozenset(KIND_BY_ROLE.values()) | {"select", "textarea", "item", "image"}
"""All kinds that can be acted on. `item` and `image` are clickable things without a role of their own."""
EDITABLE = frozenset({"textbox", "textarea", "date", "time"})
"""Kinds that can be filled."""
FIELDS = EDITABLE | {"select", "slider"}
"""Kinds that hold a value."""
FLAGS = ("checked", "selected", "expanded", "disabled", "focused")
MAX_TEXT_LENGTH = 60
"""Most characters of mere text."""
MAX_NAME_LENGTH = 40
"""Most characters of an element's name."""
MAX_OPTIONS = 8
"""Most options of a list."""
_STRUCTURE_SIGNS = str.maketrans("{}|", "()/")
_FLAG_LOOKALIKE = re.compile(rf"\(((?:{'|'.join(FLAGS)})(?:, (?:{'|'.join(FLAGS)}))*)\)$")
"""Words of the page that would be read as a flag. They lose their brackets."""


@dataclass(frozen=True)
class Element:
    """One line of a state. `id` is BrowserGym's, "" for mere text. `flags` are some of FLAGS, in that order.

    `labels` are the options in the page's own words, which a state may shorten. They are no part of the
    state.
    """

    kind: str
    name: str = ""
    id: str = ""
    value: str = ""
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def label(self, option: str) -> str:
        """Return the page's own words for `option`."""
        return next(
            (label for shown, label in zip(self.options, self.labels, strict=False) if shown == option),
            option,
        )

    def __str__(self) -> str:
        head = f"[{self.id}] {self.kind}:" if self.id else f"{self.kind}:"
        value = f"= {self.value}" if self.value else ""
        options = "{" + " | ".join(self.options) + "}" if self.options else ""
        flags = f"({', '.join(self.flags)})" if self.flags else ""
        return " ".join(part for part in (head, self.name, value, options, flags) if part)


def clean_text(text: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return `text` on one line, cut at `max_length` characters.

    Invisible characters and the signs that structure a state are removed or replaced.
    """
    visible = "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or unicodedata.category(char)[0] != "C"
    )
    plain = _FLAG_LOOKALIKE.sub(r"\1", " ".join(visible.translate(_STRUCTURE_SIGNS).split()))
    return plain if len(plain) <= max_length else plain[: max_length - 1].rstrip() + "…"


def field_name(words: str) -> str:
    """Return `words` as the name of a field, without a sign that would be read as the start of its value."""
    return words[:MAX_NAME_LENGTH].replace(" = ", "=").rstrip(" =:")
