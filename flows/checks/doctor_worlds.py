"""The checks of `dreamgym doctor` that concern the environment: its packages, its games, its browser."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from components.config import Config
from flows.checks.check_result import Rung, doubt, ok, wrong

INSTALL = "pip install -c constraints.txt -e '.[{}]'"
EXTRAS = ("alfworld", "webshop", "browser")
"""Environments with packages of their own."""


def install_command(config: Config) -> str:
    """What installs the project with what the environment needs; worlds of one's own need no extra."""
    extra = config.environment.name
    return INSTALL.format(extra) if extra in EXTRAS else "pip install -c constraints.txt -e ."


def check_compilers(config: Config, _root: Path) -> Rung:
    """What builds ALFWorld's engine, needed only if it is not there yet."""
    if config.environment.name != "alfworld":
        return ok(f"Not needed with environment.name={config.environment.name}.")
    if importlib.util.find_spec("alfworld") and importlib.util.find_spec("textworld"):
        return ok("Not needed: alfworld is installed.")
    missing = [tool for tool in ("gcc", "g++", "make", "cmake") if shutil.which(tool) is None]
    if missing:
        lack = (
            f"The package alfworld is not installed, and these build tools are missing: {', '.join(missing)}."
        )
        return wrong(
            lack, "Expected gcc, g++, make and cmake.", "As root, type: apt-get install gcc g++ make cmake"
        )
    lack = "The package alfworld is not installed. Its build tools are there."
    return wrong(lack, "Expected the packages alfworld and textworld.", f"Type: {INSTALL.format('alfworld')}")


def check_games(config: Config, _root: Path) -> Rung:
    """The engine plays one training game to its end, by the first behaviour that `data` records."""
    from components.environments import make_adapter
    from components.environments.text_world.listed_tasks import listed_tasks
    from components.trajectories.recording import BEHAVIOURS, collect, plan

    adapter = make_adapter(config.environment.model_copy(update={"workers": 1}))
    tasks = listed_tasks(adapter, config.environment.name, "train", 1, config.data.seed)
    if config.environment.browser.benchmark != "miniwob":
        return ok(
            f"The task {tasks[0].id} opens: '{tasks[0].instruction}'. It was not played: this benchmark has "
            "no expert."
        )
    kind = (
        f"{config.environment.games} games of alfworld"
        if config.environment.name == "alfworld"
        else config.environment.name
    )
    behaviour = next((name for name in BEHAVIOURS if getattr(config.data, name)), "expert")
    played = collect(
        adapter, plan(tasks, {behaviour: 1}, config.data.seed), max(30, config.environment.max_steps)
    )
    if behaviour != "expert":
        return ok(
            f"{kind}: {behaviour} play took {len(played[0].steps)} steps. No expert plays (data.expert=0)."
        )
    if not played[0].success:
        found = (
            f"{kind}: the expert did not solve {tasks[0].id} ('{tasks[0].instruction}') in "
            f"{len(played[0].steps)} steps."
        )
        cure = (
            "Type `dreamgym check-environment` with the same config: it says which promise the "
            "environment breaks."
        )
        return wrong(found, "Expected success.", cure)
    return ok(f"{kind}: the expert solved '{tasks[0].instruction}' in {len(played[0].steps)} steps.")


def check_official_games(config: Config, _root: Path) -> Rung:
    """The official games are where ALFWORLD_DATA says, if they are asked for."""
    if config.environment.games != "official":
        return ok("Not needed without environment.games=official.")
    folder = os.environ.get("ALFWORLD_DATA", "")
    if not folder or not (Path(folder) / "json_2.1.1").is_dir():
        found = (
            f"ALFWORLD_DATA is {folder}, which has no directory json_2.1.1."
            if folder
            else "ALFWORLD_DATA is not set."
        )
        cure = "Type `alfworld-download`, then: export ALFWORLD_DATA=DIRECTORY"
        return wrong(found, "Expected the directory of the official games.", cure)
    return ok(f"The official games are in {folder}.")


def check_browser(config: Config, _root: Path) -> Rung:
    """Chromium starts; for WebArena also its packages, the WA_* variables, the sites, and what its evaluators
    need.
    """
    if config.environment.name != "browser":
        return ok(f"Not needed with environment.name={config.environment.name}.")
    from components.environments.browser.engine.chromium import find_chromium, version
    from components.environments.browser.engine.gym_tasks import require_types
    from components.environments.browser.engine.web_sites import lacking

    found = version(find_chromium(config.environment.browser.executable))
    if config.environment.browser.benchmark == "miniwob":
        require_types(config.environment.browser.types)
        return ok(f"{found} starts. MiniWoB++ needs nothing else.")
    absent = lacking()
    listed = [want for want in absent if want.stops] or absent
    if not listed:
        return ok(f"{found} starts, and all sites answer.")
    report = f"{found} starts. {' '.join(f'{want.found[0].upper()}{want.found[1:]}.' for want in listed)}"
    expected, cure = (
        "Expected all that WebArena needs.",
        f"Type: {'; then: '.join(want.next_step for want in listed)}",
    )
    return wrong(report, expected, cure) if listed[0].stops else doubt(report, expected, cure)
