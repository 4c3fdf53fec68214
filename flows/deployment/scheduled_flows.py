"""What a schedule runs: flows whose parameters are plain values, so that a deployment can carry them
(prefect.yaml, `dreamgym deploy`).

A server that does not answer is waited for and tried again; nothing else is: a stage that failed fails again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import Field

from flows.settings import prepare

prepare(Path.cwd())

# The settings above are read at these imports.
from prefect import Task, flow, get_run_logger, tags, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State, TaskRun  # noqa: E402
from prefect.events import emit_event  # noqa: E402
from prefect.states import Completed  # noqa: E402
from prefect.tasks import exponential_backoff  # noqa: E402

from components.config import Config, load_config  # noqa: E402
from components.config.reading.config_values import LARGEST_INTEGER  # noqa: E402
from components.errors import ServiceUnreachable  # noqa: E402
from components.tracking.data_parts import trajectories_hash  # noqa: E402
from flows.dead_flow_runs import TAG  # noqa: E402
from flows.deployment.automations import DATA_CHANGED, DATA_RESOURCE, SKIPPED  # noqa: E402
from flows.deployment.deploy import RETRAIN  # noqa: E402
from flows.deployment.prefect_yaml import require_each_once  # noqa: E402
from flows.deployment.watched_data import note_trained_on, retraining_in_progress, trained_on  # noqa: E402

DecimalSeed = Annotated[int, Field(strict=True, ge=0, le=LARGEST_INTEGER)]
"""A seed among a flow's parameters: `true`, "010" and 1.0 are none."""
P = ParamSpec("P")
R = TypeVar("R")
RETRY_SECONDS = (30.0, 60.0, 120.0)
"""Seconds that a retraining waits before each new try when a server did not answer, plus up to half at
random.
"""


@flow(name="retrain-from-file")
def retrain_from_file(
    config_file: str = "configs/quick.yaml", overrides: list[str] | None = None, skip_unchanged: bool = True
) -> str | State[Any]:
    """Retrain with a config file of the repository and `key=value` overrides; the run's id.

    The flow run takes the run's name, and its stages are its subflows.

    Skipped, and says so, when a finished run is made of the same data, config and code. A refused promotion
    is a normal outcome: the flow completes. Any other failure fails it.
    """
    from flows.past_runs.resume import unchanged_since

    config = _prepared(config_file, overrides, trains=True)
    earlier = unchanged_since(config, Path.cwd()) if skip_unchanged else ""
    if earlier:
        return Completed(name=SKIPPED, message=f"Nothing that it depends on has changed since run {earlier}.")
    with tags(TAG):
        run, reason = _retrained(config)
    get_run_logger().info("run %s: %s", run, reason)
    return run


@flow(name="study-from-file")
def study_from_file(
    config_file: str = "configs/study.yaml",
    overrides: list[str] | None = None,
    methods: str = "",
    seeds: list[DecimalSeed] | None = None,
    cells: str = ".dreamgym/study",
) -> list[str]:
    """A study with a config file of the repository; finished cells are read back. Its JSON file and figures
    lie beside the cells, where git does not look: a schedule leaves the workspace clean.
    """
    require_each_once(seeds or [])

    from components.evaluation.study.study_results import summarise
    from flows.jobs.study import study, write_study
    from flows.jobs.study_methods import BASE, BASES, chosen_methods

    config, place = _prepared(config_file, overrides), Path.cwd() / cells
    with tags(TAG):
        # Called as a function: the cells are tasks of this flow run.
        found = study.fn(config, Path.cwd(), chosen_methods(methods), seeds or [0, 1, 2], place)
    return [
        str(path)
        for path in write_study(found, summarise(found, BASE, BASES), place.with_suffix(".json"), place)
    ]


@flow(name="watch-data")
def watch_data(config_file: str = "configs/quick.yaml") -> str | State[Any]:
    """Send an event if the offline trajectories are not those that a retraining last started with; their
    hash.

    They are pulled first if data.dvc names a version that is not there. The first watch of an environment
    notes them and sends nothing. While a retraining runs or waits for a worker, the event is put off: the
    slot is taken, and the server would cancel a second retraining.
    """
    config, root = load_config(Path.cwd() / config_file), Path.cwd()
    _data_in_place(config, backbone=False)
    current, trained = trajectories_hash(config, root), trained_on(config)
    if not trained:
        note_trained_on(config, current)
    elif current == trained:
        message = f"The trajectories are those of the last retraining ({current[:12]})."
        return Completed(name=SKIPPED, message=message)
    elif run := retraining_in_progress(RETRAIN):
        waits = f"The retraining {run} holds the slot: the event follows when it has ended."
        return Completed(name=SKIPPED, message=f"The trajectories have changed ({current[:12]}). {waits}")
    else:
        resource = {"prefect.resource.id": DATA_RESOURCE, "prefect.resource.name": "trajectories"}
        emit_event(DATA_CHANGED, resource, payload={"hash": current})
    return current


def _prepared(config_file: str, overrides: list[str] | None, *, trains: bool = False) -> Config:
    """The config, with its data in place.

    Args: trains: note the trajectories for the watch, also where the overrides are refused afterwards.
    """
    from flows.checks.machine import require_machine
    from flows.checks.preflight import check_settings, require_repository

    root = Path.cwd()
    plain = load_config(root / config_file)
    require_repository(root)
    require_machine(root)
    _data_in_place(plain, backbone=not overrides and not plain.backbone.path)
    if trains:
        note_trained_on(plain, trajectories_hash(plain, root))
    if not overrides:
        check_settings(root, plain, Path(config_file))
        return plain
    config = load_config(root / config_file, overrides)
    _data_in_place(config, backbone=not config.backbone.path)
    if trains and config.environment.name != plain.environment.name:
        note_trained_on(config, trajectories_hash(config, root))
    check_settings(root, config, Path(config_file))
    return config


def _server_is_silent(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failure is worth another try: only one of transport is."""
    return isinstance(state.result(raise_on_failure=False), ServiceUnreachable)


def _tried_again(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task that is tried again while a server is silent, and after no other failure."""
    return task(
        name=name,
        retries=3,
        retry_delay_seconds=exponential_backoff(30),
        retry_jitter_factor=0.5,
        retry_condition_fn=_server_is_silent,
        cache_policy=NO_CACHE,
    )


@_tried_again("data")
def _data_in_place(config: Config, backbone: bool) -> None:
    """What is in a remote that does not answer is waited for."""
    from flows.checks.preflight import ensure_data

    ensure_data(Path.cwd(), config, get_run_logger().info, backbone=backbone)


def _retrained(config: Config) -> tuple[str, str]:
    """The run's id and the gate's reason.

    While a server is silent it is tried again: each try is a run of its own, which reuses the finished
    stages. The job is called as a function, so that its stages are subflows of the deployed flow run.
    """
    from flows.retrain import retrain

    for delay in (*RETRY_SECONDS, None):
        try:
            finished = retrain.fn(config, Path.cwd())
        except ServiceUnreachable as error:
            if delay is None:
                raise
            get_run_logger().warning("%s Tried again in %.0f s.", error, delay)
            time.sleep(delay * random.uniform(1, 1.5))
        else:
            return finished.directory.name, finished.decision.reason
    raise AssertionError("the last try raises or returns")
