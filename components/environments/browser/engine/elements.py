"""What of a page matters: from its accessibility tree to at most so many elements, each one line of the
state.

    [16] textbox: Username = kenda (focused)
    [13] select: Country = Chad {Aruba | Chad | Peru}
    [21] checkbox: Send me news (checked)
    [27] item: proin                       a clickable thing without a role of its own
    text: The number is higher than 5.     words that cannot be acted on, so they have no id

The rules are the paper's idea of a state (section 4.1: an abstract text, never raw HTML) for any page: what
can be acted on and is visible, in the page's order, with BrowserGym's ids; words beside a nameless field
become its name; of more elements than the limit those stay that share most with the instruction, fields and
buttons before links. The same page always gives the same lines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

TEXT = "text"
"""The kind of words that cannot be acted on."""
KINDS = {
    **{
        name: name
        for name in (
            "button",
            "link",
            "checkbox",
            "radio",
            "tab",
            "menuitem",
            "slider",
            "treeitem",
            "listbox",
        )
    },
    **{
        "textbox": "textbox",
        "searchbox": "textbox",
        "spinbutton": "textbox",
        "switch": "checkbox",
        "option": "option",
    },
    **{
        "menuitemcheckbox": "checkbox",
        "menuitemradio": "radio",
        "combobox": "textbox",
        "DisclosureTriangle": "button",
    },
    **{"Date": "date", "DateTime": "date", "InputTime": "time", "ColorWell": "textbox", "Summary": "button"},
}
"""Role in the accessibility tree -> the word for it in a state."""
WORDS = frozenset(KINDS.values()) | {"select", "textarea", "item", "image"}
"""All kinds of what can be acted on; `item` and `image` are clickable things without a role of their own."""
EDITABLE = frozenset({"textbox", "textarea", "date", "time"})
"""Kinds that can be filled."""
FIELDS = EDITABLE | {"select", "slider"}
"""Kinds that hold a value."""
FLAGS = ("checked", "selected", "expanded", "disabled", "focused")
LONGEST_TEXT, LONGEST_NAME, MOST_OPTIONS, DEEPEST = 60, 40, 8, 400
_ROW, _RUNNING, _DIRECT = "row", "running", "direct"
"""Kinds of text while a page is read: a row of a table names no field, and what runs around links is no
message. All become TEXT.
"""
INLINE = frozenset(
    {
        "a",
        "abbr",
        "b",
        "bdi",
        "big",
        "cite",
        "code",
        "em",
        "font",
        "i",
        "kbd",
        "mark",
        "q",
        "s",
        "small",
        "span",
        "strong",
        "u",
    }
)
_WEIGHTS = {
    **dict.fromkeys(EDITABLE, 2.0),
    "select": 2.0,
    "checkbox": 1.5,
    "radio": 1.5,
    "button": 1.5,
    "tab": 1.5,
    "slider": 1.5,
}


@dataclass(frozen=True)
class Element:
    """One line of a state. `id` is BrowserGym's; "" for mere text. `flags` are some of FLAGS, in that order.

    `labels` are the options in the page's own words, which a state may shorten; no part of the state.
    """

    kind: str
    name: str = ""
    id: str = ""
    value: str = ""
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def label(self, option: str) -> str:
        """The page's own words for `option`."""
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


class Mark(NamedTuple):
    """What the document tells of a marked element: whether it takes clicks and is in view, its id and class,
    its value, and its tag.
    """

    clickable: bool
    visible: bool
    hint: str
    value: str = ""
    tag: str = ""


def clean(text: str, longest: int = LONGEST_NAME) -> str:
    """`text` on one line without characters that no one sees and without the signs that structure a state,
    cut at `longest` characters.
    """
    seen = "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or unicodedata.category(char)[0] != "C"
    )
    plain = _AS_FLAG.sub(r"\1", " ".join(seen.translate(_SIGNS).split()))
    return plain if len(plain) <= longest else plain[: longest - 1].rstrip() + "…"


_SIGNS = str.maketrans("{}|", "()/")
_AS_FLAG = re.compile(rf"\(((?:{'|'.join(FLAGS)})(?:, (?:{'|'.join(FLAGS)}))*)\)$")
"""Words of the page that would be read as a flag: they lose their brackets."""


def marks(snapshot: Mapping[str, Any]) -> dict[str, Mark]:
    """BrowserGym's id -> `Mark`, from a DOM snapshot of the marked page (CDP's
    DOMSnapshot.captureSnapshot).
    """
    strings = snapshot["strings"]
    names = {
        name: strings.index(name) if name in strings else -1
        for name in ("bid", "browsergym_visibility_ratio", "class", "id", "value")
    }
    found: dict[str, Mark] = {}
    for document in snapshot["documents"]:
        clickable = set(document["nodes"]["isClickable"]["index"])
        for place, attributes in enumerate(document["nodes"]["attributes"]):
            values = dict(zip(attributes[::2], attributes[1::2], strict=False))
            if names["bid"] in values:
                ratio = values.get(names["browsergym_visibility_ratio"])
                words = [
                    strings[values[names[name]]]
                    for name in ("id", "class")
                    if values.get(names[name], -1) >= 0
                ]
                visible = ratio is not None and float(strings[ratio] or 0) > 0
                typed = strings[values[names["value"]]] if values.get(names["value"], -1) >= 0 else ""
                tag = strings[document["nodes"]["nodeName"][place]].lower()
                found[strings[values[names["bid"]]]] = Mark(
                    place in clickable, visible, " ".join(words), typed, tag
                )
    return found


def elements(
    nodes: Sequence[Mapping[str, Any]], marked: Mapping[str, Mark], instruction: str, limit: int
) -> tuple[list[Element], int]:
    """The elements of an accessibility tree that matter for `instruction`, in the page's order, and how many
    more there are.

    Args:
        nodes: BrowserGym's merged tree, its root first.
        marked: see `marks`.
        limit: most elements that can be acted on; at most half as many lines of text, and one more, stand
            beside them uncounted.
    """
    if not nodes:
        return [], 0
    found = _labelled(_Reader(nodes, marked).read(nodes[0]["nodeId"]))
    return _chosen(found, instruction, limit)


class _Reader:
    def __init__(self, nodes: Sequence[Mapping[str, Any]], marked: Mapping[str, Mark]) -> None:
        self.nodes = {node["nodeId"]: node for node in nodes}
        self.marked = marked

    def read(self, name: str, visible: bool = True, depth: int = 0) -> list[Element]:
        """The elements of a node and of what it contains."""
        node = self.nodes.get(name)
        if node is None or depth > DEEPEST:
            return []
        role, bid = _value(node, "role"), node.get("browsergym_id", "")
        mark = self.marked.get(bid)
        visible = mark.visible if mark else visible
        if role == "StaticText" and visible:
            return _text(_value(node, "name"))
        if role in KINDS and bid and not node.get("ignored"):
            return [self._widget(node, role, bid)] if visible else []
        inside = self._inside(node, visible, depth)
        if role == "row" and not any(element.id for element in inside):
            return _row(inside)
        if (
            mark
            and mark.clickable
            and visible
            and role != "LabelText"
            and not any(element.id for element in inside)
        ):
            return _clickable(bid, mark, role, inside, _value(node, "name"))
        return inside

    def _inside(self, node: Mapping[str, Any], visible: bool, depth: int) -> list[Element]:
        """What a node contains; words that run on over inline elements are one text, and such text around
        links is marked as running.
        """
        found: list[Element] = []
        words, around_links = "", False
        for child in node.get("childIds", ()):
            more = self._inline(child) if visible else None
            if more is not None:
                words += more
                continue
            part = self.read(child, visible, depth + 1)
            around_links = around_links or (len(part) == 1 and part[0].kind in ("item", "link"))
            found += [*_text(words, direct=True), *part]
            words = ""
        found += _text(words, direct=True)
        kind = _RUNNING if around_links else TEXT
        return [replace(element, kind=kind) if element.kind == _DIRECT else element for element in found]

    def _inline(self, name: str) -> str | None:
        """The words of a text, or of an inline element that holds nothing else and cannot be clicked; None
        for any other node.
        """
        node = self.nodes.get(name, {})
        if _value(node, "role") == "StaticText":
            return str(_value(node, "name"))
        mark = self.marked.get(node.get("browsergym_id", ""))
        if (
            not mark
            or mark.tag not in INLINE
            or mark.clickable
            or not mark.visible
            or _value(node, "role") in KINDS
        ):
            return None
        parts = [self._inline(child) for child in node.get("childIds", ())]
        return "".join(part for part in parts if part) if None not in parts else None

    def _widget(self, node: Mapping[str, Any], role: str, bid: str) -> Element:
        kind, properties = KINDS[role], _properties(node)
        labels = tuple(self._options(node)) if role in ("combobox", "listbox") else ()
        options = tuple(clean(label) for label in labels)
        kind = "select" if labels else kind
        kind = "textarea" if kind == "textbox" and properties.get("multiline") else kind
        flags = [
            flag
            for flag in FLAGS
            if properties.get(flag) not in (None, False, "false")
            and (flag != "expanded" or kind not in ("select", "tab"))
        ]
        value = clean(str(_value(node, "value"))) if kind in FIELDS else ""
        if value and not value.strip("•") and bid in self.marked:
            value = clean(
                self.marked[bid].value
            )  # what was typed: the agent knows what it wrote, whatever the screen hides
        name = clean(_value(node, "name")) or (self._hint(bid) if kind == "button" else "")
        name = _label(name) if kind in FIELDS else name
        return Element(kind, name, bid, value, options, tuple(flags), labels)

    def _hint(self, bid: str) -> str:
        mark = self.marked.get(bid)
        return clean(mark.hint) if mark else ""

    def _options(self, node: Mapping[str, Any], depth: int = 0) -> list[str]:
        found = []
        for child in node.get("childIds", ()):
            inner = self.nodes.get(child)
            if inner is not None and _value(inner, "role") == "option":
                found.append(str(_value(inner, "name")))
            elif inner is not None and depth < 3:
                found += self._options(inner, depth + 1)
        return found


def _value(node: Mapping[str, Any], name: str) -> Any:
    return (node.get(name) or {}).get("value", "")


def _properties(node: Mapping[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", {}).get("value") for entry in node.get("properties", ())}


def _text(words: str, *, direct: bool = False) -> list[Element]:
    plain = clean(words, LONGEST_TEXT)
    return [Element(_DIRECT if direct else TEXT, plain)] if plain else []


def _clickable(bid: str, mark: Mark, role: str, inside: Sequence[Element], name: str) -> list[Element]:
    words = clean(" ".join(element.name for element in inside) or name or mark.hint)
    return [Element("image" if role in ("image", "img") else "item", words, bid)] if words else []


def _row(cells: Sequence[Element]) -> list[Element]:
    return [Element(_ROW, clean(" / ".join(cell.name for cell in cells), LONGEST_TEXT))] if cells else []


def _label(words: str) -> str:
    """The name of a field, without what would be taken for the sign before its value."""
    return words[:LONGEST_NAME].replace(" = ", "=").rstrip(" =:")


def _labelled(found: Sequence[Element]) -> list[Element]:
    """Text beside a nameless field becomes its name: the text before it, or behind it where every such field
    has its text there and the first has none before it. Text that only repeats its neighbour's name goes.
    """
    found = _labels_behind(found)
    kept: list[Element] = []
    for element in found:
        before = kept[-1] if kept else None
        if before and before.kind == TEXT and element.kind in FIELDS and not element.name:
            kept[-1] = replace(element, name=_label(before.name))
        elif before and not before.id and element.id and element.name == before.name:
            kept[-1] = element
        elif not (before and not element.id and element.name == before.name):
            kept.append(element)
    return kept


def _labels_behind(found: Sequence[Element]) -> Sequence[Element]:
    nameless = [place for place, element in enumerate(found) if element.kind in FIELDS and not element.name]
    followed = [place for place in nameless if place + 1 < len(found) and found[place + 1].kind == TEXT]
    if len(nameless) < 2 or followed != nameless or (nameless[0] and found[nameless[0] - 1].kind == TEXT):
        return found
    taken = {place + 1 for place in nameless}
    moved = [
        replace(element, name=_label(found[place + 1].name)) if place in nameless else element
        for place, element in enumerate(found)
    ]
    return [element for place, element in enumerate(moved) if place not in taken]


def _chosen(found: Sequence[Element], instruction: str, limit: int) -> tuple[list[Element], int]:
    wanted = _words(instruction)
    acted = [place for place, element in enumerate(found) if element.id]
    texts = [place for place, element in enumerate(found) if not element.id]
    texts = [place for place in texts if found[place].kind != _RUNNING or _words(found[place].name) & wanted]
    acted.sort(key=lambda place: (-_score(found[place], instruction.lower(), wanted), place))
    texts.sort(key=lambda place: (-len(_words(found[place].name) & wanted), place))
    places = sorted([*acted[:limit], *texts[: limit // 2 + 1]])
    return [_fitting(found[place], wanted) for place in places], max(0, len(acted) - limit)


def _score(element: Element, instruction: str, wanted: frozenset[str]) -> float:
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
    shared = 2.0 * len(words & wanted) / len(words) if words else 0.0
    return (
        exact
        + shared
        + _WEIGHTS.get(element.kind, 1.0)
        + (1.0 if "focused" in element.flags or "checked" in element.flags else 0.0)
    )


def _fitting(element: Element, wanted: frozenset[str]) -> Element:
    """A list of options that is too long keeps its current one and those that share a word with the
    instruction, else the first.
    """
    if element.kind in (_ROW, _RUNNING):
        return replace(element, kind=TEXT)
    if len(element.options) <= MOST_OPTIONS:
        return element
    ranked = sorted(
        range(len(element.options)),
        key=lambda place: (
            element.options[place] != element.value,
            not _words(element.options[place]) & wanted,
            place,
        ),
    )
    kept = sorted(ranked[:MOST_OPTIONS])
    return replace(
        element,
        options=tuple(element.options[place] for place in kept),
        labels=tuple(element.labels[place] for place in kept),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
