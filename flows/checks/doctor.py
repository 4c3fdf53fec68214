"""The checks of the set-up, in order: a later one needs the earlier ones. Each says what it found, what it
expected, what to type.

dreamgym doctor
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from rich.text import Text

from components.config import Config
from components.errors import DreamGymError
from flows.checks.check_result import Rung, as_rung, doubt, ok, wrong
from flows.checks.doctor_worlds import (
    check_browser,
    check_compilers,
    check_games,
    check_official_games,
    install_command,
)
from flows.checks.machine import port_is_free
from flows.checks.preflight import (
    has_identity,
    missing_data,
    not_in_snapshot,
    require_backbone,
    require_repository,
)
from flows.failures import expected_failure
from flows.printing.output import Output
from flows.settings import MLFLOW_PORT

PREFECT_PORT = 4200
_FREE_DISK_BYTES, _FREE_MEMORY_BYTES = 5_000_000_000, 5_000_000_000


def climb(config: Config, root: Path, page: Output) -> bool:
    """Print the result of every check, or of those up to git if there is no repository; True if a run can
    start.
    """
    broken = 0
    for name, check in LADDER.items():
        with page.console.status(name):
            rung = _checked(check, config, root)
        broken += rung.state == "wrong"
        print_rung(page, name, rung.state, rung.found, rung.next_step, rung.expected)
        if name == "git" and rung.state == "wrong":
            break  # the next ones would make directories, and wait minutes for Prefect
    verdict = "A run can start. Type: dreamgym retrain"
    if broken:
        verdict = (
            f"A run cannot start: {broken} wrong. Correct the first one, then type `dreamgym doctor` again."
        )
    page.text(verdict)
    page.put(can_start=not broken)
    return not broken


def print_rung(
    page: Output, name: str, state: str, found: str, next_step: str = "", expected: str = ""
) -> None:
    """A line for what was checked, and one for what to do next; in the JSON an entry of `checks`."""
    page.add(
        "checks", {"name": name, "state": state, "found": found, "expected": expected, "next": next_step}
    )
    if page.prints_json:
        return
    style = {"ok": "green", "doubt": "yellow", "wrong": "red"}[state]
    said = " ".join(part for part in (found, expected) if part)
    page.console.print(Text.assemble((f"{state:<5}", style), f" {name}: {said}"), soft_wrap=True)
    if next_step:
        page.text(f"      next: {next_step}")


def _checked(check: Callable[[Config, Path], Rung], config: Config, root: Path) -> Rung:
    try:
        return check(config, root)
    except Exception as error:  # a check that breaks is what this command is there to show
        failure = expected_failure(error)
        if failure is None:
            found = f"The check ended with {type(error).__name__}: {error}"
            cure = (
                "Correct what is wrong above. If nothing is, report this line as a bug, with `dreamgym "
                "doctor --debug`."
            )
            return wrong(found, "Expected the check to end with a result.", cure)
        return as_rung(failure, install_command(config))


def check_python(_config: Config, _root: Path) -> Rung:
    """Python 3.11 or 3.12."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 13):
        found = f"Python is {version} in {sys.prefix}."
        return wrong(found, "Expected 3.11 or 3.12.", "Type: make clean && make test PYTHON=python3.11")
    return ok(f"Python {version} in {sys.prefix}.")


def check_packages(config: Config, root: Path) -> Rung:
    """What the project requires is installed, in the versions of constraints.txt."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    install = install_command(config)
    try:
        wanted = [Requirement(line) for line in metadata.requires("dreamgym-pipeline") or []]
    except metadata.PackageNotFoundError:
        lack = "The package dreamgym-pipeline is not installed in this environment."
        return wrong(lack, f"Expected it in {sys.prefix}.", f"Type: {install}")
    extras = ("", config.environment.name)
    names = [
        r.name
        for r in wanted
        if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    installed = {
        str(canonicalize_name(dist.metadata["Name"])): dist.version
        for dist in metadata.distributions()
        if dist.metadata["Name"]
    }
    absent = sorted(name for name in names if canonicalize_name(name) not in installed)
    if absent:
        lack = f"Not installed: {', '.join(absent)}."
        return wrong(
            lack, f"Expected all {len(names)} packages that the project requires.", f"Type: {install}"
        )
    lock = root / "constraints.txt"
    if not lock.is_file():
        lack = f"There is no file {lock}, so the versions of the packages were not compared."
        return doubt(
            lack,
            "Expected the list of versions that the project is tested with.",
            "Type: git checkout constraints.txt",
        )
    pins: dict[str, str] = dict(
        re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    )
    found = {name: installed.get(canonicalize_name(name), pin).split("+")[0] for name, pin in pins.items()}
    drift = [f"{name} {found[name]} (not {pin})" for name, pin in pins.items() if found[name] != pin]
    if drift:
        more = f" and {len(drift) - 5} more" if len(drift) > 5 else ""
        differing = (
            f"{len(drift)} of {len(pins)} packages have another version: {', '.join(drift[:5])}{more}."
        )
        return doubt(differing, "Expected the versions of constraints.txt.", f"Type: {install}")
    return ok(f"All {len(names)} required packages are installed, in the versions of constraints.txt.")


def check_git(_config: Config, root: Path) -> Rung:
    """A repository with a commit, and an identity."""
    known = has_identity(root)
    require_repository(root)
    if not known:
        found = "git has no user.name and user.email: the commits of runs will have the author dreamgym."
        cure = "Type: git config --global user.name NAME && git config --global user.email ADDRESS"
        return doubt(found, "Expected your name and address.", cure)
    return ok(f"{root} is a git repository with a commit.")


def check_files(_config: Config, root: Path) -> Rung:
    """Directories that a run writes to, temporary files, the lock files of DVC and git, and data.dvc without
    a merge conflict.
    """
    from flows.checks.machine import WRITTEN, require_machine

    require_machine(root)
    return ok(f"{', '.join(WRITTEN)} and temporary files can be written. No lock file is left over.")


def check_remote(_config: Config, root: Path) -> Rung:
    """Where new versions of the data are pushed, and that no old setting hides the default remote."""
    from components.trajectories.dvc.dvc_cache import dvc_config, remote_to_push_to
    from components.trajectories.dvc.repository_state import hidden_default_remote

    remote = remote_to_push_to(root)
    if setting := hidden_default_remote(root):
        found = f"{setting} sets core.remote = local, as earlier versions of this project wrote it."
        expected = "Expected no such line: it hides the default that `dvc remote add -d NAME URL` sets."
        return doubt(found, expected, "Type: dvc config --local --unset core.remote")
    if remote not in dvc_config(root).get("remote", {}):
        found = f"DVC knows no remote {remote}, so new versions of data/ stay in the cache of this clone."
        return doubt(
            found,
            "Expected a remote to push to.",
            "Type `git checkout .dvc/config`, or: dvc remote add -d NAME URL",
        )
    return ok(f"New versions of data/ are pushed to the remote {remote}.")


def check_data(config: Config, root: Path) -> Rung:
    """data.dvc is there, the data is pulled, and every file has its hash."""
    from components.trajectories.dvc.snapshots import data_hash, data_parts, drift, missing_files, verify

    data_parts(root)  # a data.dvc that cannot be read is said first
    missing = missing_data(root, config, backbone=not config.backbone.path)
    if missing and not missing_files(root):
        return as_rung(not_in_snapshot(missing))
    if missing:
        expected = "Expected all files of the version that data.dvc names."
        cure = "Type: dreamgym data pull (dreamgym retrain and dreamgym collect pull by themselves)"
        return wrong(f"Missing: {', '.join(missing)}.", expected, cure)
    moved = drift(root)
    if (moved.changed or moved.added) and not moved.unsaved:
        held = "data/ holds another version than the one that data.dvc names. Both are in DVC's cache."
        cure = "Type `dreamgym data pull`, or nothing: the next run brings data/ to the version of data.dvc."
        return doubt(held, "Expected the version that data.dvc names.", cure)
    try:
        verify(root)
    except DreamGymError as error:
        return as_rung(error)
    return ok(f"data/ is the version {data_hash(root)}. Every file has its hash.")


def check_backbone(config: Config, root: Path) -> Rung:
    """Every stage can use the models that both sides start from, and they are long enough for the data's
    episodes.
    """
    from components.trajectories.store import DataLayout
    from flows.checks.model_checks import check_models

    require_backbone(config)
    models = check_models(root, config)
    if models is None:
        missing = DataLayout.of(root, config.environment.name).backbone
        cure = "Type `dreamgym data pull`, make one with `dreamgym pretrain`, or set backbone.path=DIRECTORY."
        return wrong(
            f"There is no directory {missing}.", "Expected the backbone that both models start from.", cure
        )
    both = [models.policy.summary] + (
        [f"experience model: {models.experience.summary}"] if config.experience_model.path else []
    )
    if models.doubts:
        cure = (
            "Lower environment.max_steps, or name a model that reads more tokens (backbone.path, "
            "experience_model.path)."
        )
        return doubt(f"{'; '.join([*both, *models.doubts])}.", "Expected whole dreams to fit.", cure)
    return ok(f"{'; '.join(both)}.")


def check_mlflow(config: Config, root: Path) -> Rung:
    """The store of runs and models opens."""
    from components.tracking.mlflow_adapter.mlflow_uri import without_password
    from components.tracking.mlflow_adapter.tracker import Tracker

    return ok(f"The store of runs and models opens: {without_password(Tracker(config.tracking, root).uri)}")


def check_prefect(_config: Config, _root: Path) -> Rung:
    """A Prefect server answers: the configured one, or an ephemeral one that starts for it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        failure = client.api_healthcheck()
        if failure is not None:
            found = f"The Prefect server at {client.api_url} does not answer: {failure}."
            cure = (
                "Start that server, or type `unset PREFECT_API_URL`: a run then starts a server of its own."
            )
            return wrong(found, "Expected an answer.", cure)
        return ok(f"The server at {client.api_url} answers ({client.server_type.value}).")


def check_room(_config: Config, root: Path) -> Rung:
    """Disk and memory."""
    import psutil

    if not root.is_dir():
        return wrong(
            f"There is no directory {root}.",
            "Expected a clone of this project.",
            "Type: dreamgym doctor --root DIRECTORY",
        )
    disk, memory = shutil.disk_usage(root).free, psutil.virtual_memory().available
    found = f"{disk / 1e9:.1f} GB of disk and {memory / 1e9:.1f} GB of memory are free."
    if disk < _FREE_DISK_BYTES:
        cure = "Type `dreamgym gc` to see what nothing needs, then: dreamgym gc --delete --older-than 0"
        return wrong(found, f"Expected {_FREE_DISK_BYTES / 1e9:.0f} GB of disk.", cure)
    if memory < _FREE_MEMORY_BYTES:
        expected = (
            f"Expected {_FREE_MEMORY_BYTES / 1e9:.0f} GB of memory, which configs/quick.yaml takes at most."
        )
        return doubt(found, expected, "End other programs, or set environment.workers=1.")
    return ok(found)


def check_cores(config: Config, _root: Path) -> Rung:
    """Not more threads than cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if config.threads > cores:
        found = f"threads is {config.threads}, and this process may use {cores} cores."
        return doubt(
            found,
            f"Expected at most {cores} threads: more are slower.",
            f"Type: dreamgym retrain threads={cores}",
        )
    return ok(f"threads is {config.threads}; this process may use {cores} cores.")


def check_device(config: Config, _root: Path) -> Rung:
    """Where models compute, and that this hardware can."""
    from components.language.compute import compute_of, describe

    return ok(f"Models compute on {describe(compute_of(config))}.")


def check_ports(_config: Config, _root: Path) -> Rung:
    """The user interfaces' ports are free."""
    used = [port for port in (MLFLOW_PORT, PREFECT_PORT) if not port_is_free(port)]
    options = [
        f" --{name}-port {_free_port(port)}"
        for name, port in (("mlflow", MLFLOW_PORT), ("prefect", PREFECT_PORT))
        if port in used
    ]
    if used:
        found = f"In use: port {' and port '.join(map(str, used))}. No run needs them; `dreamgym ui` does."
        return doubt(found, "Expected both to be free.", f"Type: dreamgym ui{''.join(options)}")
    return ok("The ports of `dreamgym ui`, 5000 (MLflow) and 4200 (Prefect), are free.")


def _free_port(port: int) -> int:
    """The next free port after `port`."""
    return next(other for other in range(port + 1, port + 1000) if port_is_free(other))


LADDER: dict[str, Callable[[Config, Path], Rung]] = {
    "python": check_python,
    "packages": check_packages,
    "build tools": check_compilers,
    "official games": check_official_games,
    "browser": check_browser,
    "game engine": check_games,
    "disk and memory": check_room,
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
