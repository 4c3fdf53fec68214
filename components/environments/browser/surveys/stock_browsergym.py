"""An episode in BrowserGym's own environment, for a comparison of speed (`dreamgym bench dream`).

It has what BrowserGym's makers give it: a browser per episode, a second browser for the chat window, slowed
down actions, half a second of waiting, and a screenshot per step. Two things are ours: the state, and the
timeout of a click, which does not matter for speed. It plays one row at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.environments.browser import actions
from components.environments.browser.engine.accessibility_tree import extract_elements, read_marks
from components.environments.browser.engine.browsergym_actions import code_with_timeout
from components.environments.browser.engine.gym_tasks import is_web_task, make_task, raw_reward
from components.environments.browser.engine.library_patches import default_executable
from components.environments.browser.engine.messages import Observation, TabSettings
from components.environments.browser.engine.tab import EpisodeTab, goal_text
from components.environments.browser.engine.web_sites import site_hosts
from components.environments.browser.states import View, make_view


class StockTab(EpisodeTab):
    """A tab that behaves as `EpisodeTab` does, with a browser of its own for each episode."""

    def __init__(self, playwright: Any, settings: TabSettings) -> None:
        super().__init__(None, settings)
        self._playwright = playwright
        self._env: Any = None

    def load(self, spec: Mapping[str, Any]) -> Observation:
        """Start a browser, the chat's browser and the task."""
        from browsergym.core.env import BrowserEnv

        self.close()
        self._is_web = is_web_task(spec)
        task = make_task(spec)
        self._env = BrowserEnv(
            lambda seed: task,
            action_mapping=lambda call: code_with_timeout(call, self._settings.action_seconds),
        )
        with default_executable(self._playwright.chromium, str(self._settings.wrapper)):
            observation, _ = self._env.reset(seed=int(spec.get("seed", 0)))
        self.goal = goal_text(observation["goal_object"])
        return self._observe(self._view_of(observation))

    def step(self, action: str) -> Observation:
        """Carry out `action` as BrowserGym does."""
        assert self._env is not None, "an episode has been loaded"
        hosts = site_hosts() if self._is_web else ()
        reason = actions.find_obstacle(action, self.view, web=self._is_web, sites=hosts)
        if reason:
            return self._observe(replace(self.view, failure="", dialogs=()), reason)
        observation, reward, done, _, info = self._env.step(actions.to_browsergym(action))
        if done:
            return self._observe(View(over=True), reward=raw_reward(reward, info["task_info"]))
        error = observation["last_action_error"]
        is_missing = "Could not find element" in error
        return self._observe(self._view_of(observation), "missing" if is_missing else "page" if error else "")

    def close(self) -> None:
        """End both browsers."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def picture(self) -> bytes:
        """Return the page as a PNG."""
        assert self._env is not None, "an episode has been loaded"
        return bytes(self._env.page.screenshot())

    def _view_of(self, observation: Mapping[str, Any]) -> View:
        elements, more = extract_elements(
            observation["axtree_object"]["nodes"],
            read_marks(observation["dom_object"]),
            self.goal,
            self._settings.elements,
        )
        titles = observation["open_pages_titles"]
        tab = ""
        if len(titles) > 1 or observation["url"].startswith("http"):
            active = int(observation["active_page_index"][0])
            tab = f"{active + 1} of {len(titles)}: {titles[active] or 'untitled'}"
        return make_view(elements, more, tab=tab)
