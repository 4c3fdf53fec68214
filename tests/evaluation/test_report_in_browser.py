"""The HTML report opened from the disk in a real Chromium, on a wide and on a narrow screen."""

from __future__ import annotations

import shutil

import pytest
from test_report import SCRIPT, SECTIONS, STEP, make_data

from components.environments.browser.engine.chromium import NAMES, SWITCHES
from components.evaluation.report.run_report import write_report

CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here (apt-get install chromium)"
)


@pytest.fixture(scope="module")
def chromium():
    """Yield a browser that is closed after the tests of this file."""
    playwright = pytest.importorskip("playwright.sync_api").sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
    yield browser
    browser.close()
    playwright.stop()


@pytest.fixture(params=[(1280, 900), (390, 800)], ids=["wide", "narrow"])
def page(request, chromium, tmp_path):
    """Yield the report of a run with two dreamed episodes.

    `page.events` lists console messages, errors, dialogs and requests to other addresses.
    """
    differing = {
        "action": "open fridge 1",
        "state": f"In it mug 1 {SCRIPT}.",
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
        {"task": f"cool {SCRIPT}", "confirmed": False, "steps": [STEP, differing]},
        {"task": "heat it", "confirmed": True, "steps": second},
    ]
    _, file = write_report(tmp_path, make_data(examples=examples))
    width, height = request.param
    page, events = chromium.new_page(viewport={"width": width, "height": height}), []
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("dialog", lambda dialog: events.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda sent: events.append(sent.url) if sent.url != file.as_uri() else None)
    page.goto(file.as_uri())
    page.events = events
    yield page
    page.close()


def test_the_page_has_no_errors_and_no_outside_requests(page):
    assert page.title() and page.events == []


def test_every_section_is_visible(page):
    for words in SECTIONS:
        heading = page.get_by_role("heading", name=words, exact=False).first
        assert heading.is_visible() and heading.bounding_box()["height"] > 10, words
    assert all(
        box["width"] > 50 and box["height"] > 20
        for box in (svg.bounding_box() for svg in page.locator("svg").all())
    )


def test_the_page_does_not_scroll_sideways(page):
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_an_episode_unfolds_and_differences_are_marked(page):
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
    assert page.events == []
