"""A real Chromium for the browser's tests: a shared pool, tasks of eight types, and pages from files."""

from __future__ import annotations

import pytest
from real_browser import settings

from components.config import load_config
from components.environments.browser.adapter import BrowserAdapter
from components.environments.browser.engine.pool import Browsers
from components.trajectories.recording import collect, plan

TYPES = (
    "click-button,click-tab-2,login-user,focus-text-2,choose-list,click-checkboxes,enter-text,enter-text-2"
)


@pytest.fixture(scope="session")
def browsers():
    """A pool of one browser."""
    pool = Browsers(settings())
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def adapter():
    """MiniWoB with eight types, two of them for the test split alone."""
    settings()
    return BrowserAdapter(
        load_config(None, ["environment.name=browser", f"environment.browser.types=[{TYPES}]"]).environment
    )


@pytest.fixture(scope="session")
def tasks(adapter):
    """Six training tasks, one of each type."""
    return adapter.tasks("train", 6, 0)


@pytest.fixture(scope="session")
def episodes(adapter, tasks):
    """Real episodes of every behaviour."""
    return collect(
        adapter, plan(tasks, {"expert": 1, "noisy": 1, "near_miss": 2, "random": 1}, 1), max_steps=8, rows=30
    )


@pytest.fixture
def page(tmp_path):
    """A function page(html, goal) that writes a page and returns the spec that opens it."""

    def write(html: str, goal: str = "Look.", name: str = "page.html") -> dict[str, str]:
        file = tmp_path / name
        file.write_text(f"<!doctype html><meta charset=utf-8><title>{name}</title>{html}", encoding="utf-8")
        return {"task": "openended", "url": file.as_uri(), "goal": goal}

    return write
