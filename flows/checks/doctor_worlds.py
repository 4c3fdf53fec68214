"""Checks of `dreamgym doctor` on the environment: its packages, its games, its browser."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from components.config import Config
from flows.checks.check_result import CheckResult, doubt, ok, wrong

INSTALL = "pip install -c constraints.txt -e '.[{}]'"
EXTRAS = ("alfworld", "webshop", "browser")
"""Environments with packages of their own."""


def install_command(config: Config) -> str:
    """Return the command that installs the project for the config's environment.

    An environment of your own needs no extra packages.
    """
    extras = [name for name in played_worlds(config) if name in EXTRAS]
    return INSTALL.format(",".join(extras)) if extras else "pip install -c constraints.txt -e ."


def played_worlds(config: Config) -> list[str]:
    """Return the names of the worlds that are played: one, or all of a mixture."""
    return [world.name for world in config.environment.each_world]


def check_compilers(config: Config, _root: Path) -> CheckResult:
    """Check for the build tools of ALFWorld's engine, needed only until it is installed."""
    if "alfworld" not in played_worlds(config):
        return ok(f"Not needed with environment.name={config.environment.name}.")
    if importlib.util.find_spec("alfworld") and importlib.util.find_spec("textworld"):
        return ok("Not needed: alfworld is installed.")
    missing = [tool for tool in ("gcc", "g++", "make", "cmake") if shutil.which(tool) is None]
    if missing:
        return wrong(
            "The package alfworld is not installed, and these build tools are missing: "
            f"{', '.join(missing)}.",
            "Expected gcc, g++, make and cmake.",
            "As root, type: apt-get install gcc g++ make cmake",
        )
    return wrong(
        "The package alfworld is not installed. Its build tools are there.",
        "Expected the packages alfworld and textworld.",
        f"Type: {INSTALL.format('alfworld')}",
    )


def check_games(config: Config, _root: Path) -> CheckResult:
    """Check that the engine plays a training game of each world, with the first behaviour in `data`."""
    from components.environments import make_adapter
    from components.environments.text_world.listed_tasks import listed_tasks
    from components.trajectories.recording import BEHAVIOURS, collect, plan

    adapter = make_adapter(config.environment.model_copy(update={"workers": 1}))
    tasks = listed_tasks(
        adapter, config.environment.name, "train", len(played_worlds(config)), config.data.seed
    )
    if config.environment.browser.benchmark != "miniwob":
        return ok(
            f"The task {tasks[0].id} opens: '{tasks[0].instruction}'. It was not played: this benchmark has "
            "no expert."
        )
    environment = (
        f"{config.environment.games} games of alfworld"
        if config.environment.name == "alfworld"
        else config.environment.name
    )
    behaviour = next((name for name in BEHAVIOURS if getattr(config.data, name)), "expert")
    max_steps = max(30, config.environment.max_steps)
    episodes = collect(adapter, plan(tasks, {behaviour: 1}, config.data.seed), max_steps)
    steps = sum(len(episode.steps) for episode in episodes)
    if behaviour != "expert":
        return ok(f"{environment}: {behaviour} play took {steps} steps. No expert plays (data.expert=0).")
    unsolved = next((episode for episode in episodes if not episode.success), None)
    if unsolved is not None:
        return wrong(
            f"{environment}: the expert did not solve {unsolved.task.id} ('{unsolved.task.instruction}') in "
            f"{len(unsolved.steps)} steps.",
            "Expected success.",
            "Type `dreamgym check-environment` with the same config: it says which part of the contract the "
            "environment breaks.",
        )
    instructions = "', '".join(task.instruction for task in tasks)
    return ok(f"{environment}: the expert solved '{instructions}' in {steps} steps.")


def check_official_games(config: Config, _root: Path) -> CheckResult:
    """Check that ALFWORLD_DATA names the directory of the official games, if the config uses them."""
    if config.environment.games != "official":
        return ok("Not needed without environment.games=official.")
    folder = os.environ.get("ALFWORLD_DATA", "")
    if not folder or not (Path(folder) / "json_2.1.1").is_dir():
        problem = (
            f"ALFWORLD_DATA is {folder}, which has no directory json_2.1.1."
            if folder
            else "ALFWORLD_DATA is not set."
        )
        next_step = "Type `alfworld-download`, then: export ALFWORLD_DATA=DIRECTORY"
        return wrong(problem, "Expected the directory of the official games.", next_step)
    return ok(f"The official games are in {folder}.")


def check_browser(config: Config, _root: Path) -> CheckResult:
    """Check that Chromium starts; for WebArena also its packages, variables (WA_*), sites and evaluators."""
    if "browser" not in played_worlds(config):
        return ok(f"Not needed with environment.name={config.environment.name}.")
    from components.environments.browser.engine.chromium import find_chromium, read_version
    from components.environments.browser.engine.gym_tasks import require_types
    from components.environments.browser.engine.web_sites import find_missing_requirements

    chromium = read_version(find_chromium(config.environment.browser.executable))
    if config.environment.browser.benchmark == "miniwob":
        require_types(config.environment.browser.types)
        return ok(f"{chromium} starts. MiniWoB++ needs nothing else.")
    problems = find_missing_requirements()
    problems = [problem for problem in problems if problem.stops] or problems
    if not problems:
        return ok(f"{chromium} starts, and all sites answer.")
    sentences = " ".join(f"{problem.found[0].upper()}{problem.found[1:]}." for problem in problems)
    next_step = f"Type: {'; then: '.join(problem.next_step for problem in problems)}"
    state = wrong if problems[0].stops else doubt
    return state(f"{chromium} starts. {sentences}", "Expected all that WebArena needs.", next_step)
