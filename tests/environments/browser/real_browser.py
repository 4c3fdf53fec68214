"""The real Chromium that the browser's tests run, and how they look at it."""

from __future__ import annotations

import pytest

from components.environments.browser.engine.chromium import find_chromium
from components.environments.browser.engine.pool import PoolSettings
from components.errors import EnvironmentFailure


def settings(**changes) -> PoolSettings:
    """One browser with patience for a busy machine; skips where there is no Chromium."""
    try:
        executable = find_chromium()
    except EnvironmentFailure as failure:
        pytest.skip(str(failure))
    return PoolSettings(
        **{
            "size": 1,
            "executable": executable,
            "elements": 10,
            "page_seconds": 30.0,
            "action_seconds": 5.0,
            **changes,
        }
    )


def opened(browsers, spec):
    """What the page of `spec` shows."""
    seen = browsers.load({0: spec})[0]
    assert not isinstance(seen, str), seen
    return seen


def acted(browsers, action):
    """What one action shows."""
    seen = browsers.step({0: action})[0]
    assert not isinstance(seen, str), seen
    return seen
