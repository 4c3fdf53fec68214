"""Which browser tasks there are, and to which split each belongs.

MiniWoB's tasks are split by seed, by page and by type; WebArena's by template. The default types are those
with an expert (measured in docs/reference/browser.md). Every fourth of the types in use is kept for the
test split alone, so that the test has types that no training task has.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from components.config.worlds.browser_config import BrowserConfig
from components.environments.browser.goals import join_quotes
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

EXPERT_TYPES = (
    *("click-button", "click-tab-2", "login-user", "enter-password"),
    *("choose-list", "click-checkboxes", "enter-text", "enter-text-2"),
    *("click-option", "read-table", "unicode-test", "read-table-2"),
    *("click-link", "multi-layouts", "enter-date", "enter-time"),
    *("click-collapsible-2-nodelay", "click-checkboxes-transfer", "login-user-popup", "multi-orderings"),
    *("simple-arithmetic", "navigate-tree", "find-greatest", "simple-algebra"),
    *("click-dialog-2", "form-sequence-2", "odd-or-even", "click-widget"),
    *("text-transform", "click-collapsible-nodelay", "click-dialog", "enter-text-dynamic"),
)
"""MiniWoB's types that the expert solves and that have many pages.

Every fourth, the last of each row, is for the test split alone.
"""
OTHER_EXPERT_TYPES = (
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
"""Types that the expert solves too, but that have few pages, are variants of another type, or are slow."""
_HELD_OUT_TEMPLATES = 3
"""Every third of WebArena's templates is held out for validation and test."""
_HELD_OUT_PAGES = 3
"""Every third page of a MiniWoB type is held out for validation and test."""
_VALIDATION_SEEDS = 2_000_000
"""First seed of validation pages; the seeds of the other splits are below."""


class Candidate(NamedTuple):
    """A task that may be taken: its name within the environment, its type, and the spec that opens it."""

    name: str
    family: str
    spec: dict[str, Any]


def types_in_use(config: BrowserConfig) -> tuple[str, ...]:
    """Return the task types that the config names, else all that have an expert."""
    return tuple(config.types) or EXPERT_TYPES


def is_unseen_type(config: BrowserConfig, family: str) -> bool:
    """Return whether no training task is of this type."""
    return (
        family in types_in_use(config)[3::4] if config.benchmark == "miniwob" else family in _held_out(config)
    )


def split_of_page(page: str) -> str:
    """Return the split (TRAIN or TEST) that a page belongs to, by what it shows.

    A type with few pages would otherwise show the same page in both splits.
    """
    return TEST if int(hashlib.sha256(page.encode()).hexdigest()[:8], 16) % _HELD_OUT_PAGES == 0 else TRAIN


def split_of_task(task: Task) -> str:
    """Return the split that a task belongs to, by the page's own words.

    The instruction is taken as the page gives it, so that a change in how states write it moves no task.
    """
    return split_of_page("\n".join((task.family, join_quotes(task.instruction), task.initial_state)))


def miniwob_page(family: str, seed: int) -> Candidate:
    """Return the page of a MiniWoB type that `seed` gives."""
    return Candidate(f"{family}/{seed}", family, {"task": f"miniwob.{family}", "seed": seed})


class Slot:
    """The place of one MiniWoB task in a list, which draws candidates for itself.

    Its type is given by its turn. Its seeds are ones that no other split has.
    """

    def __init__(self, config: BrowserConfig, split: str, name: str, number: int) -> None:
        types = types_in_use(config)
        unseen_types = types[3::4]
        training_types = tuple(family for family in types if family not in unseen_types)
        pools = [training_types, unseen_types] if unseen_types and split != TRAIN else [training_types]
        pool = pools[number % len(pools)]
        self.family = pool[number // len(pools) % len(pool)]
        self._is_odd = split == TEST
        self._first_seed = _VALIDATION_SEEDS if split == VALIDATION else 0
        self._rng = random.Random(f"{name}/{number}")

    def draw(self) -> Candidate:
        """Return the next candidate."""
        return miniwob_page(self.family, self._first_seed + 2 * self._rng.randrange(1_000_000) + self._is_odd)


def web_candidates(config: BrowserConfig, split: str, rng: random.Random, count: int) -> list[Candidate]:
    """Return `count` WebArena tasks of a split, drawn by `rng`.

    Raises:
        EnvironmentFailure: the split has fewer tasks.
    """
    held_out = _held_out(config)
    entries = [
        entry for entry in _entries(config.benchmark) if (template(entry) in held_out) == (split != TRAIN)
    ]
    if len(entries) < count:
        raise EnvironmentFailure(
            f"{config.benchmark} has {len(entries)} tasks of the split {split}.",
            f"Expected at least {count}.",
        )
    candidates = []
    for entry in rng.sample(entries, count):
        # WebArena-Lite's tasks keep the numbers that they had in WebArena.
        number = entry.get("old_task_id", entry["task_id"])
        candidates.append(
            Candidate(str(number), template(entry), {"task": f"{config.benchmark}.{number}", "seed": 0})
        )
    return candidates


def template(entry: dict[str, Any]) -> str:
    """Return the type of a WebArena task: its sites and the number of its sentence."""
    return f"{'+'.join(entry['sites'])}-{entry['intent_template_id']}"


def _held_out(config: BrowserConfig) -> set[str]:
    return set(sorted({template(entry) for entry in _entries(config.benchmark)})[::_HELD_OUT_TEMPLATES])


def _entries(benchmark: str) -> Sequence[dict[str, Any]]:
    package, file = {
        "webarena": ("webarena", "test.raw.json"),
        "webarenalite": ("browsergym.webarenalite", "test_webarena_lite.raw.json"),
    }[benchmark]
    try:
        text = _read_package_file(package, file)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise EnvironmentFailure(
            f"{benchmark}'s tasks are not installed ({error}).", next_step="Type `dreamgym doctor`."
        ) from None
    entries: list[dict[str, Any]] = json.loads(text)
    return entries


def _read_package_file(package: str, name: str) -> str:
    """Return the text of a file of a package without an import; BrowserGym fetches data on import."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(package)
    return (Path(spec.submodule_search_locations[0]) / name).read_text(encoding="utf-8")
