"""What the Prefect server does by itself: three automations, made or brought up to date by `dreamgym deploy`.

1. A run whose process was killed sends no heartbeat any more: it is marked Crashed, so that it does not hold
   its deployment's one slot.
2. A deployment without a run that ended well for some days is told: a schedule that stopped fails nowhere.
3. New trajectories start a retraining (`flows.deployment.scheduled_flows.watch_data` sends the event).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.automations import (
    AutomationCore,
    ChangeFlowRunState,
    DoNothing,
    EventTrigger,
    Posture,
    RunDeployment,
    SendNotification,
)
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType

from flows.dead_flow_runs import TAG

DATA_CHANGED, DATA_RESOURCE = "dreamgym.data.changed", "dreamgym.data"
SKIPPED = "Skipped"
HEARTBEAT = "prefect.flow-run.heartbeat"
WELL = {f"prefect.flow-run.{name}" for name in ("Completed", SKIPPED)}
ENDED = WELL | {
    f"prefect.flow-run.{name}" for name in ("Failed", "Cancelled", "Crashed", "TimedOut", "Cancelling")
}
SILENT_AFTER = timedelta(seconds=180)
"""Six heartbeats (flows/settings.py: every 30 s) that did not come."""


def automations(
    retrain: UUID, scheduled: dict[str, UUID], stale_days: float, notify: UUID | None
) -> list[AutomationCore]:
    """The automations of this project.

    Args:
        retrain: the deployment that new data starts. scheduled: name -> id of the deployments that should end
            well now and then.
        notify: a notification block of the server, such as a Slack webhook; without one the server's event
            feed alone tells.
    """
    return [
        _killed(),
        *(_stale(name, place, stale_days, notify) for name, place in scheduled.items()),
        _new_data(retrain),
    ]


def install(client: SyncPrefectClient, wanted: Sequence[AutomationCore]) -> None:
    """Make those that are not there; bring those of the same name up to date, and leave them off where
    someone switched them off.
    """
    for automation in wanted:
        there = client.read_automations_by_name(automation.name)
        if not there:
            client.create_automation(automation)
        for found in there:
            client.update_automation(found.id, automation.model_copy(update={"enabled": found.enabled}))


def _killed() -> AutomationCore:
    trigger = EventTrigger(
        after={HEARTBEAT},
        expect={HEARTBEAT} | ENDED,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=SILENT_AFTER,
        match=_spec({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_spec(_related("tag", f"prefect.tag.{TAG}")),
    )
    message = (
        f"No heartbeat for {SILENT_AFTER.total_seconds():.0f} s: its process is gone. The next run "
        "reuses its finished stages."
    )
    return AutomationCore(
        name="dreamgym: a run without heartbeat has crashed",
        description="A killed process leaves its run Running, and the deployment's one slot taken.",
        trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message)],
    )


def _stale(name: str, deployment: UUID, days: float, notify: UUID | None) -> AutomationCore:
    told = (
        f"No run of the deployment {name} has ended well for {days:g} days. Look at its runs, its worker "
        "and its schedule."
    )
    action: Any = DoNothing()
    if notify:
        action = SendNotification(
            block_document_id=notify, subject=f"DreamGym: {name} does not come to an end", body=told
        )
    trigger = EventTrigger(
        expect=WELL,
        posture=Posture.Proactive,
        within=timedelta(days=days),
        match=_spec({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_spec(_related("deployment", f"prefect.deployment.{deployment}")),
    )
    return AutomationCore(
        name=f"dreamgym: no success of {name}", description=told, trigger=trigger, actions=[action]
    )


def _new_data(retrain: UUID) -> AutomationCore:
    return AutomationCore(
        name="dreamgym: new trajectories start a retraining",
        description=f"The event {DATA_CHANGED} comes from the deployment watch-data.",
        trigger=EventTrigger(
            expect={DATA_CHANGED},
            match=_spec({"prefect.resource.id": DATA_RESOURCE}),
            posture=Posture.Reactive,
        ),
        actions=[RunDeployment(source="selected", deployment_id=retrain)],
    )


def _related(role: str, resource: str) -> dict[str, str]:
    return {"prefect.resource.role": role, "prefect.resource.id": resource}


def _spec(labels: dict[str, str]) -> Any:
    from prefect.events.schemas.events import ResourceSpecification

    return ResourceSpecification.model_validate(labels)
