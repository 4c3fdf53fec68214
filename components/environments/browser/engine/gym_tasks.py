"""Make BrowserGym's tasks by name, such as `miniwob.click-tab-2`, `webarena.4` or `webarenalite.17`.

`openended` opens a page of one's own. BrowserGym is imported when it is needed: in worker processes and by
`doctor`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from components.environments.browser.engine.library_patches import without_nltk_downloads
from components.environments.browser.engine.web_sites import require_for_web
from components.errors import EnvironmentFailure

BENCHMARKS = ("miniwob", "webarena", "webarenalite")
"""The benchmarks that data may name. `openended` is for our own tests and pictures."""
EPISODE_MILLISECONDS = 1_000_000_000
"""Time limit of a MiniWoB episode. It is never reached, since RL may leave a page waiting for minutes."""
ROUNDING = 1e-9
"""How far a sum of fractions in a page's script may lie below 1."""


def make_task(spec: Mapping[str, Any]) -> Any:
    """Return BrowserGym's task object for a spec.

    Args:
        spec: `task` (its name), `seed`, and for `openended` also `url` and `goal`.

    Raises:
        EnvironmentFailure: there is no such task, its package is not installed, or the variables that name
            its sites are not set.
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
    similar = (
        [f"miniwob.{name}" for name in _similar_names(rest)]
        if benchmark == "miniwob"
        else ["miniwob.click-test-2", "webarena.4"]
    )
    raise EnvironmentFailure(
        f"BrowserGym has no task {spec['task']!r}.", f"Expected one such as {' or '.join(similar)}."
    )


def raw_reward(reward: float, info: Mapping[str, Any]) -> float:
    """Return what the page or the evaluator itself gave.

    BrowserGym's reward for MiniWoB is 1 for every raw reward above 0. Many pages pay a part of 1 for a
    partial or wrong answer (docs/reference/browser.md lists them). The raw reward does not depend on the
    elapsed time; the page's other reward does.

    Args:
        reward: the reward that the task's `validate` returned.
        info: the info that it returned.
    """
    return float(info.get("RAW_REWARD_GLOBAL", reward))


def is_success(raw_reward: float) -> bool:
    """Return whether a page or an evaluator gave the whole reward of 1. A sum may miss it by ROUNDING."""
    return raw_reward >= 1.0 - ROUNDING


def require_types(types: Iterable[str]) -> None:
    """Raise EnvironmentFailure if MiniWoB has no task type of one of these names."""
    unknown = next((name for name in types if name not in miniwob_tasks()), None)
    if unknown is not None:
        raise EnvironmentFailure(
            f"environment.browser.types names {unknown}, and MiniWoB has no such type.",
            f"Expected one such as {' or '.join(_similar_names(unknown))}.",
            "docs/reference/browser.md lists those with an expert.",
        )


def _similar_names(name: str) -> list[str]:
    return difflib.get_close_matches(name, miniwob_tasks(), n=3) or ["click-test-2"]


def is_web_task(spec: Mapping[str, Any]) -> bool:
    """Return True for a task on web sites, False for one on MiniWoB's files."""
    return not str(spec["task"]).startswith("miniwob.")


@functools.cache
def miniwob_tasks() -> dict[str, Any]:
    """Return name -> class of MiniWoB's tasks."""
    from browsergym.miniwob import ALL_MINIWOB_TASKS

    return {task.subdomain: task for task in ALL_MINIWOB_TASKS}


def miniwob_address() -> str:
    """Return the URL of the folder of MiniWoB's pages in the installed package."""
    package = importlib.util.find_spec("miniwob")
    if package is None or not package.submodule_search_locations:
        raise EnvironmentFailure(
            "MiniWoB++ is not installed.", next_step="pip install -c constraints.txt -e '.[browser]'"
        )
    return (Path(package.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"


def _web_task(benchmark: str, number: int, seed: int) -> Any:
    require_for_web(benchmark)
    with without_nltk_downloads():
        if benchmark == "webarena":
            return importlib.import_module("browsergym.webarena.task").GenericWebArenaTask(
                seed, task_id=number
            )
        return importlib.import_module("browsergym.webarenalite.task").WebArenaLiteTask(seed, task_id=number)
