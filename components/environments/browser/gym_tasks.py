"""BrowserGym's tasks by name: `miniwob.click-tab-2`, `webarena.4`, `webarenalite.17`, and `openended` for a page of one's own.

Imported in worker processes alone. Importing WebArena's packages downloads a table of NLTK's where it is missing, and fails offline; here
it is left out then (tasks and evaluators load without it) and `missing_for_web` says so, since those evaluators that split words need it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.errors import EnvironmentFailure

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "WIKIPEDIA", "MAP", "HOMEPAGE")
WEB_INSTALL = (
    "pip install -c constraints.txt -e '.[browser,webarena]' && "
    "pip install --no-deps -c constraints.txt libwebarena browsergym-webarena browsergym-webarenalite"
)
EPISODE_MILLISECONDS = 1_000_000_000
"""So long that a MiniWoB page never ends an episode by itself: RL may leave it waiting for minutes."""


def make_task(spec: Mapping[str, Any]) -> Any:
    """BrowserGym's task object for a spec: `task` (its name), `seed`, and for `openended` also `url` and `goal`.

    Raises:
        EnvironmentFailure: there is no such task, its package is not installed, or the sites that it needs are not named.
    """
    benchmark, _, rest = str(spec["task"]).partition(".")
    seed = int(spec.get("seed", 0))
    if benchmark == "miniwob" and rest in miniwob_tasks():
        return miniwob_tasks()[rest](seed=seed, base_url=miniwob_address(), episode_max_time=EPISODE_MILLISECONDS)
    if benchmark in ("webarena", "webarenalite") and rest.isdigit():
        return _web_task(benchmark, int(rest), seed)
    if benchmark == "openended":
        from browsergym.core.task import OpenEndedTask

        return OpenEndedTask(seed, spec["url"], spec.get("goal", ""))
    raise EnvironmentFailure(f"BrowserGym has no task {spec['task']!r}.", "Expected one such as miniwob.click-test-2 or webarena.4.")


@functools.cache
def miniwob_tasks() -> dict[str, Any]:
    """Name -> class of MiniWoB's tasks."""
    from browsergym.miniwob import ALL_MINIWOB_TASKS

    return {task.subdomain: task for task in ALL_MINIWOB_TASKS}


def miniwob_address() -> str:
    """Where MiniWoB's pages are: MINIWOB_URL, else those of the installed package."""
    address = os.environ.get("MINIWOB_URL", "")
    if address:
        return address if address.endswith("/") else f"{address}/"
    found = importlib.util.find_spec("miniwob")
    if found is None or not found.submodule_search_locations:
        raise EnvironmentFailure("MiniWoB++ is not installed.", next_step="pip install -c constraints.txt -e '.[browser]'")
    return (Path(found.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"


def _web_task(benchmark: str, number: int, seed: int) -> Any:
    if absent := missing_for_web():
        raise EnvironmentFailure(f"{benchmark} cannot be played: {absent[0]}", next_step="Type `dreamgym doctor` for all that is missing.")
    with without_downloads():
        if benchmark == "webarena":
            return importlib.import_module("browsergym.webarena.task").GenericWebArenaTask(seed, task_id=number)
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


def missing_for_web() -> list[str]:
    """What WebArena lacks here, each with what to do about it; sites that are named are not asked whether they answer."""
    packages = ("webarena", "browsergym.webarena", "browsergym.webarenalite", "nltk", "evaluate", "openai", "aiolimiter", "tiktoken")
    absent = [name for name in (*packages, "text_generation") if not _installed(name)]
    if absent:
        return [f"not installed: {', '.join(absent)}; type: {WEB_INSTALL}"]
    unset = [f"WA_{site}" for site in SITES if not os.environ.get(f"WA_{site}")]
    return [f"not set: {', '.join(unset)}; export each with the address of that site"] if unset else []


def without_word_table() -> bool:
    """True if NLTK lacks the table with which WebArena's evaluators split answers into words."""
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        return True
    return False


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def site_hosts() -> tuple[str, ...]:
    """The hosts of the sites that the WA_* variables name."""
    from urllib.parse import urlsplit

    return tuple(urlsplit(os.environ.get(f"WA_{site}", "")).netloc for site in SITES if os.environ.get(f"WA_{site}"))
