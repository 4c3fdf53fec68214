"""The automations of the Prefect server, created or updated by `dreamgym deploy`.

1. A run without heartbeats is marked Crashed: its process was killed, and it would block its deployment's one
   slot.
2. A deployment without a successful run for some days causes a notification: a stopped schedule fails
nowhere.
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

DATA_CHANGED = "dreamgym.data.changed"
DATA_RESOURCE = "dreamgym.data"
SKIPPED = "Skipped"
HEARTBEAT = "prefect.flow-run.heartbeat"
SUCCEEDED = {f"prefect.flow-run.{name}" for name in ("Completed", SKIPPED)}
ENDED = SUCCEEDED | {
    f"prefect.flow-run.{name}" for name in ("Failed", "Cancelled", "Crashed", "TimedOut", "Cancelling")
}
SILENT_AFTER = timedelta(seconds=180)
"""Time of six missing heartbeats (flows/settings.py: one every 30 s)."""


def automations(
    retrain: UUID, scheduled: dict[str, UUID], stale_days: float, notify: UUID | None
) -> list[AutomationCore]:
    """Return the automations of this project.

    Args:
        retrain: the deployment that new data starts.
        scheduled: name -> id of the deployments whose success is watched.
        stale_days: days without a success after which the server notifies.
        notify: a notification block of the server, such as a Slack webhook; None: only the server's event
            feed shows it.
    """
    return [
        _crash_without_heartbeat(),
        *(_notify_if_stale(name, deployment, stale_days, notify) for name, deployment in scheduled.items()),
        _retrain_on_new_data(retrain),
    ]


def install(client: SyncPrefectClient, automations: Sequence[AutomationCore]) -> None:
    """Create missing automations and update those of the same name; one that is switched off stays off."""
    for automation in automations:
        existing = client.read_automations_by_name(automation.name)
        if not existing:
            client.create_automation(automation)
        for old in existing:
            client.update_automation(old.id, automation.model_copy(update={"enabled": old.enabled}))


def _crash_without_heartbeat() -> AutomationCore:
    trigger = EventTrigger(
        after={HEARTBEAT},
        expect={HEARTBEAT} | ENDED,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=SILENT_AFTER,
        match=_resource_spec({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_resource_spec(_related_resource("tag", f"prefect.tag.{TAG}")),
    )
    message = (
        f"No heartbeat for {SILENT_AFTER.total_seconds():.0f} s: its process no longer exists. The next run "
        "reuses its finished stages."
    )
    return AutomationCore(
        name="dreamgym: a run without heartbeat has crashed",
        description="A killed process leaves its run Running, which blocks the deployment's one slot.",
        trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message)],
    )


def _notify_if_stale(name: str, deployment: UUID, days: float, notify: UUID | None) -> AutomationCore:
    message = (
        f"No run of the deployment {name} has succeeded for {days:g} days. Check its runs, its worker "
        "and its schedule."
    )
    action: Any = DoNothing()
    if notify:
        action = SendNotification(
            block_document_id=notify, subject=f"DreamGym: no success of {name}", body=message
        )
    trigger = EventTrigger(
        expect=SUCCEEDED,
        posture=Posture.Proactive,
        within=timedelta(days=days),
        match=_resource_spec({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_resource_spec(_related_resource("deployment", f"prefect.deployment.{deployment}")),
    )
    return AutomationCore(
        name=f"dreamgym: no success of {name}", description=message, trigger=trigger, actions=[action]
    )


def _retrain_on_new_data(retrain: UUID) -> AutomationCore:
    return AutomationCore(
        name="dreamgym: new trajectories start a retraining",
        description=f"The event {DATA_CHANGED} comes from the deployment watch-data.",
        trigger=EventTrigger(
            expect={DATA_CHANGED},
            match=_resource_spec({"prefect.resource.id": DATA_RESOURCE}),
            posture=Posture.Reactive,
        ),
        actions=[RunDeployment(source="selected", deployment_id=retrain)],
    )


def _related_resource(role: str, resource: str) -> dict[str, str]:
    return {"prefect.resource.role": role, "prefect.resource.id": resource}


def _resource_spec(labels: dict[str, str]) -> Any:
    from prefect.events.schemas.events import ResourceSpecification

    return ResourceSpecification.model_validate(labels)
