"""Mark flow runs whose process was killed as Crashed in Prefect, where they would stay Running for ever.

The next command that starts a flow does it, and `dreamgym ui`; they end MLflow's runs too
(components/tracking/dead_runs.py). A command tags its flow runs with its process. A tagged run whose process
is gone on this machine is dead, and so is one that a manifest under runs/ names with such a process. Deployed
runs have a heartbeat too (automations.py).
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


PROCESS = "process"
"""Begins the tag `process:HOST:ID:SECONDS` of a flow run's process; its start is in seconds since 1970."""
MESSAGE = "Its process was killed. The same command, typed again, reuses what is finished."
_OPEN = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING, StateType.PAUSED]
_PAGE = 100
_LOG = logging.getLogger(__name__)


def tag_flow_runs() -> None:
    """From here on, flow runs of this process carry its tag, and so do their subflows and tasks."""
    own = this_process()
    tags = {TAG, f"{PROCESS}:{own.text}"}
    current = TagsContext.get().current_tags
    if not tags <= current:
        TagsContext(current_tags=current | tags).__enter__()  # for as long as the process lives


def process_of(tags: Sequence[str]) -> OwnProcess | None:
    """The process that the tags name; None if they name none."""
    for tag in tags:
        kind, _, place = tag.partition(":")
        if kind == PROCESS and (process := OwnProcess.from_text(place)):
            return process
    return None


def end_dead_runs(root: Path, tracker: Tracker | None = None) -> None:
    """At the start of a flow: end the runs of this clone whose process was killed, in MLflow and in Prefect.

    Args: tracker: MLflow; None: runs there are left as they are.
    """
    if tracker is not None:
        close_dead_runs(root / "runs", tracker)
    if runtime.flow_run.id:
        crash_dead_flow_runs(root / "runs")


def end_dead_runs_if_tracked(config: TrackingConfig, root: Path) -> None:
    """`end_dead_runs` for a flow that records nothing in MLflow: a store that cannot be opened is logged."""
    tracker = None
    try:
        tracker = Tracker(config, root)
    except DreamGymError as error:
        _LOG.warning("MLflow's runs of killed processes could not be ended: %s", error)
    end_dead_runs(root, tracker)


def crash_dead_flow_runs(runs: Path, api: str = "") -> list[str]:
    """Mark flow runs whose process is gone as Crashed, with their subflows and tasks; names of the outermost.

    Args: runs: directories of runs, with manifests. api: the server's address, if not the present one.

    A server that refuses is no reason not to go on: it is logged.
    """
    try:
        with (
            temporary_settings({PREFECT_API_URL: api} if api else {}),
            get_client(sync_client=True) as client,
        ):
            dead = {
                run.id: run
                for run in (*_tagged(client), *_named(client, _of_manifests(runs)))
                if _is_open(run)
            }
            for run in dead.values():
                _crash(client, run)
            return sorted(run.name for run in dead.values() if run.parent_task_run_id is None)
    except Exception as error:  # whatever the transport or the server says
        _LOG.warning("Prefect's flow runs of killed processes could not be marked Crashed: %s", error)
        return []


def _tagged(client: SyncPrefectClient) -> Iterator[FlowRun]:
    """Open flow runs whose tag names a process that is gone."""
    for run in _pages(client, FlowRunFilter(state=_in(_OPEN))):
        process = process_of(run.tags)
        if process is not None and is_dead(process):
            yield run


def _of_manifests(runs: Path) -> list[UUID]:
    """The flow runs of manifests whose run did not end, and whose process is gone."""
    found = []
    for name in list_runs(runs):
        with suppress(DreamGymError, ValueError):  # one that was cut short has no manifest, or half of one
            manifest = Manifest.load(runs / name)
            if manifest.status in ("running", "killed") and manifest.process and is_dead(manifest.process):
                found.append(UUID(manifest.prefect_flow_run_id))
    return found


def _named(client: SyncPrefectClient, ids: Sequence[UUID]) -> Iterator[FlowRun]:
    for start in range(0, len(ids), _PAGE):
        some = FlowRunFilterId(any_=list(ids[start : start + _PAGE]))
        yield from _pages(client, FlowRunFilter(id=some, state=_in(_OPEN)))


def _crash(client: SyncPrefectClient, run: FlowRun) -> None:
    """The run, what is open below it first."""
    below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]), state=_in(_OPEN))
    for child in _pages(client, below):
        _crash(client, child)
    open_tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=_OPEN)))
    own = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
    for task in client.read_task_runs(flow_run_filter=own, task_run_filter=open_tasks):
        client.set_task_run_state(task.id, Crashed(message=MESSAGE), force=True)
    client.set_flow_run_state(run.id, Crashed(message=MESSAGE), force=True)


def _pages(client: SyncPrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """All flow runs that the filter lets through."""
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(flow_run_filter=wanted, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return found


def _in(types: Sequence[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def _is_open(run: FlowRun) -> bool:
    return run.state_type in _OPEN
