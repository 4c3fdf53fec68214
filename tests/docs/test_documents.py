"""The documents: links and anchors lead somewhere, pages keep their limits, generated parts are current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "docs" / "scripts")]

import make_tables  # noqa: E402
import make_tree  # noqa: E402
from markdown_links import anchor_of, broken, words  # noqa: E402

DOCS = ROOT / "docs"
EXPERIMENTS = sorted((DOCS / "experiments").glob("*.md"))
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "infra/README.md")),
    ROOT / "mlflow" / "README.md",
]
README_WORDS = 600
FETCHED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon)\b[^>]*\bhref=[\"']?(?:https?:)?//"
)
"""What a browser loads from another host when it opens a page."""
EXPERIMENT_WORDS = 400


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_relative_link_or_anchor_is_broken(page):
    assert broken(page) == []


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# The gate's own metrics\n")
    page.write_text(
        "[a](other.md#the-gates-own-metrics) [b](other.md#gone) ![c](gone.png) [d](https://x.example)\n"
    )
    assert [wrong.split(": ")[1] for wrong in broken(page)] == ["other.md#gone", "gone.png"]
    assert anchor_of("Study: a backbone of Qwen's `architecture`") == "study-a-backbone-of-qwens-architecture"


def test_links_in_code_are_no_links(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```\n[a](gone.md)\n```\n\n    [b](gone.md)\n")
    assert broken(page) == []


def test_every_page_stands_in_the_navigation_of_the_site():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_every_experiment_stands_in_the_index():
    index = (DOCS / "experiments" / "index.md").read_text()
    assert [page.name for page in EXPERIMENTS if f"({page.name})" not in index] == ["index.md"]


def test_every_picture_is_shown():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in sorted((DOCS / "images").iterdir()) if path.name not in shown] == []


@pytest.mark.parametrize("page", EXPERIMENTS, ids=lambda page: page.name)
def test_an_experiment_is_one_short_page(page):
    text = page.read_text(encoding="utf-8")
    assert words(text) <= EXPERIMENT_WORDS
    if page.name != "index.md":
        for part in ("**Question.**", "**Setup.**", "**Result", "**Decision.**"):
            assert part in text, f"{part} is missing"


def test_the_readme_says_what_it_must_in_few_words():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, _, _ = text.partition("\n## Reference\n")
    assert words(first) <= README_WORDS
    for must in ("docs/images/loop.svg", "make run", "make play", "(LICENSE)", "2511.03773"):
        assert must in first, must
    rows = re.search(r"<!-- results:begin -->\n(.*?)\n<!-- results:end -->", text, re.DOTALL)[1].splitlines()
    assert 0 < len(rows) - 2 <= 8


def test_the_tables_are_those_of_the_json_files():
    assert make_tables.differing_tables() == []


def test_a_table_that_was_edited_by_hand_is_found(tmp_path):
    for document in make_tables.TABLES:
        (tmp_path / document).parent.mkdir(exist_ok=True)
        text = (ROOT / document).read_text(encoding="utf-8")
        (tmp_path / document).write_text(text.replace("0.642 (", "0.742 ("), encoding="utf-8")
    assert make_tables.differing_tables(tmp_path) == [
        "README.md: results",
        "docs/experiments/weak-logs.md: study-weak",
    ]


@pytest.mark.parametrize("page", ["results", "all-tables"])
def test_outside_its_tables_a_page_of_results_holds_no_measured_number(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    typed = re.sub(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
    assert re.findall(r"\d\.\d+", typed) == []


def test_the_tree_is_that_of_the_modules():
    assert make_tree.is_current(), "Type: python docs/scripts/make_tree.py"


def test_every_published_figure_has_an_interval_and_a_count():
    for name in (
        "study",
        "study-weak",
        "study-logs-only",
        "study-qwen",
        "study-webshop",
        "fidelity",
        "fidelity-cpu",
    ):
        for metrics in json.loads((DOCS / "results" / f"{name}.json").read_text()).values():
            for value in metrics.values():
                assert {"value", "n", "low", "high"} <= value.keys()


def test_the_site_builds_strictly_and_asks_no_other_host(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is part of the extra dev")
    pytest.importorskip("material", reason="mkdocs-material is part of the extra dev")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    assert [page.name for page in pages if FETCHED.search(page.read_text(encoding="utf-8"))] == []
