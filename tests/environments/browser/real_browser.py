"""The real Chromium that the browser's tests run, and how they observe it."""

from __future__ import annotations

import pytest

from components.environments.browser.engine.chromium import find_chromium
from components.environments.browser.engine.messages import PoolSettings
from components.errors import EnvironmentFailure


def settings(**changes) -> PoolSettings:
    """Return settings of one browser, with long timeouts for a busy machine. Skips without a Chromium."""
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
    """Return what the page of `spec` shows."""
    observation = browsers.load({0: spec})[0]
    assert not isinstance(observation, str), observation
    return observation


def acted(browsers, action):
    """Return what one action shows."""
    observation = browsers.step({0: action})[0]
    assert not isinstance(observation, str), observation
    return observation
