"""An episode in BrowserGym's environment as its makers give it: a browser an episode, the chat window in a
second one, slowed-down actions, half a second of waiting, a screenshot a step. Only the state is ours, and
the patience with a click, which is no matter of speed. It is there for a comparison of speed (`dreamgym bench
dream`), one row at a time.

BrowserGym starts its second browser without the executable that the first is given; Playwright's launcher is
told of it here, since there is no other way to run it on a system's own Chromium.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.environments.browser import actions
from components.environments.browser.engine.elements import elements, marks
from components.environments.browser.engine.gym_tasks import make_task, of_the_web, raw_reward
from components.environments.browser.engine.tab import Seat, SeatSettings, Seen, patient_code, words_of
from components.environments.browser.engine.web_sites import site_hosts
from components.environments.browser.states import View, view_of


class StockSeat(Seat):
    """A seat of the same behaviour as `Seat`, with a browser of its own for each episode."""

    def __init__(self, playwright: Any, settings: SeatSettings) -> None:
        super().__init__(None, settings)
        self._playwright = playwright
        self._env: Any = None

    def load(self, spec: Mapping[str, Any]) -> Seen:
        """Start a browser, the chat's browser and the task."""
        from browsergym.core.env import BrowserEnv

        self.close()
        self._web = of_the_web(spec)
        task = make_task(spec)
        with_executable(self._playwright.chromium, str(self._settings.wrapper))
        self._env = BrowserEnv(
            lambda seed: task, action_mapping=lambda call: patient_code(call, self._settings.action_seconds)
        )
        seen, _ = self._env.reset(seed=int(spec.get("seed", 0)))
        self.goal = words_of(seen["goal_object"])
        return self._seen(self._stock_view(seen))

    def step(self, action: str) -> Seen:
        """Carry out `action` as BrowserGym does."""
        assert self._env is not None, "an episode has been loaded"
        reason = actions.obstacle(action, self.view, web=self._web, sites=site_hosts() if self._web else ())
        if reason:
            return self._seen(replace(self.view, failure="", dialogs=()), reason)
        seen, reward, done, _, info = self._env.step(actions.to_browsergym(action))
        if done:
            return self._seen(View(over=True), reward=raw_reward(reward, info["task_info"]))
        missing = "Could not find element" in seen["last_action_error"]
        return self._seen(
            self._stock_view(seen), "missing" if missing else "page" if seen["last_action_error"] else ""
        )

    def close(self) -> None:
        """End both browsers."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def picture(self) -> bytes:
        """The page as a PNG."""
        assert self._env is not None, "an episode has been loaded"
        return bytes(self._env.page.screenshot())

    def _stock_view(self, seen: Mapping[str, Any]) -> View:
        found, more = elements(
            seen["axtree_object"]["nodes"], marks(seen["dom_object"]), self.goal, self._settings.elements
        )
        titles, tab = seen["open_pages_titles"], ""
        if len(titles) > 1 or seen["url"].startswith("http"):
            here = int(seen["active_page_index"][0])
            tab = f"{here + 1} of {len(titles)}: {titles[here] or 'untitled'}"
        return view_of(found, more, tab=tab)


def with_executable(chromium: Any, executable: str) -> None:
    """Let `chromium.launch` start `executable` where it is not told what to start."""
    launch = chromium.launch
    if getattr(launch, "for_dreamgym", False):
        return

    def launching(**options: Any) -> Any:
        return launch(**{"executable_path": executable, **options})

    launching.for_dreamgym = True  # type: ignore[attr-defined]
    chromium.launch = launching
