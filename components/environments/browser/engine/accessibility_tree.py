"""Read the elements of a page from its accessibility tree and its DOM snapshot, in the page's order.

The paper asks for an abstract text as state, never raw HTML (section 4.1). The rules here hold for any page:
a state has what can be acted on and is visible, with BrowserGym's ids. The same page always gives the same
elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from components.environments.browser.engine.element_selection import join_labels, select_elements
from components.environments.browser.engine.elements import (
    DIRECT_TEXT,
    FIELDS,
    FLAGS,
    KIND_BY_ROLE,
    MAX_TEXT_LENGTH,
    RUNNING_TEXT,
    TABLE_ROW,
    TEXT,
    Element,
    clean_text,
    field_name,
)

MAX_DEPTH = 400
"""Depth of the tree below which nothing is read."""
_INLINE_TEXT = "a abbr b bdi big cite code em font i kbd mark q s small span strong u"
INLINE_TAGS = frozenset(_INLINE_TEXT.split())
"""Tags of elements over which a text runs on."""


class Mark(NamedTuple):
    """What the DOM snapshot says of a marked element.

    Whether it takes clicks and is in view, its id and class (`hint`), its value, and its tag.
    """

    clickable: bool
    visible: bool
    hint: str
    value: str = ""
    tag: str = ""


def read_marks(snapshot: Mapping[str, Any]) -> dict[str, Mark]:
    """Return BrowserGym's id -> `Mark`, from a DOM snapshot of the marked page.

    Args:
        snapshot: the answer of CDP's DOMSnapshot.captureSnapshot.
    """
    strings = snapshot["strings"]
    names = {
        name: strings.index(name) if name in strings else -1
        for name in ("bid", "browsergym_visibility_ratio", "class", "id", "value")
    }
    marks: dict[str, Mark] = {}
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
                marks[strings[values[names["bid"]]]] = Mark(
                    place in clickable, visible, " ".join(words), typed, tag
                )
    return marks


def extract_elements(
    nodes: Sequence[Mapping[str, Any]], marks: Mapping[str, Mark], instruction: str, limit: int
) -> tuple[list[Element], int]:
    """Return the elements of a page that matter for `instruction`, in the page's order.

    Args:
        nodes: BrowserGym's merged tree, its root first.
        marks: see `read_marks`.
        instruction: the task's.
        limit: most elements that can be acted on. Half as many lines of text, and one more, come in addition.

    Returns:
        The elements, and the number of elements that were left out.
    """
    if not nodes:
        return [], 0
    elements = join_labels(_TreeReader(nodes, marks).read(nodes[0]["nodeId"]))
    return select_elements(elements, instruction, limit)


class _TreeReader:
    """Reads all visible elements of one accessibility tree."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], marks: Mapping[str, Mark]) -> None:
        self.nodes = {node["nodeId"]: node for node in nodes}
        self.marks = marks

    def read(self, node_id: str, visible: bool = True, depth: int = 0) -> list[Element]:
        """Return the elements of a node and of what it contains."""
        node = self.nodes.get(node_id)
        if node is None or depth > MAX_DEPTH:
            return []
        role = _value(node, "role")
        bid = node.get("browsergym_id", "")
        mark = self.marks.get(bid)
        visible = mark.visible if mark else visible
        if role == "StaticText" and visible:
            return _text_elements(_value(node, "name"))
        if role in KIND_BY_ROLE and bid and not node.get("ignored"):
            return [self._widget(node, role, bid)] if visible else []
        children = self._children(node, visible, depth)
        if role == "row" and not any(element.id for element in children):
            return _row_elements(children)
        if (
            mark
            and mark.clickable
            and visible
            and role != "LabelText"
            and not any(element.id for element in children)
        ):
            return _clickable_elements(bid, mark, role, children, _value(node, "name"))
        return children

    def _children(self, node: Mapping[str, Any], visible: bool, depth: int) -> list[Element]:
        """Return the elements that a node contains.

        Words that run on over inline elements are one text. Such text around links is marked as running.
        """
        elements: list[Element] = []
        words = ""
        has_links = False
        for child in node.get("childIds", ()):
            inline_words = self._inline_words(child) if visible else None
            if inline_words is not None:
                words += inline_words
                continue
            part = self.read(child, visible, depth + 1)
            has_links = has_links or (len(part) == 1 and part[0].kind in ("item", "link"))
            elements += [*_text_elements(words, direct=True), *part]
            words = ""
        elements += _text_elements(words, direct=True)
        kind = RUNNING_TEXT if has_links else TEXT
        return [
            replace(element, kind=kind) if element.kind == DIRECT_TEXT else element for element in elements
        ]

    def _inline_words(self, node_id: str) -> str | None:
        """Return the words of a text, or of an inline element that holds only words and takes no clicks.

        Returns None for any other node.
        """
        node = self.nodes.get(node_id, {})
        if _value(node, "role") == "StaticText":
            return str(_value(node, "name"))
        mark = self.marks.get(node.get("browsergym_id", ""))
        if (
            not mark
            or mark.tag not in INLINE_TAGS
            or mark.clickable
            or not mark.visible
            or _value(node, "role") in KIND_BY_ROLE
        ):
            return None
        parts = [self._inline_words(child) for child in node.get("childIds", ())]
        return "".join(part for part in parts if part) if None not in parts else None

    def _widget(self, node: Mapping[str, Any], role: str, bid: str) -> Element:
        """Return the element of a node with a role that can be acted on."""
        kind = KIND_BY_ROLE[role]
        properties = _properties(node)
        labels = tuple(self._option_labels(node)) if role in ("combobox", "listbox") else ()
        options = tuple(clean_text(label) for label in labels)
        kind = "select" if labels else kind
        kind = "textarea" if kind == "textbox" and properties.get("multiline") else kind
        flags = [
            flag
            for flag in FLAGS
            if properties.get(flag) not in (None, False, "false")
            and (flag != "expanded" or kind not in ("select", "tab"))
        ]
        value = clean_text(str(_value(node, "value"))) if kind in FIELDS else ""
        if value and not value.strip("•") and bid in self.marks:
            # The screen hides a password, but the agent knows what it typed.
            value = clean_text(self.marks[bid].value)
        name = clean_text(_value(node, "name")) or (self._hint(bid) if kind == "button" else "")
        name = field_name(name) if kind in FIELDS else name
        return Element(kind, name, bid, value, options, tuple(flags), labels)

    def _hint(self, bid: str) -> str:
        mark = self.marks.get(bid)
        return clean_text(mark.hint) if mark else ""

    def _option_labels(self, node: Mapping[str, Any], depth: int = 0) -> list[str]:
        labels = []
        for child_id in node.get("childIds", ()):
            child = self.nodes.get(child_id)
            if child is not None and _value(child, "role") == "option":
                labels.append(str(_value(child, "name")))
            elif child is not None and depth < 3:
                labels += self._option_labels(child, depth + 1)
        return labels


def _value(node: Mapping[str, Any], name: str) -> Any:
    return (node.get(name) or {}).get("value", "")


def _properties(node: Mapping[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", {}).get("value") for entry in node.get("properties", ())}


def _text_elements(words: str, *, direct: bool = False) -> list[Element]:
    plain = clean_text(words, MAX_TEXT_LENGTH)
    return [Element(DIRECT_TEXT if direct else TEXT, plain)] if plain else []


def _clickable_elements(
    bid: str, mark: Mark, role: str, children: Sequence[Element], name: str
) -> list[Element]:
    words = clean_text(" ".join(element.name for element in children) or name or mark.hint)
    return [Element("image" if role in ("image", "img") else "item", words, bid)] if words else []


def _row_elements(cells: Sequence[Element]) -> list[Element]:
    return (
        [Element(TABLE_ROW, clean_text(" / ".join(cell.name for cell in cells), MAX_TEXT_LENGTH))]
        if cells
        else []
    )
