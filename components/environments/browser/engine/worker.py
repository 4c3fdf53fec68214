"""A worker process of the pool: one Chromium, and a tab in it for each of the worker's rows.

A worker answers row by row. It ends when its owner tells it to, and also when the connection to its owner
breaks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from components.environments.browser.engine.browsergym_actions import silence_browsergym
from components.environments.browser.engine.chromium import DISABLED_FEATURES, write_wrapper
from components.environments.browser.engine.messages import (
    Fork,
    Observation,
    PageLost,
    PoolSettings,
    ReplayDiverged,
    TabSettings,
)
from components.environments.browser.engine.processes import OWNER_VARIABLE
from components.environments.browser.engine.tab import EpisodeTab

SPARE_ROW = -1
"""The row of the tab in which alternative actions are tried."""
HEARTBEAT = -2
"""The row of a message that only says that a long answer is under way."""
START_SECONDS = 60.0
"""Most seconds for the start of a browser."""


def serve(pipe: Connection, lifeline: Connection, folder: str, settings: PoolSettings) -> None:
    """Answer the rows that arrive on `pipe` until told to close or until the owner has ended.

    The main function of a worker process. It leads a process group of its own, so that its driver ends with
    it.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    os.environ |= {OWNER_VARIABLE: folder, "TMPDIR": folder}
    tempfile.tempdir = folder
    threading.Thread(target=_end_with_owner, args=(lifeline, os.getppid()), daemon=True).start()
    silence_browsergym()
    tabs = _Tabs(folder, settings, lambda: pipe.send((HEARTBEAT, None)))
    while True:
        try:
            verb, rows = pipe.recv()
        except (EOFError, OSError):
            break
        if verb == "close":
            break
        for row, payload in rows.items():
            pipe.send((row, tabs.answer(verb, row, payload)))
    tabs.close()


def _end_with_owner(lifeline: Connection, owner: int) -> None:
    """End this process and its group when the owner has ended, even while the page hangs."""
    with contextlib.suppress(EOFError, OSError):
        while not lifeline.poll(1.0) and os.getppid() == owner:
            pass
    os.killpg(0, signal.SIGKILL)


class _Tabs:
    """The tabs of one worker: one per row, and a spare one for trying alternatives."""

    def __init__(self, folder: str, settings: PoolSettings, send_heartbeat: Callable[[], None]) -> None:
        self._folder = Path(folder)
        self._settings = settings
        self._send_heartbeat = send_heartbeat
        self._tabs: dict[int, EpisodeTab] = {}
        self._playwright: Any = None
        self._browser: Any = None
        self._handlers: dict[str, Callable[[int, Any], Any]] = {
            "load": self._load,
            "step": self._step,
            "picture": self._picture,
            "probe": self._probe,
        }

    def answer(self, verb: str, row: int, payload: Any) -> Any:
        """Return what `row` shows, or an error text.

        After an error the row's tab is closed; after a failed alternative only the spare tab is.
        """
        try:
            return self._handlers[verb](row, payload)
        except Exception as error:  # reported to the owner, which decides
            if tab := self._tabs.pop(SPARE_ROW if verb == "probe" else row, None):
                with contextlib.suppress(Exception):
                    tab.close()
            message = str(error).splitlines()[0] if str(error) else ""
            return (
                f"The page died: {message}."
                if isinstance(error, PageLost)
                else f"{type(error).__name__}: {message}"
            )

    def _load(self, row: int, spec: Mapping[str, Any]) -> Observation:
        return self._tab_of(row).load(spec)

    def _step(self, row: int, action: str) -> Observation:
        if row not in self._tabs:
            raise PageLost("its browser was replaced")
        return self._tabs[row].step(action)

    def _picture(self, row: int, _payload: None) -> bytes:
        return self._tabs[row].picture()

    def _probe(self, _row: int, fork: Fork) -> list[Observation]:
        """Return the result of each alternative, tried in the spare tab after a replay of the episode."""
        results = []
        for alternative in fork.alternatives:
            observation = self._load(SPARE_ROW, fork.spec)
            for action in fork.history:
                self._send_heartbeat()
                observation = self._tabs[SPARE_ROW].step(action)
            self._send_heartbeat()
            if observation.state != fork.state:
                raise ReplayDiverged(
                    f"the replayed episode shows {observation.state!r}, the row shows {fork.state!r}"
                )
            results.append(self._tabs[SPARE_ROW].step(alternative))
            self._send_heartbeat()
        return results

    def _tab_of(self, row: int) -> EpisodeTab:
        if self._browser is None or (not self._settings.stock and not self._browser.is_connected()):
            self._start_browser()
        if row not in self._tabs:
            self._tabs[row] = self._new_tab()
        return self._tabs[row]

    def _new_tab(self) -> EpisodeTab:
        limits = self._settings
        settings = TabSettings(
            self._folder / "chromium", limits.elements, limits.page_seconds, limits.action_seconds
        )
        if limits.stock:
            from components.environments.browser.surveys.stock_browsergym import StockTab

            return StockTab(self._playwright, settings)
        return EpisodeTab(self._browser, settings)

    def _start_browser(self) -> None:
        from browsergym.core import _get_global_playwright
        from browsergym.core.constants import BROWSERGYM_ID_ATTRIBUTE

        self._tabs.clear()
        self._playwright = _get_global_playwright()
        self._playwright.selectors.set_test_id_attribute(BROWSERGYM_ID_ATTRIBUTE)
        wrapper = write_wrapper(self._folder, self._settings.executable)
        if self._settings.stock:
            self._browser = self._playwright
            return
        self._browser = self._playwright.chromium.launch(
            headless=True,
            executable_path=str(wrapper),
            args=[f"--disable-features={','.join(DISABLED_FEATURES)}"],
            ignore_default_args=["--hide-scrollbars"],
            timeout=1000 * START_SECONDS,
        )

    def close(self) -> None:
        """Close the tabs and end the browser."""
        for tab in self._tabs.values():
            with contextlib.suppress(Exception):
                tab.close()
        with contextlib.suppress(Exception):
            if self._browser is not None and not self._settings.stock:
                self._browser.close()
        with contextlib.suppress(Exception):
            if self._playwright is not None:
                self._playwright.stop()
