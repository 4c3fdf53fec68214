"""BrowserGym's tasks by name: `miniwob.click-tab-2`, `webarena.4`, `webarenalite.17`, and `openended` for a
page of one's own.

BrowserGym is imported when it is needed, in worker processes and by `doctor`. WebArena's packages download a
table of NLTK's as they are imported, and fail offline; here it is left out: tasks and evaluators load without
it (`web_sites.py` tells which evaluators need it).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from components.environments.browser.engine.web_sites import require_for_web
from components.errors import EnvironmentFailure

PLAYED = ("miniwob", "webarena", "webarenalite")
"""The benchmarks; `openended` is for our own tests and pictures, and no task that comes from data opens it.
"""
EPISODE_MILLISECONDS = 1_000_000_000
"""So long that a MiniWoB page never ends an episode by itself: RL may leave it waiting for minutes."""
ROUNDING = 1e-9
"""How far a sum of fractions in a page's script may lie below 1."""


def make_task(spec: Mapping[str, Any]) -> Any:
    """BrowserGym's task object for a spec: `task` (its name), `seed`, and for `openended` also `url` and
    `goal`.

    Raises:
        EnvironmentFailure: there is no such task, its package is not installed, or the sites that it needs
            are not named.
    """
    benchmark, _, rest = str(spec["task"]).partition(".")
    seed = int(spec.get("seed", 0))
    if benchmark == "miniwob" and rest in miniwob_tasks():
        return miniwob_tasks()[rest](
            seed=seed, base_url=miniwob_address(), episode_max_time=EPISODE_MILLISECONDS
        )
    if benchmark in ("webarena", "webarenalite") and rest.isdigit():
        return _web_task(benchmark, int(rest), seed)
    if benchmark == "openended":
        from browsergym.core.task import OpenEndedTask

        return OpenEndedTask(seed, spec["url"], spec.get("goal", ""))
    near = (
        [f"miniwob.{name}" for name in _near(rest)]
        if benchmark == "miniwob"
        else ["miniwob.click-test-2", "webarena.4"]
    )
    raise EnvironmentFailure(
        f"BrowserGym has no task {spec['task']!r}.", f"Expected one such as {' or '.join(near)}."
    )


def raw_reward(reward: float, info: Mapping[str, Any]) -> float:
    """What the page or the evaluator itself gave, of what a task's `validate` returned as reward and info.

    BrowserGym's reward for MiniWoB is 1 for every raw reward above 0. Many pages pay a part of 1 for a
    partial or wrong answer (docs/reference/browser.md lists them). The raw reward does not depend on the
    elapsed time; the page's other reward does.
    """
    return float(info.get("RAW_REWARD_GLOBAL", reward))


def is_success(raw_reward: float) -> bool:
    """True if a page or an evaluator gave the whole reward, which is 1. A sum of fractions may miss it by
    rounding.
    """
    return raw_reward >= 1.0 - ROUNDING


def require_types(types: Iterable[str]) -> None:
    """Raises EnvironmentFailure where MiniWoB has no task type of one of these names."""
    wrong = next((name for name in types if name not in miniwob_tasks()), None)
    if wrong is not None:
        found = f"environment.browser.types names {wrong}, and MiniWoB has no such type."
        raise EnvironmentFailure(
            found,
            f"Expected one such as {' or '.join(_near(wrong))}.",
            "docs/reference/browser.md lists those with an expert.",
        )


def _near(name: str) -> list[str]:
    return difflib.get_close_matches(name, miniwob_tasks(), n=3) or ["click-test-2"]


def of_the_web(spec: Mapping[str, Any]) -> bool:
    """True of a task on web sites, False of one on MiniWoB's files."""
    return not str(spec["task"]).startswith("miniwob.")


@functools.cache
def miniwob_tasks() -> dict[str, Any]:
    """Name -> class of MiniWoB's tasks."""
    from browsergym.miniwob import ALL_MINIWOB_TASKS

    return {task.subdomain: task for task in ALL_MINIWOB_TASKS}


def miniwob_address() -> str:
    """Where MiniWoB's pages are: in the installed package."""
    found = importlib.util.find_spec("miniwob")
    if found is None or not found.submodule_search_locations:
        raise EnvironmentFailure(
            "MiniWoB++ is not installed.", next_step="pip install -c constraints.txt -e '.[browser]'"
        )
    return (Path(found.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"


def _web_task(benchmark: str, number: int, seed: int) -> Any:
    require_for_web(benchmark)
    with without_downloads():
        if benchmark == "webarena":
            return importlib.import_module("browsergym.webarena.task").GenericWebArenaTask(
                seed, task_id=number
            )
        return importlib.import_module("browsergym.webarenalite.task").WebArenaLiteTask(seed, task_id=number)


@contextlib.contextmanager
def without_downloads() -> Iterator[None]:
    """NLTK fetches nothing while this lasts."""
    import nltk

    download, nltk.download = nltk.download, lambda *_args, **_options: False
    try:
        yield
    finally:
        nltk.download = download
