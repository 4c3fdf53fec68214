"""Make Great Expectations' Data Docs usable without a network, with rules as sentences on the first page.

Great Expectations loads styles, scripts and images of its pages from other servers. Without a network the
pages have no style, and the list on the first page, which a script fills, is empty. Here each page contains
its style, and the first page is written by this module.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<footer\b.*?</footer>", re.DOTALL | re.IGNORECASE
)
_LINK = re.compile(r"<(?:link|img)\b[^>]*?(?:href|src)=\"[^\"]*\"[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<title>.*?</title>", re.DOTALL | re.IGNORECASE)
_HEADING = re.compile(r"<h4>\s*Expectation (?:Validation Result|Suite)\s*</h4>", re.IGNORECASE)
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#1b1f24;background:#fff;margin:0 auto;
max-width:1200px;padding:16px}
h1{font-size:22px;margin:8px 0}h4{font-size:18px;margin:8px 0}p.lead{margin:0 0 12px;color:#57606a}
a{color:#0b5cad}code,pre{font:13px ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:8px 0 16px;width:100%}
th,td{border:1px solid #d0d7de;padding:5px 8px;text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{background:#f6f8fa}td.n{text-align:right;white-space:nowrap}
.row{display:flex;gap:20px}.col-lg-2{flex:0 0 210px}.col-lg-10{flex:1;min-width:0}
.sticky{position:sticky;top:8px}
.card{border:1px solid #d0d7de;border-radius:6px;margin:8px 0}
.card-header{background:#f6f8fa;padding:6px 10px}
.card-body{padding:6px 10px;max-height:75vh;overflow:auto}.card:has(.btn-group-toggle){display:none}
ul.nav{list-style:none;margin:0;padding:0}
ol.breadcrumb{display:flex;gap:8px;list-style:none;padding:0;color:#57606a}
.collapse{display:none}.collapse:target{display:block}.navbar{padding:0}
.text-danger,.broken{color:#b42318}.text-success,.kept{color:#11713b}
.fa-check-circle::before,.kept::before{content:"\\2714  "}
.fa-times::before,.broken::before{content:"\\2718  "}
.badge{background:#eaeef2;border-radius:4px;padding:0 4px}.modal{display:none}
"""


@dataclass(frozen=True)
class Rule:
    """A rule on the first page. `kept` is True if no row breaks it."""

    name: str
    sentence: str
    kept: bool
    broken_rows: int


def make_local(docs: Path, title: str, facts: Sequence[tuple[str, str]], rules: Sequence[Rule]) -> None:
    """Rewrite all pages below `docs` so that they need no other host, and write the first page.

    Args:
        title: title of all pages.
        facts: names and values for the top of the first page.
        rules: rules for the table of the first page.
    """
    for page in sorted(docs.rglob("*.html")):
        page.write_text(_without_links(page.read_text(encoding="utf-8"), title), encoding="utf-8")
    (docs / "index.html").write_text(_first_page(docs, title, facts, rules), encoding="utf-8")


def _without_links(page: str, title: str) -> str:
    page = _LINK.sub("", _SCRIPT.sub("", page))
    name = html.escape(title)
    page = _TITLE.sub(lambda _: f"<title>{name}</title>", page)
    page = _HEADING.sub(lambda _: f"<h4>{name}</h4>", page)
    return page.replace("</head>", f"<style>{_STYLE}</style></head>", 1)


def _first_page(docs: Path, title: str, facts: Sequence[tuple[str, str]], rules: Sequence[Rule]) -> str:
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    about = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts
    )
    rule_rows = "".join(_row(rule) for rule in sorted(rules, key=lambda rule: rule.kept))
    pages = [
        page.relative_to(docs).as_posix()
        for page in sorted(docs.rglob("*.html"))
        if page.name != "index.html"
    ]
    links = "".join(
        f'<li><a href="{html.escape(page)}">{html.escape(_page_title(page))}</a></li>' for page in pages
    )
    columns = "<tr><th>Result</th><th>Rule</th><th>Name</th><th>Rows that break it</th></tr>"
    return (
        "<!doctype html><html "
        f'lang="en"><head>{head}</head><body><h1>{html.escape(title)}</h1><table>{about}</table>'
        f"<table>{columns}{rule_rows}</table><h4>Pages of Great "
        f"Expectations</h4><ul>{links}</ul></body></html>\n"
    )


def _row(rule: Rule) -> str:
    state = "kept" if rule.kept else "broken"
    cells = f"<td>{html.escape(rule.sentence)}</td><td><code>{html.escape(rule.name)}</code></td>"
    return f'<tr><td class="{state}">{state}</td>{cells}<td class="n">{rule.broken_rows:,}</td></tr>'


def _page_title(page: str) -> str:
    kind, _, rest = page.partition("/")
    subject = "columns of the file" if "columns" in rest else "transitions"
    return f"{'Results' if kind == 'validations' else 'Rules'}: {subject}"
