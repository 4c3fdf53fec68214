"""A report's building blocks, and how they look in Markdown and in HTML.

Blocks hold plain text; the two renderers alone escape it, each in one place (`_escape_markdown`,
`html.escape`). Pictures are embedded as images, whose scripts no browser runs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from components.evaluation.report.episode import Episode, episode_html, episode_lines
from components.evaluation.report.style import STYLE


@dataclass(frozen=True)
class Text:
    """A paragraph, after a coloured badge if it has one."""

    text: str
    badge: str = ""
    good: bool = True


@dataclass(frozen=True)
class Heading:
    """The title of a group inside a section."""

    text: str


@dataclass(frozen=True)
class Name:
    """A cell that names something in words: its `name` in files and in MLflow stands below, then what it
    means.
    """

    words: str
    name: str = ""
    meaning: str = ""


Cell = str | Name


@dataclass(frozen=True)
class Table:
    """Rows of text under headers; columns of numbers stand to the right."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Facts:
    """Pairs of a name and its text, such as the head of a report."""

    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Bar:
    """A share between 0 and 1 with its interval and n; `kind` chooses the colour: cloned, dreamed,
    refined.
    """

    label: str
    value: float
    low: float
    high: float
    n: int
    kind: str = ""


@dataclass(frozen=True)
class Bars:
    """Shares as bars with their intervals; in Markdown a table nearby says the same."""

    caption: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Panel:
    """One curve: its title in words, its name, what it means, its picture, and its values in a line of
    text.
    """

    title: str
    name: str
    meaning: str
    svg: str
    plain: str


@dataclass(frozen=True)
class Panels:
    """Curves beside one another, as many as the page is wide."""

    panels: Sequence[Panel]


@dataclass(frozen=True)
class Figure:
    """A picture for HTML, and `plain` lines in its place for Markdown (empty: a table nearby says the
    same).
    """

    svg: str
    caption: str
    plain: str = ""


@dataclass(frozen=True)
class Code:
    """Lines to be read or typed as they stand."""

    text: str


_NAMES = {"metric", "condition", "policy", "stage", "key"}

Block = Text | Heading | Table | Facts | Bars | Panels | Figure | Code | Episode


@dataclass(frozen=True)
class Section:
    """A title and its blocks; a folded one is closed at first in HTML."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False


def to_markdown(title: str, head: Sequence[Block], sections: Sequence[Section]) -> str:
    """The report as Markdown."""
    parts = [f"# {_escape_markdown(title)}", blocks_to_markdown(head)]
    for section in sections:
        parts += [f"## {_escape_markdown(section.title)}", blocks_to_markdown(section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def blocks_to_markdown(blocks: Sequence[Block]) -> str:
    """Some blocks as Markdown; pictures are left out."""
    return "\n\n".join(text for block in blocks if (text := _markdown(block)))


def to_html(title: str, head: Sequence[Block], sections: Sequence[Section]) -> str:
    """The report as one HTML page without references to anything outside; its policy lets no script run."""
    top = "\n".join(_html(block, first=False) for block in head)
    body = "\n".join(_html_section(section) for section in sections)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<header><p>DreamGym</p><h1>{escape(title)}</h1>\n{top}</header>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _markdown(block: Block) -> str:
    match block:
        case Text():
            return (f"**{_escape_markdown(block.badge)}.** " if block.badge else "") + _escape_markdown(
                block.text
            )
        case Heading():
            return f"### {_escape_markdown(block.text)}"
        case Table():
            ruler = ["---:" if right else "---" for right in _right(block)]
            return "\n".join(_markdown_row(cells) for cells in (block.headers, ruler, *block.rows))
        case Facts():
            return "\n".join(
                f"- {_escape_markdown(name)}: {_escape_markdown(text)}" for name, text in block.entries
            )
        case Bars():
            return ""
        case Panels():
            width = max(len(panel.name) for panel in block.panels)
            return _fenced("\n".join(f"{panel.name:<{width}}  {panel.plain}" for panel in block.panels))
        case Figure():
            return _fenced(block.plain) if block.plain else ""
        case Code():
            return _fenced(block.text)
        case Episode():
            head = f"**{_escape_markdown(block.task)}** ({block.verdict})"
            return "\n\n".join(
                part for part in (head, _fenced(episode_lines(block)), _escape_markdown(block.note)) if part
            )


def _markdown_row(cells: Sequence[Cell]) -> str:
    return "| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return _escape_markdown(cell)
    return _escape_markdown(
        f"{cell.words} ({cell.name})" if cell.name and cell.name != cell.words else cell.words
    )


def _escape_markdown(text: str) -> str:
    """One line of text that Markdown shows as it stands; an underscore inside a word needs no escape."""
    text = re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks in the text, so that the text cannot end
    it.
    """
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _html_section(section: Section) -> str:
    first_episode = next((block for block in section.blocks if isinstance(block, Episode)), None)
    body = "\n".join(_html(block, first=block is first_episode) for block in section.blocks)
    if section.folded:
        return f"<section><details><summary>{escape(section.title)}</summary>\n{body}\n</details></section>"
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{body}\n</section>"


def _html(block: Block, *, first: bool) -> str:
    match block:
        case Text():
            return f"<p>{_badge(block.badge, block.good) if block.badge else ''}{escape(block.text)}</p>"
        case Heading():
            return f"<h3>{escape(block.text)}</h3>"
        case Table():
            return _html_table(block)
        case Facts():
            return (
                "<dl>"
                + "".join(
                    f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
                    for name, text in block.entries
                )
                + "</dl>"
            )
        case Bars():
            bars = "".join(map(_html_bar, block.bars))
            return f'<figure class="bars"><figcaption>{escape(block.caption)}</figcaption>{bars}</figure>'
        case Panels():
            return f'<div class="panels">{"".join(map(_html_panel, block.panels))}</div>'
        case Figure():
            caption = escape(block.caption)
            return f"<figure><figcaption>{caption}</figcaption>{_image(block.svg, block.caption)}</figure>"
        case Code():
            return f"<pre>{escape(block.text)}</pre>"
        case Episode():
            return episode_html(block, _badge(block.verdict, block.confirmed), shown=first)


def _image(svg: str, words: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def _html_panel(panel: Panel) -> str:
    meaning = f'<p class="meaning">{escape(panel.meaning)}</p>' if panel.meaning else ""
    caption = f"<figcaption><dfn>{escape(panel.title)}</dfn> <code>{escape(panel.name)}</code></figcaption>"
    return f"<figure>{caption}{_image(panel.svg, f'{panel.title} by iteration')}{meaning}</figure>"


def _html_bar(bar: Bar) -> str:
    low, high = max(0.0, bar.low), min(1.0, bar.high)
    interval = f'<span class="interval" style="left:{low:.1%};width:{max(0.0, high - low):.1%}"></span>'
    fill = f'<span class="fill {escape(bar.kind)}" style="width:{min(1.0, max(0.0, bar.value)):.1%}"></span>'
    number = f'<span class="number">{bar.value:.1%} <small>n = {bar.n:,}</small></span>'
    return (
        f'<div class="bar"><span class="label">{escape(bar.label)}</span><span '
        f'class="track">{fill}{interval}</span>{number}</div>'
    )


def _html_table(table: Table) -> str:
    right = _right(table)
    head = "".join(
        f"<th{_align(r)}>{escape(cell)}</th>" for cell, r in zip(table.headers, right, strict=True)
    )
    rows = "\n".join(
        "<tr>" + "".join(_html_cell(cell, r) for cell, r in zip(row, right, strict=True)) + "</tr>"
        for row in table.rows
    )
    table_html = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f'<div class="scroll">{table_html}</div>'


def _html_cell(cell: Cell, right: bool) -> str:
    if isinstance(cell, Name):
        name = f" <code>{escape(cell.name)}</code>" if cell.name and cell.name != cell.words else ""
        meaning = f'<span class="meaning">{escape(cell.meaning)}</span>' if cell.meaning else ""
        return f'<td class="named"><dfn>{escape(cell.words)}</dfn>{name}{meaning}</td>'
    badges = {"pass": True, "fail": False, "computed": None, "reused": True}
    return f"<td{_align(right)}>{_badge(cell, badges[cell]) if cell in badges else escape(cell)}</td>"


def _badge(text: str, good: bool | None) -> str:
    kind = {True: "good", False: "bad", None: "plain"}[good]
    return f'<span class="badge {kind}">{escape(text)}</span> '


def _align(right: bool) -> str:
    return ' class="right"' if right else ""


def _right(table: Table) -> list[bool]:
    """Columns whose filled cells are numbers or intervals; names and keys may begin with a digit but stand to
    the left.
    """
    return [
        header not in _NAMES and _numeric([row[column] for row in table.rows])
        for column, header in enumerate(table.headers)
    ]


def _numeric(cells: Sequence[Cell]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(
        isinstance(cell, str) and re.match(r"[-+]?\d|not measured", cell) for cell in filled
    )
