"""Which tasks there are: MiniWoB's types by seed, split by seed and by type; WebArena's tasks, split by template.

The types with an expert, measured (docs/browser.md), are the default. Every fourth of the types in use is kept for the test split alone,
so that there is something that no training task has shown.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from components.browser_config import BrowserConfig
from components.errors import EnvironmentFailure
from components.records import TEST

SOLVED = (
    *("click-button", "click-tab-2", "login-user", "focus-text-2"),
    *("choose-list", "click-checkboxes", "enter-text", "enter-text-2"),
    *("click-option", "read-table", "click-button-sequence", "unicode-test"),
    *("enter-password", "click-collapsible-2-nodelay", "click-dialog-2", "click-checkboxes-transfer"),
    *("click-link", "multi-layouts", "enter-date", "login-user-popup"),
    *("simple-arithmetic", "navigate-tree", "find-greatest", "multi-orderings"),
    *("enter-time", "form-sequence-2", "click-widget", "read-table-2"),
    *("click-tab", "odd-or-even", "guess-number", "simple-algebra"),
)
"""MiniWoB's types that the expert solves; every fourth is kept for the test split."""
_TEMPLATES_HELD_OUT = 3
"""Of WebArena's templates every third is kept for the test split."""


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
    return family in types_in_use(config)[3::4] if config.benchmark == "miniwob" else family in _held_out(config)


def candidates(config: BrowserConfig, split: str, rng: random.Random) -> Iterator[Candidate]:
    """Tasks of `split`, endlessly for MiniWoB, else all there are in an order drawn from `rng`.

    Raises:
        EnvironmentFailure: a type that MiniWoB does not have.
    """
    return _miniwob(config, split, rng) if config.benchmark == "miniwob" else _web(config, split, rng)


def _miniwob(config: BrowserConfig, split: str, rng: random.Random) -> Iterator[Candidate]:
    types = types_in_use(config)
    strange = types[3::4]
    seen = [name for name in types if name not in strange]
    turns = [itertools.cycle(seen), itertools.cycle(strange or seen)]
    for number in itertools.count():
        name = next(turns[number % 2 if split == TEST else 0])
        seed = 2 * rng.randrange(1_000_000) + (split == TEST)  # seeds of the two splits are never the same
        yield Candidate(f"{name}/{seed}", name, {"task": f"miniwob.{name}", "seed": seed})


def _web(config: BrowserConfig, split: str, rng: random.Random) -> Iterator[Candidate]:
    held_out = _held_out(config)
    chosen = [entry for entry in _entries(config.benchmark) if (template(entry) in held_out) == (split == TEST)]
    for entry in rng.sample(chosen, len(chosen)):
        number = entry.get("old_task_id", entry["task_id"])  # WebArena-Lite's tasks go by the numbers that they had in WebArena
        yield Candidate(str(number), template(entry), {"task": f"{config.benchmark}.{number}", "seed": 0})


def template(entry: dict[str, Any]) -> str:
    """The type of a WebArena task: its sites and the number of its sentence."""
    return f"{'+'.join(entry['sites'])}-{entry['intent_template_id']}"


def _held_out(config: BrowserConfig) -> set[str]:
    return set(sorted({template(entry) for entry in _entries(config.benchmark)})[::_TEMPLATES_HELD_OUT])


def _entries(benchmark: str) -> Sequence[dict[str, Any]]:
    package, file = {"webarena": ("webarena", "test.raw.json"), "webarenalite": ("browsergym.webarenalite", "test_webarena_lite.raw.json")}[
        benchmark
    ]
    try:
        text = _file_of(package, file)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise EnvironmentFailure(f"{benchmark}'s tasks are not installed ({error}).", next_step="Type `dreamgym doctor`.") from None
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
