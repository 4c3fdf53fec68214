"""The temporary patches of other libraries: what they change, that they are undone, and the version check."""

from __future__ import annotations

import pytest

from components.environments.browser.engine import library_patches
from components.environments.browser.engine.library_patches import default_executable, version_mismatches


class Chromium:
    """Playwright's browser type, as far as the patch uses it."""

    def launch(self, **options):
        """Return the options that a browser would be started with."""
        return options


def test_a_launch_without_an_executable_gets_the_default_one():
    chromium = Chromium()
    with default_executable(chromium, "/opt/chromium"):
        assert chromium.launch(headless=True) == {"executable_path": "/opt/chromium", "headless": True}
        assert chromium.launch(executable_path="other") == {"executable_path": "other"}
    assert chromium.launch(headless=True) == {"headless": True}


def test_a_patch_is_undone_after_an_error():
    chromium = Chromium()
    with pytest.raises(RuntimeError), default_executable(chromium, "/opt/chromium"):
        raise RuntimeError("the reset failed")
    assert chromium.launch() == {}


def test_an_installed_package_of_another_version_is_named(monkeypatch):
    assert version_mismatches() == []
    monkeypatch.setattr(library_patches, "WRITTEN_FOR", {"pytest": "0.1", "no-such-package": "1"})
    (message,) = version_mismatches()
    assert f"pytest {pytest.__version__} is installed" in message and "written for pytest 0.1" in message
    assert "pip install" in message
