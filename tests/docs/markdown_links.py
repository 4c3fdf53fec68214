"""Headings and links of Markdown pages, read as a reader follows them: no link to another host is opened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_FENCED_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED_CODE = re.compile(r"^(?: {4}|\t)(?! *[-*] ).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_OTHER_HOST = re.compile(r"[a-z][a-z+.-]*:")


@dataclass(frozen=True)
class Link:
    """A relative link of a page: the file, and the anchor in it, "" for none."""

    page: Path
    target: str

    @property
    def path(self) -> Path:
        name = unquote(self.target.partition("#")[0])
        return (self.page.parent / name).resolve() if name else self.page

    @property
    def anchor(self) -> str:
        return unquote(self.target.partition("#")[2])


def without_code(text: str) -> str:
    """`text` without its code: what stands there is no link."""
    for code in (_FENCED_CODE, _INDENTED_CODE):
        text = code.sub("", text)
    return text


def links(page: Path) -> list[Link]:
    """The relative links and pictures of a page."""
    targets = _LINK.findall(without_code(page.read_text(encoding="utf-8")))
    return [Link(page, target) for target in targets if not _OTHER_HOST.match(target)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs name them."""
    text = _FENCED_CODE.sub("", page.read_text(encoding="utf-8"))
    return {anchor_of(heading) for heading in _HEADING.findall(text)}


def anchor_of(heading: str) -> str:
    """`heading` as an anchor: lower case, signs left out, blanks as hyphens."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())


def broken(page: Path) -> list[str]:
    """What is wrong with each relative link of `page` that leads nowhere."""
    wrong = []
    for link in links(page):
        if not link.path.exists():
            wrong.append(f"{page.name}: {link.target}: there is no such file")
        elif link.anchor and link.path.suffix == ".md" and link.anchor not in anchors(link.path):
            wrong.append(f"{page.name}: {link.target}: {link.path.name} has no such heading")
    return wrong


def words(text: str) -> int:
    """Words that a reader sees: table rows, link targets, comments and signs alone do not count."""
    shown = re.sub(r"\]\([^)]*\)", "]", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith("|")]
    return sum(bool(re.search(r"\w", word)) for word in " ".join(lines).split())
