"""Which tasks there are: MiniWoB's types by seed, split by seed and by type; WebArena's tasks, split by
template.

The types with an expert, measured (docs/reference/browser.md), are the default. Every fourth of the types in
use is kept for the test split alone, so that there is something that no training task has shown.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from components.config.worlds.browser_config import BrowserConfig
from components.environments.browser.goals import closed
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

SOLVED = (
    *("click-button", "click-tab-2", "login-user", "enter-password"),
    *("choose-list", "click-checkboxes", "enter-text", "enter-text-2"),
    *("click-option", "read-table", "unicode-test", "read-table-2"),
    *("click-link", "multi-layouts", "enter-date", "enter-time"),
    *("click-collapsible-2-nodelay", "click-checkboxes-transfer", "login-user-popup", "multi-orderings"),
    *("simple-arithmetic", "navigate-tree", "find-greatest", "simple-algebra"),
    *("click-dialog-2", "form-sequence-2", "odd-or-even", "click-widget"),
    *("text-transform", "click-collapsible-nodelay", "click-dialog", "enter-text-dynamic"),
)
"""MiniWoB's types that the expert solves and that have many pages; every fourth, the last of each row, is for
the test split alone.
"""
SOLVED_TOO = (
    *(
        "click-test",
        "click-test-2",
        "click-button-sequence",
        "click-tab",
        "focus-text",
        "focus-text-2",
        "guess-number",
    ),
    *(
        "click-tab-2-easy",
        "click-tab-2-medium",
        "click-tab-2-hard",
        "click-collapsible",
        "click-collapsible-2",
        "click-checkboxes-large",
    ),
)
"""Solved as well, but with a handful of pages, or variants of another type, or slow ones."""
_TEMPLATES_HELD_OUT, _PAGES_HELD_OUT = 3, 3
"""Of WebArena's templates, and of the pages of a MiniWoB type, every third is held out, for validation and
test.
"""
_VALIDATION_SEEDS = 2_000_000
"""The seeds of validation pages begin where those of the other splits end."""


class Candidate(NamedTuple):
    """A task that may be taken: its name within the environment, its type, and the spec that opens it."""

    name: str
    family: str
    spec: dict[str, Any]


def types_in_use(config: BrowserConfig) -> tuple[str, ...]:
    """The task types that the config names, or all that have an expert."""
    return tuple(config.types) or SOLVED


def unseen_type(config: BrowserConfig, family: str) -> bool:
    """True if no training task is of this type."""
    return (
        family in types_in_use(config)[3::4] if config.benchmark == "miniwob" else family in _held_out(config)
    )


def split_of(page: str) -> str:
    """To which split a page belongs, by what it shows: types with few pages would else show the same one in
    both.
    """
    return TEST if int(hashlib.sha256(page.encode()).hexdigest()[:8], 16) % _PAGES_HELD_OUT == 0 else TRAIN


def side_of(task: Task) -> str:
    """To which split a task belongs, by the page's own words: how they are told may change, and no page may
    change sides for that.
    """
    return split_of("\n".join((task.family, closed(task.instruction), task.initial_state)))


def page_of(family: str, seed: int) -> Candidate:
    """The page of a MiniWoB type that `seed` gives."""
    return Candidate(f"{family}/{seed}", family, {"task": f"miniwob.{family}", "seed": seed})


class Slot:
    """The place of one MiniWoB task in a list, which draws candidates for itself: its type's turn, and seeds
    that no other split has.
    """

    def __init__(self, config: BrowserConfig, split: str, name: str, number: int) -> None:
        types = types_in_use(config)
        strange = types[3::4]
        seen = tuple(family for family in types if family not in strange)
        pools = [seen, strange] if strange and split != TRAIN else [seen]
        pool = pools[number % len(pools)]
        self.family, self._odd = pool[number // len(pools) % len(pool)], split == TEST
        self._first = _VALIDATION_SEEDS if split == VALIDATION else 0
        self._rng = random.Random(f"{name}/{number}")

    def draw(self) -> Candidate:
        """The next candidate."""
        return page_of(self.family, self._first + 2 * self._rng.randrange(1_000_000) + self._odd)


def web_candidates(config: BrowserConfig, split: str, rng: random.Random, count: int) -> list[Candidate]:
    """`count` WebArena tasks of a split, drawn by `rng`. Raises EnvironmentFailure where there are fewer."""
    held_out = _held_out(config)
    chosen = [
        entry for entry in _entries(config.benchmark) if (template(entry) in held_out) == (split != TRAIN)
    ]
    if len(chosen) < count:
        raise EnvironmentFailure(
            f"{config.benchmark} has {len(chosen)} tasks of the split {split}.", f"Expected at least {count}."
        )
    found = []
    for entry in rng.sample(chosen, count):
        number = entry.get(
            "old_task_id", entry["task_id"]
        )  # WebArena-Lite's tasks go by the numbers that they had in WebArena
        found.append(
            Candidate(str(number), template(entry), {"task": f"{config.benchmark}.{number}", "seed": 0})
        )
    return found


def template(entry: dict[str, Any]) -> str:
    """The type of a WebArena task: its sites and the number of its sentence."""
    return f"{'+'.join(entry['sites'])}-{entry['intent_template_id']}"


def _held_out(config: BrowserConfig) -> set[str]:
    return set(sorted({template(entry) for entry in _entries(config.benchmark)})[::_TEMPLATES_HELD_OUT])


def _entries(benchmark: str) -> Sequence[dict[str, Any]]:
    package, file = {
        "webarena": ("webarena", "test.raw.json"),
        "webarenalite": ("browsergym.webarenalite", "test_webarena_lite.raw.json"),
    }[benchmark]
    try:
        text = _file_of(package, file)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise EnvironmentFailure(
            f"{benchmark}'s tasks are not installed ({error}).", next_step="Type `dreamgym doctor`."
        ) from None
    entries: list[dict[str, Any]] = json.loads(text)
    return entries


def _file_of(package: str, name: str) -> str:
    """A file of a package that is not imported for it: BrowserGym's fetches data when it is."""
    from importlib.util import find_spec
    from pathlib import Path

    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(package)
    return (Path(found.submodule_search_locations[0]) / name).read_text(encoding="utf-8")
