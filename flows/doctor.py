"""The ladder "check your set-up": each rung rests on the ones before it, and says what to type when it breaks.

    dreamgym doctor
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.text import Text

from components.config import Config
from components.errors import DreamGymError
from flows.failures import expected_failure
from flows.output import Output
from flows.preflight import has_identity, missing_data, not_in_snapshot, require_backbone, require_repository
from flows.services import port_is_free

INSTALL = "pip install -c constraints.txt -e '.[{}]'"
EXTRAS = ("alfworld", "webshop", "browser")
"""Environments with packages of their own."""
_FREE_DISK_BYTES, _FREE_MEMORY_BYTES = 5_000_000_000, 5_000_000_000


@dataclass(frozen=True)
class Rung:
    """What one check found. `wrong` stops a run; `doubt` does not, but explains a later surprise."""

    state: str
    found: str
    next_step: str = ""


def ok(found: str) -> Rung:
    """The rung holds."""
    return Rung("ok", found)


def doubt(found: str, next_step: str) -> Rung:
    """A run can start, but see this first."""
    return Rung("doubt", found, next_step)


def wrong(found: str, next_step: str) -> Rung:
    """A run cannot start before this is mended."""
    return Rung("wrong", found, next_step)


def climb(config: Config, root: Path, page: Output) -> bool:
    """Print all rungs, or those up to git if there is no repository for the others to look into; True if a run can start."""
    broken = 0
    for name, check in LADDER.items():
        with page.console.status(name):
            rung = _checked(check, config, root)
        broken += rung.state == "wrong"
        print_rung(page, name, rung.state, rung.found, rung.next_step)
        if name == "git" and rung.state == "wrong":
            break  # the next ones would make directories, and wait minutes for Prefect
    verdict = f"Mend what is wrong ({broken}) from the top down, then ask again." if broken else "A run can start: dreamgym retrain"
    page.text(verdict)
    page.put(can_start=not broken)
    return not broken


def print_rung(page: Output, name: str, state: str, found: str, next_step: str = "") -> None:
    """A line for what was checked, and one for what to do next; in the JSON an entry of `checks`."""
    page.add("checks", {"name": name, "state": state, "found": found, "next": next_step})
    if page.prints_json:
        return
    style = {"ok": "green", "doubt": "yellow", "wrong": "red"}[state]
    page.console.print(Text.assemble((f"{state:<5}", style), f" {name}: {found}"), soft_wrap=True)
    if next_step:
        page.text(f"      next: {next_step}")


def _checked(check: Callable[[Config, Path], Rung], config: Config, root: Path) -> Rung:
    try:
        return check(config, root)
    except Exception as error:  # a check that breaks is what this command is there to show
        failure = expected_failure(error)
        if failure is None:
            return wrong(f"{type(error).__name__}: {error}", "mend the rungs above first; if they hold, report this line as a bug")
        return _as_rung(failure, _install(config))


def _install(config: Config) -> str:
    """What installs the project with what the environment needs; worlds of one's own need no extra."""
    extra = config.environment.name
    return INSTALL.format(extra) if extra in EXTRAS else "pip install -c constraints.txt -e ."


def _as_rung(failure: DreamGymError, cure: str = "") -> Rung:
    return wrong(" ".join(part for part in (failure.found, failure.expected) if part), failure.next_step or cure)


def check_python(_config: Config, _root: Path) -> Rung:
    """Python 3.11 or 3.12."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 13):
        return wrong(f"{version}, expected 3.11 or 3.12", "make clean && make test PYTHON=python3.11")
    return ok(f"{version} in {sys.prefix}")


def check_packages(config: Config, root: Path) -> Rung:
    """What the project requires is installed, in the versions of constraints.txt."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    install = _install(config)
    try:
        wanted = [Requirement(line) for line in metadata.requires("dreamgym-pipeline") or []]
    except metadata.PackageNotFoundError:
        return wrong("the project itself is not installed", install)
    extras = ("", config.environment.name)
    names = [r.name for r in wanted if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in extras)]
    installed = {str(canonicalize_name(dist.metadata["Name"])): dist.version for dist in metadata.distributions() if dist.metadata["Name"]}
    absent = sorted(name for name in names if canonicalize_name(name) not in installed)
    if absent:
        return wrong(f"not installed: {', '.join(absent)}", install)
    lock = root / "constraints.txt"
    if not lock.is_file():
        return doubt(f"there is no {lock} to compare with", "git checkout constraints.txt")
    pins: dict[str, str] = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    found = {name: installed.get(canonicalize_name(name), pin).split("+")[0] for name, pin in pins.items()}
    drift = [f"{name} {found[name]} (not {pin})" for name, pin in pins.items() if found[name] != pin]
    if drift:
        return doubt(f"{len(drift)} of {len(pins)} differ from constraints.txt: {', '.join(drift[:5])}", install)
    return ok(f"{len(names)} required ones, versions of constraints.txt")


def check_compilers(config: Config, _root: Path) -> Rung:
    """What builds ALFWorld's engine, needed only if it is not there yet."""
    if config.environment.name != "alfworld":
        return ok(f"not needed with environment.name={config.environment.name}")
    if importlib.util.find_spec("alfworld") and importlib.util.find_spec("textworld"):
        return ok("not needed: alfworld is installed")
    missing = [tool for tool in ("gcc", "g++", "make", "cmake") if shutil.which(tool) is None]
    if missing:
        return wrong(f"alfworld is not installed, and building it needs {', '.join(missing)}", "apt-get install gcc g++ make cmake")
    return wrong("alfworld is not installed; its build tools are there", INSTALL.format("alfworld"))


def check_games(config: Config, _root: Path) -> Rung:
    """The engine plays one training game to its end: with the expert, or who else is to record data where there is none."""
    from components.environments import make_adapter
    from components.trajectories.collect import BEHAVIOURS, collect, plan

    adapter = make_adapter(config.environment.model_copy(update={"workers": 1}))
    tasks = adapter.tasks("train", 1, config.data.seed)
    if config.environment.browser.benchmark != "miniwob":
        return ok(f"{tasks[0].id} opens: '{tasks[0].instruction}'; no expert plays it")
    behaviour = next((name for name in BEHAVIOURS if getattr(config.data, name)), "expert")
    played = collect(adapter, plan(tasks, {behaviour: 1}, config.data.seed), max(30, config.environment.max_steps))
    if behaviour != "expert":
        return ok(f"{config.environment.name}; {behaviour} play took {len(played[0].steps)} steps; no expert plays it (data.expert=0)")
    if not played[0].success:
        return wrong(f"the expert did not solve {tasks[0].id}", "dreamgym collect data.train_tasks=2 data.fidelity_tasks=1 --debug")
    kind = f"{config.environment.games} games" if config.environment.name == "alfworld" else config.environment.name
    return ok(f"{kind}; the expert solved '{tasks[0].instruction}' in {len(played[0].steps)} steps")


def check_official_games(config: Config, _root: Path) -> Rung:
    """The official games are where ALFWORLD_DATA says, if they are asked for."""
    if config.environment.games != "official":
        return ok("not needed without environment.games=official")
    folder = os.environ.get("ALFWORLD_DATA", "")
    if not folder or not (Path(folder) / "json_2.1.1").is_dir():
        return wrong(f"ALFWORLD_DATA is {folder!r}, which holds no json_2.1.1", "alfworld-download, then export ALFWORLD_DATA=<its folder>")
    return ok(folder)


def check_browser(config: Config, _root: Path) -> Rung:
    """Chromium starts; for WebArena also its packages, the WA_* variables, the sites, and what its evaluators need."""
    if config.environment.name != "browser":
        return ok(f"not needed with environment.name={config.environment.name}")
    from components.environments.browser.chromium import find_chromium, version
    from components.environments.browser.gym_tasks import require_types
    from components.environments.browser.web_sites import lacking

    found = version(find_chromium(config.environment.browser.executable))
    if config.environment.browser.benchmark == "miniwob":
        require_types(config.environment.browser.types)
        return ok(f"{found}; MiniWoB++ needs nothing else")
    absent = lacking()
    stopping = [want for want in absent if want.stops]
    if stopping:
        return wrong(f"{found}; {'; '.join(want.found for want in stopping)}", "; then ".join(want.next_step for want in stopping))
    if absent:
        return doubt(f"{found}; {'; '.join(want.found for want in absent)}", "; then ".join(want.next_step for want in absent))
    return ok(f"{found}; all sites answer")


def check_git(_config: Config, root: Path) -> Rung:
    """A repository with a commit, and an identity."""
    known = has_identity(root)
    require_repository(root)
    if not known:
        return doubt("git does not know who you are; runs are saved as dreamgym", "git config --global user.name NAME (and user.email)")
    return ok(str(root))


def check_files(_config: Config, root: Path) -> Rung:
    """Directories that a run writes to, temporary files, the lock files of DVC and git, and data.dvc without a merge conflict."""
    from flows.machine import WRITTEN, require_machine

    require_machine(root)
    return ok(f"{', '.join(WRITTEN)} can be written; no lock is left behind")


def check_data(config: Config, root: Path) -> Rung:
    """data.dvc is there, the data is pulled, and every file has its hash."""
    from components.trajectories.snapshots import data_hash, data_parts, drift, missing_files, verify

    data_parts(root)  # a data.dvc that cannot be read is said first
    missing = missing_data(root, config, backbone=not config.backbone.path)
    if missing and not missing_files(root):
        return _as_rung(not_in_snapshot(missing))
    if missing:
        return wrong(f"not there: {', '.join(missing)}", "dreamgym retrain or collect (both pull by themselves), or dvc pull")
    moved = drift(root)
    if (moved.changed or moved.added) and not moved.unsaved:
        held = "data/ holds another version than the one that data.dvc names"
        return doubt(held, "nothing to do: the next run brings data/ there, as `dvc checkout data.dvc` or `dvc pull` do")
    try:
        verify(root)
    except DreamGymError as error:
        return doubt(str(error), "dvc checkout data.dvc (back to the version), or dreamgym data save (keep what is there)")
    return ok(f"{data_hash(root)}, every file verified")


def check_backbone(config: Config, root: Path) -> Rung:
    """Every stage can use the models that both sides start from, and they are long enough for the data's episodes."""
    from components.trajectories.store import DataLayout
    from flows.model_checks import check_models

    require_backbone(config)
    models = check_models(root, config)
    if models is None:
        missing = DataLayout.of(root, config.environment.name).backbone
        return wrong(f"There is no backbone directory {missing}", "Make it with dreamgym pretrain, run dvc pull, or set backbone.path.")
    both = [models.policy.summary] + ([f"experience model: {models.experience.summary}"] if config.experience_model.path else [])
    if models.doubts:
        return doubt("; ".join([*both, *models.doubts]), "lower environment.max_steps, or take a model that reads more tokens")
    return ok("; ".join(both))


def check_mlflow(config: Config, root: Path) -> Rung:
    """The store of runs and models opens."""
    from components.tracking.mlflow_store import Tracker
    from components.tracking.mlflow_uri import without_password

    return ok(without_password(Tracker(config.tracking, root).uri))


def check_prefect(_config: Config, _root: Path) -> Rung:
    """A Prefect server answers: the configured one, or an ephemeral one that starts for it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        failure = client.api_healthcheck()
        if failure is not None:
            return wrong(f"{client.api_url}: {failure}", "unset PREFECT_API_URL, or start the server that it names")
        return ok(f"{client.api_url} ({client.server_type.value})")


def check_room(_config: Config, root: Path) -> Rung:
    """Disk and memory."""
    import psutil

    if not root.is_dir():
        return wrong(f"there is no directory {root}", "dreamgym doctor --root <the clone>")
    disk, memory = shutil.disk_usage(root).free, psutil.virtual_memory().available
    found = f"{disk / 1e9:.1f} GB of disk and {memory / 1e9:.1f} GB of memory are free"
    if disk < _FREE_DISK_BYTES:
        return wrong(f"{found}, expected 5 GB of disk", "dvc gc --workspace --all-experiments, or rm -r .dreamgym/stages")
    if memory < _FREE_MEMORY_BYTES:
        return doubt(f"{found}; configs/quick.yaml takes up to 5 GB of memory", "close what else runs, or set environment.workers=1")
    return ok(found)


def check_cores(config: Config, _root: Path) -> Rung:
    """Not more threads than cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if config.threads > cores:
        return doubt(f"{config.threads} threads on {cores} cores: slower than {cores}", f"dreamgym retrain threads={cores}")
    return ok(f"{cores} cores, {config.threads} threads")


def check_device(config: Config, _root: Path) -> Rung:
    """Where models compute, and that this hardware can."""
    from components.language.compute import compute_of, describe

    return ok(describe(compute_of(config)))


def check_ports(_config: Config, _root: Path) -> Rung:
    """The user interfaces' ports are free."""
    used = [port for port in (5000, 4200) if not port_is_free(port)]
    if used:
        found = f"in use: {', '.join(map(str, used))} (only `dreamgym ui` needs them)"
        return doubt(found, "dreamgym ui --mlflow-port 5001 --prefect-port 4201")
    return ok("5000 and 4200 are free")


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
    "data": check_data,
    "backbone": check_backbone,
    "mlflow": check_mlflow,
    "prefect": check_prefect,
    "ports": check_ports,
}
