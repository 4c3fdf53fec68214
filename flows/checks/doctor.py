"""The checks of the set-up, in order: a later one needs the earlier ones.

Each result says what was found, what was expected, and what to type.

    dreamgym doctor
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.text import Text

from components.config import Config
from flows.checks.check_result import CheckResult, failed_check, wrong
from flows.checks.doctor_machine import (
    check_cores,
    check_device,
    check_disk_and_memory,
    check_packages,
    check_ports,
    check_python,
)
from flows.checks.doctor_repository import (
    check_backbone,
    check_data,
    check_files,
    check_git,
    check_mlflow,
    check_prefect,
    check_remote,
)
from flows.checks.doctor_worlds import (
    check_browser,
    check_compilers,
    check_games,
    check_official_games,
    install_command,
)
from flows.failures import expected_failure
from flows.printing.output import Output

SETUP_CHECKS: dict[str, Callable[[Config, Path], CheckResult]] = {
    "python": check_python,
    "packages": check_packages,
    "build tools": check_compilers,
    "official games": check_official_games,
    "browser": check_browser,
    "game engine": check_games,
    "disk and memory": check_disk_and_memory,
    "cores": check_cores,
    "device": check_device,
    "git": check_git,
    "files": check_files,
    "remote": check_remote,
    "data": check_data,
    "backbone": check_backbone,
    "mlflow": check_mlflow,
    "prefect": check_prefect,
    "ports": check_ports,
}
"""Name of a check -> its function, in the order in which they run."""


def run_checks(config: Config, root: Path, page: Output) -> bool:
    """Run and print every check; return True if a run can start.

    Without a repository it stops after the check `git`.
    """
    wrong_count = 0
    for name, check in SETUP_CHECKS.items():
        with page.console.status(name):
            result = run_check(check, config, root)
        wrong_count += result.state == "wrong"
        print_check(page, name, result.state, result.found, result.next_step, result.expected)
        if name == "git" and result.state == "wrong":
            break  # later checks would make directories, and wait minutes for Prefect
    if wrong_count:
        page.text(
            f"A run cannot start: {wrong_count} wrong. Correct the first one, then type `dreamgym doctor` "
            "again."
        )
    else:
        page.text("A run can start. Type: dreamgym retrain")
    page.put(can_start=not wrong_count)
    return not wrong_count


def print_check(
    page: Output, name: str, state: str, found: str, next_step: str = "", expected: str = ""
) -> None:
    """Print the result of a check and its next step; add an entry to `checks` of the JSON."""
    page.add(
        "checks", {"name": name, "state": state, "found": found, "expected": expected, "next": next_step}
    )
    if page.prints_json:
        return
    style = {"ok": "green", "doubt": "yellow", "wrong": "red"}[state]
    sentences = " ".join(part for part in (found, expected) if part)
    page.console.print(Text.assemble((f"{state:<5}", style), f" {name}: {sentences}"), soft_wrap=True)
    if next_step:
        page.text(f"      next: {next_step}")


def run_check(check: Callable[[Config, Path], CheckResult], config: Config, root: Path) -> CheckResult:
    """Return the result of a check; an exception in it becomes the result `wrong`."""
    try:
        return check(config, root)
    except Exception as error:  # a check that fails is what this command reports
        failure = expected_failure(error)
        if failure is not None:
            return failed_check(failure, install_command(config))
        return wrong(
            f"The check ended with {type(error).__name__}: {error}",
            "Expected the check to end with a result.",
            "Correct what is wrong above. If nothing is, report this line as a bug, with `dreamgym "
            "doctor --debug`.",
        )
