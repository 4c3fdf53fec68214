"""MiniWoB++, WebArena and WebArena-Lite in a real Chromium, through BrowserGym, as one environment."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Sequence
from contextlib import closing

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.browser import actions, behaviours, coherence, quotes, reasoning
from components.environments.browser.embody import embody
from components.environments.browser.engine.chromium import find_chromium
from components.environments.browser.engine.messages import PoolSettings
from components.environments.browser.engine.pool import Browsers
from components.environments.browser.engine.web_sites import require_for_web
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.goals import read_goal
from components.environments.browser.progress import goal_obstacle, progress
from components.environments.browser.states import contradicts, read_state, state_facts
from components.environments.browser.task_lists import (
    Candidate,
    Slot,
    is_unseen_type,
    split_of_task,
    web_candidates,
)
from components.environments.capabilities import Adapter
from components.environments.protocol import Behaviour, Fact
from components.environments.validation_split import require_split
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

INSTALL = "pip install -c constraints.txt -e '.[browser]'"
_PAGES_A_BATCH = 24
"""Pages that are opened at the same time to make tasks."""
_DRAWS_A_SLOT = 25
"""Times that a slot draws a page, while another task shows the page or the other split keeps it."""
_TURNS = 4
"""Validation slots that are tried, as a multiple of the tasks that are asked for."""
_Shown = tuple[str, str, str]
"""What the first page of a task shows: family, instruction and initial state."""


class BrowserAdapter(Adapter):
    """The adapter of MiniWoB++, WebArena and WebArena-Lite."""

    name = "browser"
    splits = (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        """Check that the packages and sites are there.

        Raises:
            EnvironmentFailure: BrowserGym is missing or, for the web, WebArena's packages or sites are.
        """
        if not all(map(importlib.util.find_spec, ("browsergym", "playwright", "miniwob"))):
            raise EnvironmentFailure(
                "BrowserGym, Playwright or MiniWoB++ is not installed.",
                "The browser environment needs them.",
                INSTALL,
            )
        self.config = config
        self.browser = config.browser
        self._read_pages: dict[str, tuple[str, str]] = {}
        """Spec -> (goal, initial state) of pages that were opened before."""
        if self.browser.benchmark != "miniwob":
            require_for_web(self.browser.benchmark)

    def describe_world(self) -> str:
        """Return what the pages are."""
        return (
            "A web page in a browser, as a list of its elements: an id in brackets, the kind, and the text. "
            "Only what the list shows can be acted on."
        )

    def describe_actions(self) -> str:
        """Return the form of each action."""
        return (
            "Actions: click [ID], dblclick [ID], hover [ID], clear [ID], fill [ID] text, select [ID] option, "
            "press [ID] key, drag [ID] to [ID], scroll up, scroll down."
        )

    @property
    def notice(self) -> str:
        """That scores are not those of the benchmark, and why."""
        if self.browser.benchmark == "miniwob":
            return (
                "Chosen types of MiniWoB++ in a split and in states of our own: scores are not those of "
                "the benchmark."
            )
        return "States and actions of our own, and a step limit: scores are not those of the benchmark."

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return `count` different tasks, task types in turn.

        In the test split every other task is of a type that no training task has. Each page is opened once to
        read its goal and first state. No two tasks show the same, and none of one split shows what one of the
        other shows.

        Raises:
            EnvironmentFailure: an unknown split, a page that does not open, too few tasks, or a type with too
                few different pages.
        """
        require_split(split, self.splits)
        seed_text = f"{split}/{self.config.seed}/{seed}"
        with closing(Browsers(self._pool(self.config.workers))) as browsers:
            if self.browser.benchmark != "miniwob":
                return self._web_tasks(browsers, split, seed_text, count)
            tasks: dict[_Shown, Task] = {}
            if split == VALIDATION:
                self._add_validation_tasks(browsers, seed_text, count, tasks)
            else:
                for start in range(0, count, _PAGES_A_BATCH):
                    places = range(start, min(start + _PAGES_A_BATCH, count))
                    slots = [Slot(self.browser, split, seed_text, place) for place in places]
                    self._add_tasks(browsers, slots, split, tasks)
        return list(tasks.values())

    def _web_tasks(self, browsers: Browsers, split: str, seed_text: str, count: int) -> list[Task]:
        candidates = web_candidates(self.browser, split, random.Random(seed_text), count)
        return [
            task
            for start in range(0, count, _PAGES_A_BATCH)
            for task in self.open_tasks(browsers, candidates[start : start + _PAGES_A_BATCH], split)
        ]

    def _add_validation_tasks(
        self, browsers: Browsers, seed_text: str, count: int, tasks: dict[_Shown, Task]
    ) -> None:
        """Add validation tasks until there are `count`; a type whose pages run out gives up its turn.

        Raises:
            EnvironmentFailure: all types together have too few pages.
        """
        exhausted: set[str] = set()
        for start in range(0, _TURNS * count, _PAGES_A_BATCH):
            places = range(start, start + _PAGES_A_BATCH)
            turns = (Slot(self.browser, VALIDATION, seed_text, place) for place in places)
            slots = [slot for slot in turns if slot.family not in exhausted][: count - len(tasks)]
            pages = self._draw_pages(browsers, slots, VALIDATION, tasks)
            exhausted |= {slot.family for place, slot in enumerate(slots) if place not in pages}
            tasks.update({_shown(task): task for _, task in sorted(pages.items())})
            if len(tasks) == count:
                return
        raise EnvironmentFailure(
            f"The types in use have {len(tasks)} different validation pages.",
            f"Expected {count}.",
            "Name more environment.browser.types.",
        )

    def _add_tasks(
        self, browsers: Browsers, slots: Sequence[Slot], split: str, tasks: dict[_Shown, Task]
    ) -> None:
        """Add a task with a page of its own for each of `slots`.

        Raises:
            EnvironmentFailure: a type has too few different pages.
        """
        pages = self._draw_pages(browsers, slots, split, tasks)
        if len(pages) < len(slots):
            family = next(slot.family for place, slot in enumerate(slots) if place not in pages)
            raise EnvironmentFailure(
                f"{family} has too few different pages: {_DRAWS_A_SLOT} draws brought no new one for the "
                f"split {split}.",
                next_step="Take it out of environment.browser.types, or ask for fewer tasks.",
            )
        tasks.update({_shown(task): task for _, task in sorted(pages.items())})

    def _draw_pages(
        self, browsers: Browsers, slots: Sequence[Slot], split: str, tasks: dict[_Shown, Task]
    ) -> dict[int, Task]:
        """Return place in `slots` -> a page that neither `tasks` nor another slot shows.

        A slot without such a page is left out.
        """
        side = TRAIN if split == TRAIN else TEST
        pages: dict[int, Task] = {}
        for _ in range(_DRAWS_A_SLOT):
            empty = [place for place in range(len(slots)) if place not in pages]
            if not empty:
                break
            drawn_tasks = self.open_tasks(browsers, [slots[place].draw() for place in empty], split)
            for place, task in zip(empty, drawn_tasks, strict=True):
                is_new = _shown(task) not in tasks and _shown(task) not in map(_shown, pages.values())
                if is_new and (self.unseen(task) or split_of_task(task) == side):
                    pages[place] = task
        return pages

    def open_tasks(self, browsers: Browsers, batch: Sequence[Candidate], split: str) -> list[Task]:
        """Return the tasks of these pages, each opened once; a page that fails is tried again.

        Raises:
            EnvironmentFailure: a page does not open.
        """
        specs = [json.dumps(candidate.spec, sort_keys=True) for candidate in batch]
        for attempt in range(2):
            unread = {
                row: candidate.spec
                for row, candidate in enumerate(batch)
                if specs[row] not in self._read_pages
            }
            for row, answer in (browsers.load(unread) if unread else {}).items():
                if not isinstance(answer, str):
                    self._read_pages[specs[row]] = (answer.goal, answer.state)
                elif attempt:
                    raise EnvironmentFailure(
                        f"{batch[row].name} does not open: {answer}",
                        next_step="Where `dreamgym doctor` finds nothing wrong, raise "
                        "environment.browser.page_seconds.",
                    )
        names = [f"{self.name}/{self.browser.benchmark}/{candidate.name}" for candidate in batch]
        return [
            Task(name, self.name, split, *self._read_pages[spec], candidate.family, spec)
            for name, candidate, spec in zip(names, batch, specs, strict=True)
        ]

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> BrowserEnvironment:
        """Open a pool of browsers; `stock` gives BrowserGym's own environment, one row at a time."""
        return BrowserEnvironment(self._pool(workers or self.config.workers, stock=stock), budget)

    def _pool(self, size: int, *, stock: bool = False) -> PoolSettings:
        settings = self.browser
        return PoolSettings(
            size,
            find_chromium(settings.executable),
            settings.elements,
            settings.page_seconds,
            settings.action_seconds,
            stock,
        )

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `behaviours.make_behaviour`."""
        return behaviours.make_behaviour(name, task, seed)

    def reflect(self, trajectory: Trajectory, alternatives: Sequence[tuple[str, str]], thought: str) -> str:
        """See `reasoning.reflect`."""
        return reasoning.reflect(trajectory, alternatives, thought)

    def reason(self, trajectory: Trajectory, action: str, next_state: str, reward: float) -> str:
        """See `reasoning.reason`."""
        return reasoning.reason(trajectory, action, next_state, reward)

    def judged(self, trajectory: Trajectory) -> float | None:
        """See `reasoning.judged`."""
        return reasoning.judged(trajectory)

    def grounded(self, task: Task, states: Sequence[str], action: str, reasoning: str) -> int:
        """See `quotes.grounded`."""
        return quotes.grounded(task, states, action, reasoning)

    def facts(self, trajectory: Trajectory) -> set[Fact]:
        """Return what the last state asserts: the elements on the page."""
        return state_facts(trajectory.states[-1])

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """See `states.contradicts`."""
        return contradicts(claim, truth)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """Return True if the page names something that no state of the episode has named before."""
        return reasoning.reveals(trajectory, read_state(next_state))

    def well_formed(self, action: str) -> bool:
        """See `actions.well_formed`."""
        return actions.well_formed(action)

    def refused(self, next_state: str) -> bool:
        """Return True if the state says that the action was not carried out."""
        return bool(read_state(next_state).failure)

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """See `coherence.contradiction`."""
        return coherence.contradiction(trajectory, next_state)

    def progress(self, trajectory: Trajectory) -> float:
        """See `progress.progress`."""
        return progress(trajectory)

    def embody(self, dreamed: Trajectory) -> Task:
        """See `embody.embody`."""
        return embody(dreamed)

    def unseen(self, task: Task) -> bool:
        """Return True if no training task is of this type (MiniWoB's types, WebArena's templates)."""
        return is_unseen_type(self.browser, task.family)

    def feasible(self, task: Task) -> str:
        """Return why a generated task cannot be solved, judged by its text and first page; "" if it can."""
        view = read_state(task.initial_state)
        goal = read_goal(task.instruction, [view])
        return "follows no template" if goal is None else goal_obstacle(view, goal)


def _shown(task: Task) -> _Shown:
    """Return what the task's first page shows; no two tasks of a list show the same."""
    return task.family, task.instruction, task.initial_state
