"""Bring the schedule to a Prefect server: work pool, the deployments of prefect.yaml, the automations. Doing
it again changes nothing.

A deploy of Prefect's own switches schedules to what the file says; here what was switched on or off on the
server stays so.
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

RETRAIN, WATCHED = "retrain", ("retrain",)
"""What new data starts; whose success is watched."""


@dataclass(frozen=True)
class Deployed:
    """A deployment on the server: its schedules as text, and whether they are on."""

    name: str
    id: UUID
    schedules: tuple[str, ...]
    active: bool


def deploy(
    root: Path, *, on: Collection[str], off: Collection[str], stale_days: float, notify: str
) -> list[Deployed]:
    """Pool, deployments, schedules, automations; what is on the server afterwards.

    Args: on, off: deployments whose schedules are to be switched. notify: `TYPE/NAME` of a notification
    block, or empty.

    Raises:
        ConfigError: there is no such deployment or block, one is named twice, no server is named, or
            prefect.yaml is refused.
        ServiceUnreachable: the server does not answer.
        TrackingError: Prefect refused a deployment.
    """
    wanted = read_deployments(root / "prefect.yaml")
    names = [entry["name"] for entry in wanted]
    for name in (*on, *off):
        if name not in names:
            raise ConfigError(
                f"There is no deployment {name!r} in prefect.yaml.", f"Expected some of {', '.join(names)}."
            )
    if both := sorted(set(on) & set(off)):
        raise ConfigError(
            f"{both[0]} is to be switched on and off.",
            "Expected one of them.",
            "Take it out of --on or --off.",
        )
    with _server() as client:
        block = _block(client, notify)
        for pool in sorted({entry["work_pool"]["name"] for entry in wanted}):
            _ensure_pool(client, pool)
        before = {deployed.name: deployed.active for deployed in _deployed(client, names)}
        _deploy_all(root)
        found = _deployed(client, names)
        for deployed in found:
            active = deployed.name in on or (
                before.get(deployed.name, deployed.active) and deployed.name not in off
            )
            _switch(client, deployed.id, active)
        found = _deployed(client, names)
        places = {deployed.name: deployed.id for deployed in found}
        install(
            client, automations(places[RETRAIN], {name: places[name] for name in WATCHED}, stale_days, block)
        )
    return found


@contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    url = os.environ.get("PREFECT_API_URL", "")
    if not url:
        found = "No Prefect server is named: deployments, schedules and automations live on one."
        cure = (
            "Start one (`dreamgym ui`), then in another terminal: export "
            "PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
        raise ConfigError(found, "Expected its address in PREFECT_API_URL.", cure)
    with get_client(sync_client=True) as client:
        failure = client.api_healthcheck()
        if failure is not None:
            raise ServiceUnreachable(
                f"The Prefect server {url} does not answer: {failure}.", next_step="Start it: dreamgym ui"
            )
        yield client


def _block(client: SyncPrefectClient, notify: str) -> UUID | None:
    if not notify:
        return None
    kind, _, name = notify.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound:
        cure = "Make one in the UI under Blocks, or leave --notify out."
        raise ConfigError(
            f"The server has no block {notify!r}.", "Expected TYPE/NAME, such as slack-webhook/ops.", cure
        ) from None


def _ensure_pool(client: SyncPrefectClient, name: str) -> None:
    try:
        found: WorkPool = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        return
    if found.type != "process":
        cure = f"Remove it (`prefect work-pool delete {name}`), or name another in prefect.yaml."
        raise ConfigError(
            f"The work pool {name!r} is of the type {found.type}.", "Expected a process pool.", cure
        )


def _deploy_all(root: Path) -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-3:]
        raise TrackingError(
            f"`prefect deploy --all` failed: {' '.join(said)}",
            next_step="Mend prefect.yaml and type the same again.",
        )


def _deployed(client: SyncPrefectClient, names: Collection[str]) -> list[Deployed]:
    found = []
    for deployment in client.read_deployments():
        if deployment.name in names and _is_ours(deployment):
            schedules = tuple(_told(entry.schedule) for entry in deployment.schedules)
            found.append(
                Deployed(
                    deployment.name,
                    deployment.id,
                    schedules,
                    any(entry.active for entry in deployment.schedules),
                )
            )
    return sorted(found, key=lambda deployed: list(names).index(deployed.name))


def _is_ours(deployment: Any) -> bool:
    return str(deployment.entrypoint or "").startswith("flows/deployment/scheduled_flows.py:")


def _switch(client: SyncPrefectClient, deployment: UUID, active: bool) -> None:
    for entry in client.read_deployment(deployment).schedules:
        try:
            client.update_deployment_schedule(deployment, entry.id, active=active)
        except PrefectHTTPStatusError as error:
            raise TrackingError(
                f"Prefect could not switch a schedule: {error}.", next_step="Switch it in the UI."
            ) from error


def _told(schedule: Any) -> str:
    cron = getattr(schedule, "cron", "")
    return (
        f"{cron} {schedule.timezone or 'UTC'}" if cron else f"every {getattr(schedule, 'interval', schedule)}"
    )
