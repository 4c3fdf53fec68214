"""Marks flow runs whose process was killed as Crashed in Prefect, where they would stay Running for ever.

The next command that starts a flow does it, and so does `dreamgym ui`. They end MLflow's runs too
(components/tracking/dead_runs.py). A command tags its flow runs with its process. A run is dead if the
process in its tag no longer exists on this machine. A manifest under runs/ can name such a process too.
Deployed runs also have a heartbeat (automations.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from prefect import get_client, runtime
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import TagsContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from components.config import TrackingConfig
from components.errors import DreamGymError
from components.tracking.dead_runs import close_dead_runs
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.process import OwnProcess, is_dead, this_process
from components.tracking.runs import list_runs

TAG = "dreamgym"
"""Tag of all flow runs of this project."""
PROCESS = "process"
"""Prefix of the tag `process:HOST:ID:SECONDS` of a flow run's process; its start is in seconds since 1970."""
MESSAGE = "Its process was killed. The same command, typed again, reuses what is finished."
_OPEN = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING, StateType.PAUSED]
_PAGE = 100
_LOG = logging.getLogger(__name__)


def tag_flow_runs() -> None:
    """Tag all later flow runs of this process, their subflows and tasks with the process."""
    own = this_process()
    tags = {TAG, f"{PROCESS}:{own.text}"}
    current = TagsContext.get().current_tags
    if not tags <= current:
        TagsContext(current_tags=current | tags).__enter__()  # for as long as the process lives


def process_of(tags: Sequence[str]) -> OwnProcess | None:
    """Return the process that the tags name; None if there is none."""
    for tag in tags:
        kind, _, process_text = tag.partition(":")
        if kind == PROCESS and (process := OwnProcess.from_text(process_text)):
            return process
    return None


def end_dead_runs(root: Path, tracker: Tracker | None = None) -> None:
    """End the runs of this clone whose process was killed, in MLflow and in Prefect.

    Args:
        tracker: MLflow; None: runs in MLflow are left as they are.
    """
    if tracker is not None:
        close_dead_runs(root / "runs", tracker)
    if runtime.flow_run.id:
        crash_dead_flow_runs(root / "runs")


def end_dead_runs_if_tracked(config: TrackingConfig, root: Path) -> None:
    """Call `end_dead_runs` for a flow that needs no MLflow; a store that cannot be opened is only logged."""
    tracker = None
    try:
        tracker = Tracker(config, root)
    except DreamGymError as error:
        _LOG.warning("MLflow's runs of killed processes could not be ended: %s", error)
    end_dead_runs(root, tracker)


def crash_dead_flow_runs(runs: Path, api: str = "") -> list[str]:
    """Mark flow runs whose process is gone as Crashed, with their subflows and tasks.

    An error of the server is only logged.

    Args:
        runs: directory of the runs, with their manifests.
        api: the server's address; empty: the present one.

    Returns:
        names of the outermost flow runs.
    """
    try:
        with (
            temporary_settings({PREFECT_API_URL: api} if api else {}),
            get_client(sync_client=True) as client,
        ):
            candidates = (*_dead_by_tag(client), *_open_runs(client, _dead_by_manifest(runs)))
            dead = {run.id: run for run in candidates if _is_open(run)}
            for run in dead.values():
                _mark_crashed(client, run)
            return sorted(run.name for run in dead.values() if run.parent_task_run_id is None)
    except Exception as error:  # whatever the transport or the server says
        _LOG.warning("Prefect's flow runs of killed processes could not be marked Crashed: %s", error)
        return []


def _dead_by_tag(client: SyncPrefectClient) -> Iterator[FlowRun]:
    """Yield open flow runs whose tag names a process that is gone."""
    for run in _read_all(client, FlowRunFilter(state=_state_in(_OPEN))):
        process = process_of(run.tags)
        if process is not None and is_dead(process):
            yield run


def _dead_by_manifest(runs: Path) -> list[UUID]:
    """Return the flow runs that manifests name, whose run did not end and whose process is gone."""
    flow_runs = []
    for name in list_runs(runs):
        with suppress(DreamGymError, ValueError):  # an interrupted run may have no or half a manifest
            manifest = Manifest.load(runs / name)
            if manifest.status in ("running", "killed") and manifest.process and is_dead(manifest.process):
                flow_runs.append(UUID(manifest.prefect_flow_run_id))
    return flow_runs


def _open_runs(client: SyncPrefectClient, ids: Sequence[UUID]) -> Iterator[FlowRun]:
    """Yield those of the flow runs `ids` that are open."""
    for start in range(0, len(ids), _PAGE):
        page = FlowRunFilterId(any_=list(ids[start : start + _PAGE]))
        yield from _read_all(client, FlowRunFilter(id=page, state=_state_in(_OPEN)))


def _mark_crashed(client: SyncPrefectClient, run: FlowRun) -> None:
    """Mark a run as Crashed, after its open subflows and tasks."""
    subflows = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]), state=_state_in(_OPEN)
    )
    for child in _read_all(client, subflows):
        _mark_crashed(client, child)
    open_tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=_OPEN)))
    own = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
    for task in client.read_task_runs(flow_run_filter=own, task_run_filter=open_tasks):
        client.set_task_run_state(task.id, Crashed(message=MESSAGE), force=True)
    client.set_flow_run_state(run.id, Crashed(message=MESSAGE), force=True)


def _read_all(client: SyncPrefectClient, run_filter: FlowRunFilter) -> list[FlowRun]:
    """Return all flow runs that match the filter."""
    runs: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(flow_run_filter=run_filter, limit=_PAGE, offset=len(runs))
        runs += page
        if len(page) < _PAGE:
            return runs


def _state_in(types: Sequence[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def _is_open(run: FlowRun) -> bool:
    return run.state_type in _OPEN
