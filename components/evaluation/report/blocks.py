"""The blocks of a report: plain text and numbers, without any markup.

`render.py` turns them into Markdown and HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.evaluation.report.episode import Episode


@dataclass(frozen=True)
class Text:
    """A paragraph. A non-empty `badge` is shown before it, green if `good`, else red."""

    text: str
    badge: str = ""
    good: bool = True


@dataclass(frozen=True)
class Heading:
    """The title of a group inside a section."""

    text: str


@dataclass(frozen=True)
class Name:
    """A table cell: a name in words, its identifier in files and in MLflow, and an explanation."""

    words: str
    name: str = ""
    meaning: str = ""


Cell = str | Name


@dataclass(frozen=True)
class Table:
    """Rows of cells under headers. Columns of numbers are right-aligned."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Facts:
    """Pairs of a name and its text, such as the head of a report."""

    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1 with its interval and n.

    `kind` selects the colour: cloned, dreamed or refined.
    """

    label: str
    value: float
    low: float
    high: float
    n: int
    kind: str = ""


@dataclass(frozen=True)
class Bars:
    """Shares as bars with intervals. Markdown omits them, because a table contains the same numbers."""

    caption: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Panel:
    """One curve: title, identifier, explanation, SVG picture, and the values as one line of text."""

    title: str
    name: str
    meaning: str
    svg: str
    plain: str


@dataclass(frozen=True)
class Panels:
    """Curves next to each other, as many per row as the page is wide."""

    panels: Sequence[Panel]


@dataclass(frozen=True)
class Figure:
    """A picture for HTML. Markdown shows the `plain` lines instead, or nothing if they are empty."""

    svg: str
    caption: str
    plain: str = ""


@dataclass(frozen=True)
class Code:
    """Lines shown verbatim, such as commands to type."""

    text: str


Block = Text | Heading | Table | Facts | Bars | Panels | Figure | Code | Episode


@dataclass(frozen=True)
class Section:
    """A title and its blocks. In HTML a `folded` section is closed at first."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False
