"""Renders a report's blocks as Markdown and as HTML.

Blocks contain plain text. Only the two renderers escape it, each in one place (`_escape_markdown`,
`html.escape`). Pictures are embedded as images, so no browser runs scripts inside them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

from components.evaluation.report.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Heading,
    Name,
    Panel,
    Panels,
    Section,
    Table,
    Text,
)
from components.evaluation.report.episode import Episode, episode_to_html, episode_to_text
from components.evaluation.report.style import STYLE

_LEFT_ALIGNED = {"metric", "condition", "policy", "stage", "key"}
"""Headers of columns with names, which are left-aligned even if they begin with a digit."""
_BADGE_QUALITY = {"pass": True, "fail": False, "computed": None, "reused": True}
"""Cell text shown as a badge -> True for green, False for red, None for grey."""


def to_markdown(title: str, head: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the report as Markdown."""
    parts = [f"# {_escape_markdown(title)}", blocks_to_markdown(head)]
    for section in sections:
        parts += [f"## {_escape_markdown(section.title)}", blocks_to_markdown(section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def blocks_to_markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown, without pictures."""
    return "\n\n".join(text for block in blocks if (text := _block_to_markdown(block)))


def to_html(title: str, head: Sequence[Block], sections: Sequence[Section]) -> str:
    """Return the report as one self-contained HTML page.

    The page refers to no other file, and its content security policy forbids scripts.
    """
    top = "\n".join(_block_to_html(block, is_first_episode=False) for block in head)
    body = "\n".join(_section_to_html(section) for section in sections)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<header><p>DreamGym</p><h1>{escape(title)}</h1>\n{top}</header>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def _block_to_markdown(block: Block) -> str:
    match block:
        case Text():
            badge = f"**{_escape_markdown(block.badge)}.** " if block.badge else ""
            return badge + _escape_markdown(block.text)
        case Heading():
            return f"### {_escape_markdown(block.text)}"
        case Table():
            ruler = ["---:" if is_right else "---" for is_right in _right_aligned(block)]
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
                part for part in (head, _fenced(episode_to_text(block)), _escape_markdown(block.note)) if part
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
    """Return one line that Markdown shows verbatim; an underscore inside a word needs no escape."""
    text = re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: str) -> str:
    """Return a code block whose fence is longer than any run of backticks in the text.

    So the text cannot close the block.
    """
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _section_to_html(section: Section) -> str:
    first_episode = next((block for block in section.blocks if isinstance(block, Episode)), None)
    body = "\n".join(
        _block_to_html(block, is_first_episode=block is first_episode) for block in section.blocks
    )
    if section.folded:
        return f"<section><details><summary>{escape(section.title)}</summary>\n{body}\n</details></section>"
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{body}\n</section>"


def _block_to_html(block: Block, *, is_first_episode: bool) -> str:
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
            return episode_to_html(block, _badge(block.verdict, block.confirmed), is_open=is_first_episode)


def _image(svg: str, alternative_text: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(alternative_text)}" src="data:image/svg+xml;base64,{data}">'


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
    right_aligned = _right_aligned(table)
    head = "".join(
        f"<th{_alignment(is_right)}>{escape(cell)}</th>"
        for cell, is_right in zip(table.headers, right_aligned, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(_html_cell(cell, is_right) for cell, is_right in zip(row, right_aligned, strict=True))
        + "</tr>"
        for row in table.rows
    )
    table_html = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f'<div class="scroll">{table_html}</div>'


def _html_cell(cell: Cell, is_right: bool) -> str:
    if isinstance(cell, Name):
        name = f" <code>{escape(cell.name)}</code>" if cell.name and cell.name != cell.words else ""
        meaning = f'<span class="meaning">{escape(cell.meaning)}</span>' if cell.meaning else ""
        return f'<td class="named"><dfn>{escape(cell.words)}</dfn>{name}{meaning}</td>'
    content = _badge(cell, _BADGE_QUALITY[cell]) if cell in _BADGE_QUALITY else escape(cell)
    return f"<td{_alignment(is_right)}>{content}</td>"


def _badge(text: str, good: bool | None) -> str:
    kind = {True: "good", False: "bad", None: "plain"}[good]
    return f'<span class="badge {kind}">{escape(text)}</span> '


def _alignment(is_right: bool) -> str:
    return ' class="right"' if is_right else ""


def _right_aligned(table: Table) -> list[bool]:
    """Return for each column whether all its non-empty cells are numbers or intervals."""
    return [
        header not in _LEFT_ALIGNED and _is_numeric([row[column] for row in table.rows])
        for column, header in enumerate(table.headers)
    ]


def _is_numeric(cells: Sequence[Cell]) -> bool:
    non_empty = [cell for cell in cells if cell]
    return bool(non_empty) and all(
        isinstance(cell, str) and re.match(r"[-+]?\d|not measured", cell) for cell in non_empty
    )
