"""Creates or updates the work pool, the deployments of prefect.yaml and the automations on a Prefect server.

A second call changes nothing. Unlike `prefect deploy`, it keeps schedules on or off as they are on the
server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from components.errors import ConfigError, ServiceUnreachable, TrackingError
from flows.deployment.automations import automations, install
from flows.deployment.prefect_yaml import read_deployments

RETRAIN = "retrain"
"""The deployment that new data starts."""
WATCHED = ("retrain",)
"""Deployments whose success is watched."""


@dataclass(frozen=True)
class Deployed:
    """A deployment on the server, with its schedules as text; `active`: whether a schedule is on."""

    name: str
    id: UUID
    schedules: tuple[str, ...]
    active: bool


def deploy(
    root: Path, *, on: Collection[str], off: Collection[str], stale_days: float, notify: str
) -> list[Deployed]:
    """Deploy all of prefect.yaml and the automations; return the deployments on the server afterwards.

    Args:
        on, off: deployments whose schedules are switched on or off.
        stale_days: days without a success after which the server notifies.
        notify: `TYPE/NAME` of a notification block, or empty.

    Raises:
        ConfigError: there is no such deployment or block, one is named twice, no server is named, or
            prefect.yaml is refused.
        ServiceUnreachable: the server does not answer.
        TrackingError: Prefect refused a deployment.
    """
    entries = read_deployments(root / "prefect.yaml")
    names = [entry["name"] for entry in entries]
    _require_names(names, on, off)
    with _server() as client:
        block = _notification_block(client, notify)
        for pool in sorted({entry["work_pool"]["name"] for entry in entries}):
            _ensure_pool(client, pool)
        was_active = {deployed.name: deployed.active for deployed in _read_deployed(client, names)}
        _deploy_all(root)
        for deployed in _read_deployed(client, names):
            keeps_on = was_active.get(deployed.name, deployed.active) and deployed.name not in off
            _switch_schedules(client, deployed.id, deployed.name in on or keeps_on)
        deployments = _read_deployed(client, names)
        ids = {deployed.name: deployed.id for deployed in deployments}
        watched = {name: ids[name] for name in WATCHED}
        install(client, automations(ids[RETRAIN], watched, stale_days, block))
    return deployments


def _require_names(names: Collection[str], on: Collection[str], off: Collection[str]) -> None:
    """Raise ConfigError if `on` or `off` names an unknown deployment, or both name the same one."""
    for name in (*on, *off):
        if name not in names:
            raise ConfigError(
                f"There is no deployment {name!r} in prefect.yaml.", f"Expected some of {', '.join(names)}."
            )
    if repeated := sorted(set(on) & set(off)):
        raise ConfigError(
            f"{repeated[0]} is in --on and in --off.",
            "Expected one of them.",
            "Take it out of --on or --off.",
        )


@contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    url = os.environ.get("PREFECT_API_URL", "")
    if not url:
        problem = "No Prefect server is named. Deployments, schedules and automations are stored on one."
        next_step = (
            "Start one (`dreamgym ui`), then in another terminal: export "
            "PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
        raise ConfigError(problem, "Expected its address in PREFECT_API_URL.", next_step)
    with get_client(sync_client=True) as client:
        failure = client.api_healthcheck()
        if failure is not None:
            raise ServiceUnreachable(
                f"The Prefect server {url} does not answer: {failure}.", next_step="Start it: dreamgym ui"
            )
        yield client


def _notification_block(client: SyncPrefectClient, notify: str) -> UUID | None:
    if not notify:
        return None
    kind, _, name = notify.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound:
        next_step = "Create one in the UI under Blocks, or leave --notify out."
        raise ConfigError(
            f"The server has no block {notify!r}.",
            "Expected TYPE/NAME, such as slack-webhook/ops.",
            next_step,
        ) from None


def _ensure_pool(client: SyncPrefectClient, name: str) -> None:
    try:
        pool: WorkPool = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        return
    if pool.type != "process":
        raise ConfigError(
            f"The work pool {name!r} is of the type {pool.type}.",
            "Expected a process pool.",
            f"Remove it (`prefect work-pool delete {name}`), or name another in prefect.yaml.",
        )


def _deploy_all(root: Path) -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    process = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode:
        last_lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()][-3:]
        raise TrackingError(
            f"`prefect deploy --all` failed: {' '.join(last_lines)}",
            next_step="Correct prefect.yaml and type the same again.",
        )


def _read_deployed(client: SyncPrefectClient, names: Collection[str]) -> list[Deployed]:
    """Return this project's deployments on the server, in the order of `names`."""
    deployments = []
    for deployment in client.read_deployments():
        if deployment.name in names and _is_ours(deployment):
            schedules = tuple(_schedule_text(entry.schedule) for entry in deployment.schedules)
            is_active = any(entry.active for entry in deployment.schedules)
            deployments.append(Deployed(deployment.name, deployment.id, schedules, is_active))
    return sorted(deployments, key=lambda deployed: list(names).index(deployed.name))


def _is_ours(deployment: Any) -> bool:
    return str(deployment.entrypoint or "").startswith("flows/deployment/scheduled_flows.py:")


def _switch_schedules(client: SyncPrefectClient, deployment: UUID, active: bool) -> None:
    for entry in client.read_deployment(deployment).schedules:
        try:
            client.update_deployment_schedule(deployment, entry.id, active=active)
        except PrefectHTTPStatusError as error:
            raise TrackingError(
                f"Prefect could not switch a schedule: {error}.", next_step="Switch it in the UI."
            ) from error


def _schedule_text(schedule: Any) -> str:
    cron = getattr(schedule, "cron", "")
    if cron:
        return f"{cron} {schedule.timezone or 'UTC'}"
    return f"every {getattr(schedule, 'interval', schedule)}"
