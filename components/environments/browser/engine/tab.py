"""One episode in one tab of a real Chromium, inside a worker process: load a task, act, read the page.

BrowserGym gives the tasks with their evaluators, the marks on the page, the accessibility tree and the
actions. This module is faster and repeatable. `surveys/stock_browsergym.py` is BrowserGym's own environment,
for a comparison of speed. The differences:

1. One browser serves many tabs, and a tab stays open from one MiniWoB episode to the next. BrowserGym starts
   a browser per episode.
2. There is no chat window, no screenshot and no slowed-down action. In place of a fixed delay it waits until
   the page rests: no animation, no timer of a second or less, no change of the document for a while.
3. Dialogs are dismissed and reported in the next state. As in BrowserGym, the episode continues in a tab that
   an action opened.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.environments.browser import actions
from components.environments.browser.engine.accessibility_tree import extract_elements, read_marks
from components.environments.browser.engine.browsergym_actions import run_call
from components.environments.browser.engine.gym_tasks import is_success, is_web_task, make_task, raw_reward
from components.environments.browser.engine.messages import Observation, PageLost, TabSettings
from components.environments.browser.engine.page_capture import capture_page
from components.environments.browser.engine.page_scripts import COUNT_TIMERS, WAIT_FOR_REST
from components.environments.browser.engine.web_sites import site_hosts
from components.environments.browser.goals import separate_quotes
from components.environments.browser.states import FAILURES, View, make_view

MAX_READ_ATTEMPTS = 4
"""How often a page that changes during the reading is read before the episode is given up."""
PAGE_LOST_PHRASES = ("has been closed", "crashed", "Connection closed", "Browser closed", "Target closed")
"""Words of Playwright's errors when a page or its browser has ended. Only the first line of an error counts
(`is_page_lost`).
"""
REST_MILLISECONDS = 40
"""How long a page must be unchanged to count as at rest."""
MAX_REST_MILLISECONDS = 4000
"""Most milliseconds, in the page's own time, to wait for its rest."""


class EpisodeTab:
    """A tab that plays one episode after another in a shared `browser` (Playwright's)."""

    def __init__(self, browser: Any, settings: TabSettings) -> None:
        self._browser = browser
        self._settings = settings
        self._context: Any = None
        self._page: Any = None
        self._target_session: Any = None
        """A CDP session with the browser, through which its tabs are counted."""
        self._context_id = ""
        self._is_web = False
        self._is_web_context = False
        self._dialogs: list[str] = []
        self.view = View()

    def load(self, spec: Mapping[str, Any]) -> Observation:
        """Start the task of `spec`. Errors of the page and the browser are passed on."""
        self._is_web = is_web_task(spec)
        self._task = make_task(spec)
        self._messages: list[dict[str, Any]] = []
        self._dialogs.clear()
        page = self._fresh_page()
        goal, _ = self._task.setup(page)
        self.goal = separate_quotes(" ".join(goal.split()) if isinstance(goal, str) else goal_text(goal))
        self._page = self._pages()[-1] if self._is_web else page
        return self._observe(self._read_view())

    def step(self, action: str) -> Observation:
        """Carry out `action`, or observe why it cannot be carried out.

        Raises:
            PageLost: the page or the browser ended.
        """
        hosts = site_hosts() if self._is_web else ()
        reason = actions.find_obstacle(action, self.view, web=self._is_web, sites=hosts)
        if reason:
            return self._observe(replace(self.view, failure="", dialogs=()), reason)
        try:
            reason = self._act(action)
            reward, done = self._judge()
            if done:
                return self._observe(View(over=True), reward=reward)
            return self._observe(self._read_view(), reason)
        except Exception as error:
            if is_page_lost(error):
                raise PageLost(str(error).splitlines()[0]) from error
            raise

    def close(self) -> None:
        """Close the tab."""
        if self._target_session is not None:
            target_session = self._target_session
            self._target_session = None
            with contextlib.suppress(Exception):  # nothing to detach from a browser that has ended
                target_session.detach()
        if self._context is not None:
            self._context.close()
            self._context = None

    def picture(self) -> bytes:
        """Return the page as a PNG."""
        return bytes(self._page.screenshot())

    def _act(self, action: str) -> str:
        """Return why the page did not let the action happen; "" if it did."""
        pages_before = self._pages()
        try:
            run_call(
                actions.to_browsergym(action, self.view),
                self._page,
                self._settings.action_seconds,
                self._messages,
            )
        except Exception as error:
            if is_page_lost(error) and self._pages() and self._page in self._pages():
                raise
            if "Could not find element" in str(error):
                return "missing"
            return "page"
        finally:
            self._follow(action, pages_before)
        return ""

    def _follow(self, action: str, pages_before: list[Any]) -> None:
        """Switch to the tab that was opened or asked for.

        Where the present tab was closed, switch to the last one.
        """
        command = actions.read_action(action)
        pages = self._settled_pages()
        opened = [page for page in pages if page not in pages_before]
        if opened:
            self._page = opened[-1]
        elif command and command.verb == "tab" and int(command.text) <= len(pages):
            self._page = pages[int(command.text) - 1]
        elif self._page not in pages:
            self._page = pages[-1] if pages else self._context.new_page()

    def _settled_pages(self) -> list[Any]:
        """Return the open tabs once Playwright lists as many as the browser has.

        On a busy machine Playwright learns of a new tab with a delay.
        """
        deadline = time.monotonic() + self._settings.page_seconds
        while self._count_browser_tabs() != len(self._pages()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._pages()

    def _count_browser_tabs(self) -> int:
        """Return the number of tabs of this context by the browser's own count.

        The browser counts a popup before the click that opens it is over.
        """
        if self._target_session is None:
            self._target_session = self._browser.new_browser_cdp_session()
        targets = self._target_session.send("Target.getTargets")["targetInfos"]
        return sum(
            target["type"] == "page"
            and not target.get("subtype")
            and target.get("browserContextId") == self._context_id
            for target in targets
        )

    def _pages(self) -> list[Any]:
        return [page for page in self._context.pages if not page.is_closed()]

    def _judge(self) -> tuple[float, bool]:
        """Return the raw reward of the page or the evaluator, and whether the episode is over."""
        self._wait_for_rest()
        reward, done, message, info = self._task.validate(self._page, self._messages)
        if message:
            self._messages.append({"role": "user", "message": message})
        return raw_reward(reward, info), bool(done)

    def _fresh_page(self) -> Any:
        """Return a tab without traces of earlier episodes.

        A web task gets a context of its own; any other task has no network.
        """
        if self._context is not None:
            pages = self._pages()
            if not self._is_web and not self._is_web_context and pages:
                for page in pages[1:]:
                    page.close()
                return pages[0]
            self.close()
        size = self._task.viewport
        self._is_web_context = self._is_web
        self._context = self._browser.new_context(
            viewport=size,
            locale=self._task.locale,
            timezone_id=self._task.timezone_id,
            offline=not self._is_web,
        )
        self._context.set_default_timeout(1000 * self._settings.page_seconds)
        self._context.add_init_script(COUNT_TIMERS)
        self._context.on("page", self._listen_for_dialogs)
        page = self._context.new_page()
        page_session = self._context.new_cdp_session(page)
        self._context_id = page_session.send("Target.getTargetInfo")["targetInfo"]["browserContextId"]
        page_session.detach()
        return page

    def _listen_for_dialogs(self, page: Any) -> None:
        page.on("dialog", self._dismiss_dialog)

    def _dismiss_dialog(self, dialog: Any) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def _wait_for_rest(self) -> None:
        """Wait until the page rests, at most MAX_REST_MILLISECONDS of its own time."""
        from playwright.sync_api import Error

        for _ in range(MAX_READ_ATTEMPTS):
            try:
                self._page.wait_for_load_state("domcontentloaded")
                self._page.evaluate(WAIT_FOR_REST, [REST_MILLISECONDS, MAX_REST_MILLISECONDS])
                return
            except Error as error:
                if is_page_lost(error):
                    raise
                time.sleep(0.1)  # a page runs no script while it navigates

    def _read_view(self) -> View:
        """Return the view of the page at rest. A page that changes during the reading is read again."""
        from browsergym.core.observation import MarkingError
        from playwright.sync_api import Error

        for attempts_left in reversed(range(MAX_READ_ATTEMPTS)):
            try:
                self._wait_for_rest()
                return self._capture_view(lenient=attempts_left == 0)
            except (Error, MarkingError) as error:
                if attempts_left == 0 or is_page_lost(error):
                    raise
                time.sleep(0.2)
        raise AssertionError("the last attempt returns or raises")

    def _capture_view(self, *, lenient: bool) -> View:
        tree, snapshot = capture_page(self._page, lenient=lenient)
        elements, more = extract_elements(
            tree["nodes"], read_marks(snapshot), self.goal, self._settings.elements
        )
        dialogs = list(self._dialogs)
        tab = ""
        pages = self._pages()
        self._dialogs.clear()
        if len(pages) > 1 or self._page.url.startswith("http"):
            tab = f"{pages.index(self._page) + 1} of {len(pages)}: {self._page.title() or 'untitled'}"
        return make_view(elements, more, dialogs=dialogs, tab=tab)

    def _observe(self, view: View, failure: str = "", reward: float = 0.0) -> Observation:
        """Take `view` as the present one and return its observation; `failure` is a key of FAILURES."""
        self.view = replace(view, failure=FAILURES[failure]) if failure else view
        success = float(is_success(reward))
        admissible = actions.admissible_actions(self.view, self.goal)
        return Observation(str(self.view), success, self.view.over, self.goal, admissible, reward)


def is_page_lost(error: Exception) -> bool:
    """Return whether an error of Playwright's says that the page or its browser has ended.

    Only its first line counts. The lines after it quote the page and the agent.
    """
    first_line = str(error).partition("\n")[0]
    return any(phrase in first_line for phrase in PAGE_LOST_PHRASES)


def goal_text(goal: Any) -> str:
    """Return the words of a goal in BrowserGym's form, a list of texts and pictures."""
    parts = [part["text"] for part in goal or [] if part.get("type") == "text"]
    return " ".join(" ".join(parts).split())
