"""The report as a reader has it: opened from the disk in a real Chromium, wide and on a telephone."""

from __future__ import annotations

import shutil

import pytest
from test_report import EVIL, SECTIONS, STEP, make_data

from components.environments.browser.engine.chromium import NAMES, SWITCHES
from components.evaluation.report.run_report import write_report

CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here (apt-get install chromium)"
)


@pytest.fixture(scope="module")
def chromium():
    """A browser that ends with the tests of this file."""
    playwright = pytest.importorskip("playwright.sync_api").sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
    yield browser
    browser.close()
    playwright.stop()


@pytest.fixture(params=[(1280, 900), (390, 800)], ids=["wide", "telephone"])
def page(request, chromium, tmp_path):
    """The report of a run with two dreamed episodes; what the page asks for or complains of is in
    `page.heard`.
    """
    differing = {
        "action": "open fridge 1",
        "state": f"In it mug 1 {EVIL}.",
        "real": "In it cup 2.",
        "facts": {"denied": ["in mug 1"]},
    }
    second = [
        {
            "action": "look",
            "state": "A long dreamed state " * 20,
            "real": "A long real state " * 20,
            "facts": {},
        }
    ]
    examples = [
        {"task": f"cool {EVIL}", "confirmed": False, "steps": [STEP, differing]},
        {"task": "heat it", "confirmed": True, "steps": second},
    ]
    _, file = write_report(tmp_path, make_data(examples=examples))
    width, height = request.param
    shown, heard = chromium.new_page(viewport={"width": width, "height": height}), []
    shown.on("console", lambda message: heard.append(message.text))
    shown.on("pageerror", lambda error: heard.append(str(error)))
    shown.on("dialog", lambda dialog: heard.append(dialog.message) or dialog.dismiss())
    shown.on("request", lambda asked: heard.append(asked.url) if asked.url != file.as_uri() else None)
    shown.goto(file.as_uri())
    shown.heard = heard
    yield shown
    shown.close()


def test_it_asks_for_nothing_and_complains_of_nothing(page):
    assert page.title() and page.heard == []


def test_every_section_is_seen(page):
    for words in SECTIONS:
        heading = page.get_by_role("heading", name=words, exact=False).first
        assert heading.is_visible() and heading.bounding_box()["height"] > 10, words
    assert all(
        box["width"] > 50 and box["height"] > 20
        for box in (svg.bounding_box() for svg in page.locator("svg").all())
    )


def test_the_page_itself_never_scrolls_sideways(page):
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_dream_is_opened_and_what_reality_denies_is_marked(page):
    first, second = page.locator("details.episode").all()
    assert (
        page.get_by_text("In it mug 1", exact=False).first.is_visible()
        and not second.locator("text=A long real state").first.is_visible()
    )
    second.locator("summary").click()
    assert second.locator("text=A long real state").first.is_visible()
    mark = first.locator("mark").first
    assert mark.is_visible() and mark.evaluate("e => getComputedStyle(e).backgroundColor") not in (
        "rgba(0, 0, 0, 0)",
        "rgb(255, 255, 255)",
    )
    assert page.heard == []
