"""Checks of `dreamgym doctor` on the machine: Python, packages, memory, device and ports."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

from components.config import Config
from components.installed_packages import installed_packages
from flows.checks.check_result import CheckResult, doubt, ok, wrong
from flows.checks.doctor_worlds import install_command, played_worlds
from flows.checks.machine import port_is_free
from flows.settings import MLFLOW_PORT

PREFECT_PORT = 4200
MIN_FREE_DISK_BYTES = 5_000_000_000
MIN_FREE_MEMORY_BYTES = 5_000_000_000
MAX_LISTED_PACKAGES = 5


def check_python(_config: Config, _root: Path) -> CheckResult:
    """Check that Python is 3.11 or 3.12."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 13):
        finding = f"Python is {version} in {sys.prefix}."
        return wrong(finding, "Expected 3.11 or 3.12.", "Type: make clean && make test PYTHON=python3.11")
    return ok(f"Python {version} in {sys.prefix}.")


def check_packages(config: Config, root: Path) -> CheckResult:
    """Check that all required packages are installed, in the versions of constraints.txt."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    command = f"Type: {install_command(config)}"
    try:
        requirements = [Requirement(line) for line in metadata.requires("dreamgym-pipeline") or []]
    except metadata.PackageNotFoundError:
        finding = "The package dreamgym-pipeline is not installed in this environment."
        return wrong(finding, f"Expected it in {sys.prefix}.", command)
    extras = ("", *played_worlds(config))
    names = [
        requirement.name
        for requirement in requirements
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    installed = {str(canonicalize_name(name)): version for name, version in installed_packages().items()}
    missing = sorted(name for name in names if canonicalize_name(name) not in installed)
    if missing:
        expected = f"Expected all {len(names)} packages that the project requires."
        return wrong(f"Not installed: {', '.join(missing)}.", expected, command)
    lock = root / "constraints.txt"
    if not lock.is_file():
        return doubt(
            f"There is no file {lock}, so the versions of the packages were not compared.",
            "Expected the list of versions that the project is tested with.",
            "Type: git checkout constraints.txt",
        )
    differing, pin_count = _differing_versions(lock, installed)
    if differing:
        more = len(differing) - MAX_LISTED_PACKAGES
        listed = ", ".join(differing[:MAX_LISTED_PACKAGES]) + (f" and {more} more" if more > 0 else "")
        finding = f"{len(differing)} of {pin_count} packages have another version: {listed}."
        return doubt(finding, "Expected the versions of constraints.txt.", command)
    return ok(f"All {len(names)} required packages are installed, in the versions of constraints.txt.")


def _differing_versions(lock: Path, installed: dict[str, str]) -> tuple[list[str], int]:
    """Return packages whose installed version is not the pinned one, as text, and the number of pins.

    Packages that are not installed are not compared.
    """
    from packaging.utils import canonicalize_name

    text = lock.read_text(encoding="utf-8")
    pins: dict[str, str] = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", text, re.MULTILINE))
    versions = {name: installed.get(canonicalize_name(name), pin).split("+")[0] for name, pin in pins.items()}
    differing = [
        f"{name} {versions[name]} (not {pin})" for name, pin in pins.items() if versions[name] != pin
    ]
    return differing, len(pins)


def check_disk_and_memory(_config: Config, root: Path) -> CheckResult:
    """Check that a run of configs/quick.yaml has enough free disk and memory."""
    import psutil

    if not root.is_dir():
        return wrong(
            f"There is no directory {root}.",
            "Expected a clone of this project.",
            "Type: dreamgym doctor --root DIRECTORY",
        )
    disk = shutil.disk_usage(root).free
    memory = psutil.virtual_memory().available
    finding = f"{disk / 1e9:.1f} GB of disk and {memory / 1e9:.1f} GB of memory are free."
    if disk < MIN_FREE_DISK_BYTES:
        next_step = "Type `dreamgym gc` to see what is not needed, then: dreamgym gc --delete --older-than 0"
        return wrong(finding, f"Expected {MIN_FREE_DISK_BYTES / 1e9:.0f} GB of disk.", next_step)
    if memory < MIN_FREE_MEMORY_BYTES:
        memory_text = f"{MIN_FREE_MEMORY_BYTES / 1e9:.0f} GB of memory"
        expected = f"Expected {memory_text}, which configs/quick.yaml takes at most."
        return doubt(finding, expected, "End other programs, or set environment.workers=1.")
    return ok(finding)


def check_cores(config: Config, _root: Path) -> CheckResult:
    """Check that `threads` is not above the number of cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if config.threads > cores:
        return doubt(
            f"threads is {config.threads}, and this process may use {cores} cores.",
            f"Expected at most {cores} threads: more are slower.",
            f"Type: dreamgym retrain threads={cores}",
        )
    return ok(f"threads is {config.threads}; this process may use {cores} cores.")


def check_device(config: Config, _root: Path) -> CheckResult:
    """Check that this machine has the device, the precision and the engine that the config asks for."""
    from components.language.compute import compute_of, describe
    from components.language.engines.vllm.library import installed_version

    compute = compute_of(config)
    installed = installed_version()
    vllm = " ".join(installed) + " is installed" if installed else "vLLM is not installed"
    return ok(f"Models compute on {describe(compute)}; engine is {compute.engine}, {vllm}.")


def check_ports(_config: Config, _root: Path) -> CheckResult:
    """Check that the default ports of the MLflow and Prefect UIs are free."""
    ports = {"mlflow": MLFLOW_PORT, "prefect": PREFECT_PORT}
    used = {name: port for name, port in ports.items() if not port_is_free(port)}
    if used:
        options = "".join(f" --{name}-port {_next_free_port(port)}" for name, port in used.items())
        listed = " and port ".join(map(str, used.values()))
        finding = f"In use: port {listed}. No run needs them; `dreamgym ui` does."
        return doubt(finding, "Expected both to be free.", f"Type: dreamgym ui{options}")
    return ok("The ports of `dreamgym ui`, 5000 (MLflow) and 4200 (Prefect), are free.")


def _next_free_port(port: int) -> int:
    """Return the first free port above `port`."""
    return next(other for other in range(port + 1, port + 1000) if port_is_free(other))
