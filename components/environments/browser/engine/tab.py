"""One episode in one tab of a real Chromium, inside a worker process: load a task, act, look.

BrowserGym gives the tasks with their evaluators, the marks on the page, the accessibility tree and the
actions. What is ours makes it faster and repeatable (the class `stock.StockSeat` is BrowserGym's own
environment, for a comparison of speed):

1. One browser serves many seats, and a seat keeps its tab from one MiniWoB episode to the next; BrowserGym
   starts a browser an episode.
2. No chat window, no screenshot, no slowed-down actions, and in place of a fixed delay a wait until the page
   has come to rest: no animation, no timer of a second or less, no change of the document for a while.
3. Dialogs are dismissed and told in the next state; a tab that an action opened is where the episode goes on,
   as in BrowserGym.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.environments.browser import actions
from components.environments.browser.engine.elements import elements, marks
from components.environments.browser.engine.gym_tasks import is_success, make_task, of_the_web, raw_reward
from components.environments.browser.engine.web_sites import site_hosts
from components.environments.browser.goals import spaced
from components.environments.browser.states import FAILURES, View, view_of

LOOKS = 4
"""How often a page that changes under our eyes is looked at before the episode is given up."""
GONE = ("has been closed", "crashed", "Connection closed", "Browser closed", "Target closed")
"""Words of Playwright's errors when a page or its browser is no more; they count in the first line alone
(`_gone`).
"""
REST_MILLISECONDS, MOST_MILLISECONDS = 40, 4000

_COUNT_TIMERS = """
if (location.protocol === 'file:' && !window.dreamgymTimers) {
  const set = window.setTimeout, clear = window.clearTimeout, waiting = new Set();
  window.dreamgymTimers = waiting;
  window.setTimeout = (task, delay = 0, ...rest) => {
    const id = set(() => {
      waiting.delete(id);
      typeof task === 'function' ? task(...rest) : (0, eval)(task);
    }, delay);
    if (delay <= 1000) waiting.add(id);
    return id;
  };
  window.clearTimeout = id => { waiting.delete(id); clear(id); };
  window.dreamgymSleep = milliseconds => new Promise(done => set(done, milliseconds));
}
"""
_REST = """async ([rest, most]) => {
  const sleep = window.dreamgymSleep || (milliseconds => new Promise(done => setTimeout(done, milliseconds)));
  const began = performance.now();
  let changed = began;
  const watch = new MutationObserver(() => { changed = performance.now(); });
  watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  while (performance.now() - began < most) {
    await sleep(10);
    const moving = document.getAnimations().some(
        one => one.playState === 'running' && one.effect?.getTiming().iterations !== Infinity
      )
      || (window.jQuery && window.jQuery(':animated').length > 0)
      || (window.dreamgymTimers && window.dreamgymTimers.size > 0);
    if (moving) changed = performance.now();
    if (document.readyState === 'complete' && performance.now() - changed >= rest) break;
  }
  watch.disconnect();
}"""

LARGE_PAGE = 2000
"""Elements from which on what is out of view is left out of the accessibility tree."""
_HIDE_OUT_OF_VIEW = """large => {
  if (document.getElementsByTagName('*').length < large) return;
  const seen = '[browsergym_visibility_ratio]:not([browsergym_visibility_ratio="0"])';
  const hide = parent => {
    for (const one of parent.children) {
      if (['OPTION', 'OPTGROUP'].includes(one.tagName) || one.hasAttribute('aria-hidden')) continue;
      if (one.matches('[browsergym_visibility_ratio="0"]') && !one.querySelector(seen)) {
        one.setAttribute('aria-hidden', 'true');
        one.setAttribute('dreamgym-hidden', '');
      } else hide(one);
    }
  };
  hide(document.body);
}"""
_SHOW_AGAIN = """() => {
  for (const one of document.querySelectorAll('[dreamgym-hidden]')) {
    one.removeAttribute('aria-hidden');
    one.removeAttribute('dreamgym-hidden');
  }
}"""


@dataclass(frozen=True)
class SeatSettings:
    """What a worker is told: the browser's wrapper, the most elements of a state, and seconds for a page to
    load and for an action.
    """

    wrapper: Path
    elements: int
    page_seconds: float
    action_seconds: float


@dataclass(frozen=True)
class Seen:
    """What a step shows: the state, the outcome, the task's goal, and the actions that the state allows.

    `reward` is 1 for success, else 0. `raw_reward` is what the page or the evaluator itself gave: for some
    pages also a part of 1, or below 0.
    """

    state: str
    reward: float = 0.0
    done: bool = False
    goal: str = ""
    admissible: tuple[str, ...] = ()
    raw_reward: float = 0.0


@dataclass(frozen=True)
class Fork:
    """Alternatives to try where an episode of `spec` stands: after `history`, in `state`."""

    spec: Mapping[str, Any]
    history: tuple[str, ...]
    state: str
    alternatives: tuple[str, ...]


class Elsewhere(Exception):
    """An episode that was played again came to another state: what it shows then is no alternative's."""


class PageGone(Exception):
    """The page or its browser is no more: no fault of the agent's."""


class Seat:
    """A place for one episode after the other in a shared `browser` (Playwright's)."""

    def __init__(self, browser: Any, settings: SeatSettings) -> None:
        self._browser, self._settings = browser, settings
        self._context: Any = None
        self._page: Any = None
        self._teller: Any = None
        self._context_id = ""
        self._web = self._of_the_web = False
        self._dialogs: list[str] = []
        self.view = View()

    def load(self, spec: Mapping[str, Any]) -> Seen:
        """Start the task of `spec`. Whatever the page or the browser raises comes through."""
        self._web = of_the_web(spec)
        self._task = make_task(spec)
        self._messages: list[dict[str, Any]] = []
        self._dialogs.clear()
        page = self._fresh_page()
        goal, _ = self._task.setup(page)
        self.goal = spaced(" ".join(goal.split()) if isinstance(goal, str) else words_of(goal))
        self._page = self._pages()[-1] if self._web else page
        return self._seen(self._look())

    def step(self, action: str) -> Seen:
        """Carry out `action`, or say why it cannot be.

        Raises:
            PageGone: the page or the browser died.
        """
        reason = actions.obstacle(action, self.view, web=self._web, sites=site_hosts() if self._web else ())
        if reason:
            return self._seen(replace(self.view, failure="", dialogs=()), reason)
        try:
            reason = self._act(action)
            reward, done = self._judged()
            if done:
                return self._seen(View(over=True), reward=reward)
            return self._seen(self._look(), reason)
        except Exception as error:
            if _gone(error):
                raise PageGone(str(error).splitlines()[0]) from error
            raise

    def close(self) -> None:
        """Close the tab."""
        if self._teller is not None:
            teller, self._teller = self._teller, None
            with contextlib.suppress(Exception):  # of a browser that is no more there is nothing to detach
                teller.detach()
        if self._context is not None:
            self._context.close()
            self._context = None

    def picture(self) -> bytes:
        """The page as a PNG."""
        return bytes(self._page.screenshot())

    def _act(self, action: str) -> str:
        """Why the page did not let the action happen; "" if it did."""
        before = self._pages()
        try:
            _run(
                actions.to_browsergym(action, self.view),
                self._page,
                self._settings.action_seconds,
                self._messages,
            )
        except Exception as error:
            if _gone(error) and self._pages() and self._page in self._pages():
                raise
            if "Could not find element" in str(error):
                return "missing"
            return "page"
        finally:
            self._follow(action, before)
        return ""

    def _follow(self, action: str, before: list[Any]) -> None:
        """The tab that the episode is in now: one that was opened, the one asked for, or the last where the
        present one was closed.
        """
        command = actions.read_action(action)
        pages = self._settled_pages()
        opened = [page for page in pages if page not in before]
        if opened:
            self._page = opened[-1]
        elif command and command.verb == "tab" and int(command.text) <= len(pages):
            self._page = pages[int(command.text) - 1]
        elif self._page not in pages:
            self._page = pages[-1] if pages else self._context.new_page()

    def _settled_pages(self) -> list[Any]:
        """The open tabs once Playwright tells of as many as the browser has: on a busy machine it learns of a
        new one later than we ask.
        """
        until = time.monotonic() + self._settings.page_seconds
        while self._tabs_in_browser() != len(self._pages()) and time.monotonic() < until:
            time.sleep(0.01)
        return self._pages()

    def _tabs_in_browser(self) -> int:
        """How many tabs this seat has by the browser's own count, which a popup joins before the click that
        opens it is over.
        """
        if self._teller is None:
            self._teller = self._browser.new_browser_cdp_session()
        targets = self._teller.send("Target.getTargets")["targetInfos"]
        return sum(
            one["type"] == "page"
            and not one.get("subtype")
            and one.get("browserContextId") == self._context_id
            for one in targets
        )

    def _pages(self) -> list[Any]:
        return [page for page in self._context.pages if not page.is_closed()]

    def _judged(self) -> tuple[float, bool]:
        """The raw reward of the page or the evaluator, and whether the episode is over."""
        self._rest()
        reward, done, message, info = self._task.validate(self._page, self._messages)
        if message:
            self._messages.append({"role": "user", "message": message})
        return raw_reward(reward, info), bool(done)

    def _fresh_page(self) -> Any:
        """A tab that knows nothing of earlier episodes: for the web with a context of its own, else without a
        network.
        """
        if self._context is not None:
            pages = self._pages()
            if not self._web and not self._of_the_web and pages:
                for page in pages[1:]:
                    page.close()
                return pages[0]
            self.close()
        size, self._of_the_web = self._task.viewport, self._web
        self._context = self._browser.new_context(
            viewport=size, locale=self._task.locale, timezone_id=self._task.timezone_id, offline=not self._web
        )
        self._context.set_default_timeout(1000 * self._settings.page_seconds)
        self._context.add_init_script(_COUNT_TIMERS)
        self._context.on("page", self._listen)
        page = self._context.new_page()
        asked = self._context.new_cdp_session(page)
        self._context_id = asked.send("Target.getTargetInfo")["targetInfo"]["browserContextId"]
        asked.detach()
        return page

    def _listen(self, page: Any) -> None:
        page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Any) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def _rest(self) -> None:
        """Wait until the page has come to rest, at most MOST_MILLISECONDS of its own time."""
        from playwright.sync_api import Error

        for _ in range(LOOKS):
            try:
                self._page.wait_for_load_state("domcontentloaded")
                self._page.evaluate(_REST, [REST_MILLISECONDS, MOST_MILLISECONDS])
                return
            except Error as error:
                if _gone(error):
                    raise
                time.sleep(0.1)  # a page that is being left cannot be asked

    def _look(self) -> View:
        from browsergym.core.observation import MarkingError
        from playwright.sync_api import Error

        for left in reversed(range(LOOKS)):
            try:
                self._rest()
                return self._read(lenient=left == 0)
            except (Error, MarkingError) as error:
                if left == 0 or _gone(error):
                    raise
                time.sleep(0.2)
        raise AssertionError("the last look returns or raises")

    def _read(self, *, lenient: bool) -> View:
        tree, snapshot = capture(self._page, lenient=lenient)
        found, more = elements(tree["nodes"], marks(snapshot), self.goal, self._settings.elements)
        dialogs, tab, pages = list(self._dialogs), "", self._pages()
        self._dialogs.clear()
        if len(pages) > 1 or self._page.url.startswith("http"):
            tab = f"{pages.index(self._page) + 1} of {len(pages)}: {self._page.title() or 'untitled'}"
        return view_of(found, more, dialogs=dialogs, tab=tab)

    def _seen(self, view: View, failure: str = "", reward: float = 0.0) -> Seen:
        self.view = replace(view, failure=FAILURES[failure]) if failure else view
        success, admissible = float(is_success(reward)), actions.admissible(self.view, self.goal)
        return Seen(str(self.view), success, self.view.over, self.goal, admissible, reward)


def _gone(error: Exception) -> bool:
    """True if the page or its browser is no more. Behind the first line come Playwright's notes: the agent's
    own words, and the page's.
    """
    said = str(error).partition("\n")[0]
    return any(words in said for words in GONE)


def capture(page: Any, *, lenient: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """BrowserGym's merged accessibility tree of a page, and its DOM snapshot; the page is marked for it and
    left as it was.

    The tree of a page of megabytes takes half a minute to fetch, for what lies out of view and no state
    shows: it is left out there.
    """
    from browsergym.core.observation import (
        _post_extract,
        _pre_extract,
        extract_dom_snapshot,
        extract_merged_axtree,
    )

    _pre_extract(page, lenient=lenient)
    snapshot = extract_dom_snapshot(page, include_dom_rects=False, include_paint_order=False)
    page.evaluate(_HIDE_OUT_OF_VIEW, LARGE_PAGE)
    tree = extract_merged_axtree(page)
    page.evaluate(_SHOW_AGAIN)
    _post_extract(page)
    return tree, snapshot


def words_of(goal: Any) -> str:
    """The words of a goal in BrowserGym's form, a list of texts and pictures."""
    parts = [part["text"] for part in goal or [] if part.get("type") == "text"]
    return " ".join(" ".join(parts).split())


@functools.cache
def _action_set() -> Any:
    from browsergym.core.action.highlevel import HighLevelActionSet

    return HighLevelActionSet(subsets=["bid", "coord", "nav", "tab", "chat"])


def patient_code(call: str, seconds: float) -> str:
    """BrowserGym's code for `call`, with more patience than its half a second: a busy machine must not make a
    click impossible.
    """
    theirs = str(_action_set().python_includes)
    patient = theirs.replace("timeout=500", f"timeout={int(1000 * seconds)}")
    return patient + str(_action_set().to_python_code(call)).removeprefix(theirs)


def _run(call: str, page: Any, seconds: float, messages: list[dict[str, Any]]) -> None:
    from browsergym.core.action.base import execute_python_code

    code = patient_code(call, seconds)
    execute_python_code(
        code, page, lambda text: messages.append({"role": "assistant", "message": text}), lambda reason: None
    )


def quiet_libraries() -> None:
    """BrowserGym warns of every page that it finds strange; the states say what we want to know."""
    logging.getLogger("browsergym").setLevel(logging.ERROR)
