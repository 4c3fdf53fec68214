"""The browser as one environment of the pipeline: MiniWoB++, WebArena and WebArena-Lite in a real Chromium,
through BrowserGym.
"""

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
from components.environments.browser.engine.pool import Browsers, PoolSettings
from components.environments.browser.engine.web_sites import require_for_web
from components.environments.browser.environment import BrowserEnvironment
from components.environments.browser.goals import read_goal
from components.environments.browser.progress import missing, progress
from components.environments.browser.states import contradicts, read_state, state_facts
from components.environments.browser.task_lists import Candidate, Slot, side_of, unseen_type, web_candidates
from components.environments.protocol import Behaviour, Fact
from components.environments.validation_split import require_split
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task, Trajectory

INSTALL = "pip install -c constraints.txt -e '.[browser]'"
_BATCH, _DRAWS, _TURNS = 24, 25, 4
"""Pages opened side by side when tasks are made, and how often one is drawn again that another task shows or
the other split keeps.
"""


class BrowserAdapter:
    """The adapter of design's environment contract (`components/environments/protocol.py`) for a browser."""

    name, splits = "browser", (TRAIN, VALIDATION, TEST)

    def __init__(self, config: EnvironmentConfig) -> None:
        """Raises EnvironmentFailure if BrowserGym or, for the web, WebArena's packages or sites are
        missing.
        """
        if not all(map(importlib.util.find_spec, ("browsergym", "playwright", "miniwob"))):
            raise EnvironmentFailure(
                "BrowserGym, Playwright or MiniWoB++ is not installed.",
                "The browser environment needs them.",
                INSTALL,
            )
        self.config, self.browser = config, config.browser
        self._known: dict[
            str, tuple[str, str]
        ] = {}  # spec -> (goal, initial state) of pages that were opened before
        if self.browser.benchmark != "miniwob":
            require_for_web(self.browser.benchmark)

    @property
    def notice(self) -> str:
        """What must be said wherever a score is shown."""
        if self.browser.benchmark == "miniwob":
            return (
                "Chosen types of MiniWoB++ in a split and in states of our own: scores are not those of "
                "the benchmark."
            )
        return "States and actions of our own, and a step limit: scores are not those of the benchmark."

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """`count` different tasks, task types in turn; in the test split every other one is of a type that no
        training task has.

        Each page is opened once to read its goal and first state; no two tasks show the same, and none of one
        split shows what one of the other shows.

        Raises:
            EnvironmentFailure: an unknown split, a page that does not open, too few tasks, or a type with too
                few different pages.
        """
        require_split(split, self.splits)
        name = f"{split}/{self.config.seed}/{seed}"
        with closing(Browsers(self._pool(self.config.workers))) as browsers:
            if self.browser.benchmark != "miniwob":
                listed = web_candidates(self.browser, split, random.Random(name), count)
                return [
                    task
                    for start in range(0, count, _BATCH)
                    for task in self.opened(browsers, listed[start : start + _BATCH], split)
                ]
            found: dict[tuple[str, str, str], Task] = {}
            if split == VALIDATION:
                self._fill_what_there_is(browsers, name, count, found)
            else:
                for start in range(0, count, _BATCH):
                    slots = [
                        Slot(self.browser, split, name, n) for n in range(start, min(start + _BATCH, count))
                    ]
                    self._fill(browsers, slots, split, found)
        return list(found.values())

    def _fill_what_there_is(
        self, browsers: Browsers, name: str, count: int, found: dict[tuple[str, str, str], Task]
    ) -> None:
        """Fill `count` validation slots; a type whose pages run out leaves its turn to the others.

        Raises:
            EnvironmentFailure: all types together have too few pages.
        """
        exhausted: set[str] = set()
        for start in range(0, _TURNS * count, _BATCH):
            turns = (Slot(self.browser, VALIDATION, name, number) for number in range(start, start + _BATCH))
            slots = [slot for slot in turns if slot.family not in exhausted][: count - len(found)]
            pages = self._draw_pages(browsers, slots, VALIDATION, found)
            exhausted |= {slot.family for number, slot in enumerate(slots) if number not in pages}
            found.update({_shown(task): task for _, task in sorted(pages.items())})
            if len(found) == count:
                return
        raise EnvironmentFailure(
            f"The types in use have {len(found)} different validation pages.",
            f"Expected {count}.",
            "Name more environment.browser.types.",
        )

    def _fill(
        self, browsers: Browsers, slots: Sequence[Slot], split: str, found: dict[tuple[str, str, str], Task]
    ) -> None:
        """Draw pages for `slots` until each has one of its own."""
        pages = self._draw_pages(browsers, slots, split, found)
        if len(pages) < len(slots):
            poor = next(slot.family for number, slot in enumerate(slots) if number not in pages)
            raise EnvironmentFailure(
                f"{poor} has too few different pages: {_DRAWS} draws brought no new one for the split "
                f"{split}.",
                next_step="Take it out of environment.browser.types, or ask for fewer tasks.",
            )
        found.update({_shown(task): task for _, task in sorted(pages.items())})

    def _draw_pages(
        self, browsers: Browsers, slots: Sequence[Slot], split: str, found: dict[tuple[str, str, str], Task]
    ) -> dict[int, Task]:
        """Place in `slots` -> a page that neither `found` nor another slot shows; a slot without such a page
        is left out.
        """
        side = TRAIN if split == TRAIN else TEST
        chosen: dict[int, Task] = {}
        for _ in range(_DRAWS):
            empty = [number for number in range(len(slots)) if number not in chosen]
            if not empty:
                break
            for number, task in zip(
                empty, self.opened(browsers, [slots[number].draw() for number in empty], split), strict=True
            ):
                known = {_shown(other) for other in chosen.values()}
                if (
                    _shown(task) not in found
                    and _shown(task) not in known
                    and (self.unseen(task) or side_of(task) == side)
                ):
                    chosen[number] = task
        return chosen

    def opened(self, browsers: Browsers, batch: Sequence[Candidate], split: str) -> list[Task]:
        """The tasks of these pages, each opened once; a page that fails is tried again.

        Raises:
            EnvironmentFailure: a page does not open.
        """
        specs = [json.dumps(candidate.spec, sort_keys=True) for candidate in batch]
        for attempt in range(2):
            unknown = {
                row: candidate.spec for row, candidate in enumerate(batch) if specs[row] not in self._known
            }
            for row, seen in (browsers.load(unknown) if unknown else {}).items():
                if not isinstance(seen, str):
                    self._known[specs[row]] = (seen.goal, seen.state)
                elif attempt:
                    cure = (
                        "Where `dreamgym doctor` finds nothing wrong, raise environment.browser.page_seconds."
                    )
                    raise EnvironmentFailure(f"{batch[row].name} does not open: {seen}", next_step=cure)
        names = [f"{self.name}/{self.browser.benchmark}/{candidate.name}" for candidate in batch]
        return [
            Task(name, self.name, split, *self._known[spec], candidate.family, spec)
            for name, candidate, spec in zip(names, batch, specs, strict=True)
        ]

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> BrowserEnvironment:
        """A pool of browsers; `stock` is BrowserGym's own environment, one row at a time."""
        return BrowserEnvironment(self._pool(workers or self.config.workers, stock=stock), budget)

    def _pool(self, size: int, *, stock: bool = False) -> PoolSettings:
        own = self.browser
        return PoolSettings(
            size, find_chromium(own.executable), own.elements, own.page_seconds, own.action_seconds, stock
        )

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """See `behaviours.make_behaviour`."""
        return behaviours.make_behaviour(name, task, seed)

    def think(self, trajectory: Trajectory, action: str) -> str:
        """See `reasoning.think`."""
        return reasoning.think(trajectory, action)

    def reflect(self, trajectory: Trajectory, action: str, alternatives: Sequence[tuple[str, str]]) -> str:
        """See `reasoning.reflect`."""
        return reasoning.reflect(trajectory, alternatives, self.think(trajectory, action))

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
        """What the last state asserts: the elements on the page."""
        return state_facts(trajectory.states[-1])

    def contradicts(self, claim: Fact, truth: set[Fact]) -> bool:
        """See `states.contradicts`."""
        return contradicts(claim, truth)

    def revealing(self, trajectory: Trajectory, action: str, next_state: str) -> bool:
        """True if the page names something that no state of the episode has named before."""
        return reasoning.reveals(trajectory, read_state(next_state))

    def well_formed(self, action: str) -> bool:
        """See `actions.well_formed`."""
        return actions.well_formed(action)

    def refused(self, next_state: str) -> bool:
        """True if the state says that the action was not carried out."""
        return bool(read_state(next_state).failure)

    def contradiction(self, trajectory: Trajectory, next_state: str) -> str:
        """See `coherence.contradiction`."""
        return coherence.contradiction(trajectory, next_state)

    def premise(self, trajectory: Trajectory) -> str:
        """Always "": what a page hides is not told by a word or two."""
        return ""

    def objection(self, task: Task, premise: str) -> str:
        """Every premise is refused: a page hides nothing that a later state could show, so none is ever
        taught.
        """
        return "a page has no premise"

    def progress(self, trajectory: Trajectory) -> float:
        """See `outlook.progress`."""
        return progress(trajectory)

    def embody(self, dreamed: Trajectory) -> Task:
        """See `embody.embody`."""
        return embody(dreamed)

    def unseen(self, task: Task) -> bool:
        """True if no training task is of this type (MiniWoB's types, WebArena's templates)."""
        return unseen_type(self.browser, task.family)

    def feasible(self, task: Task) -> str:
        """Why a generated task is malformed or hopeless, judged by its text and its first page; "" if it is
        neither.
        """
        view = read_state(task.initial_state)
        goal = read_goal(task.instruction, [view])
        return "follows no template" if goal is None else missing(view, goal)


def _shown(task: Task) -> tuple[str, str, str]:
    """What the task's first page shows; no two tasks of a list show the same."""
    return task.family, task.instruction, task.initial_state
