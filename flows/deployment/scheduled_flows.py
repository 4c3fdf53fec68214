"""The flows that deployments run (prefect.yaml, `dreamgym deploy`). Their parameters are plain values.

A flow retries only if a server does not answer: a stage that failed would fail again.
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

# These imports read the settings made above.
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
"""A seed as parameter of a flow; `true`, "010" and 1.0 are refused."""
P = ParamSpec("P")
R = TypeVar("R")
RETRY_SECONDS = (30.0, 60.0, 120.0)
"""Seconds before each retry of a retraining when a server did not answer, plus up to 50 % at random."""


@flow(name="retrain-from-file")
def retrain_from_file(
    config_file: str = "configs/quick.yaml", overrides: list[str] | None = None, skip_unchanged: bool = True
) -> str | State[Any]:
    """Retrain with a config file of the repository and `key=value` overrides; return the run's id.

    The flow run takes the run's name, and its stages are its subflows. With `skip_unchanged` it is skipped if
    a finished run has the same data, config and code. A refused promotion is a normal outcome: the flow
    completes. Any other failure fails it.
    """
    from flows.past_runs.resume import unchanged_since

    config = _prepare_config(config_file, overrides, trains=True)
    earlier = unchanged_since(config, Path.cwd()) if skip_unchanged else ""
    if earlier:
        return Completed(name=SKIPPED, message=f"Nothing that it depends on has changed since run {earlier}.")
    with tags(TAG):
        run, reason = _retrain_with_retries(config)
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
    """Run a study with a config file of the repository; return the paths of its JSON file and figures.

    Finished cells are reused. The files are written next to the cells, which git ignores: a schedule leaves
    the workspace clean.
    """
    require_each_once(seeds or [])

    from components.evaluation.study.study_results import summarise
    from flows.jobs.studies.method import BASE
    from flows.jobs.studies.method_config import chosen_methods
    from flows.jobs.studies.study import study, write_study
    from flows.jobs.studies.study_methods import BASES, CONTROLS

    config = _prepare_config(config_file, overrides)
    directory = Path.cwd() / cells
    with tags(TAG):
        # Called as a function: the cells are tasks of this flow run.
        names = chosen_methods(config, methods)
        study_cells = study.fn(config, Path.cwd(), names, seeds or [0, 1, 2], directory)
    metrics = summarise(study_cells, BASE, BASES, names, CONTROLS)
    paths = write_study(study_cells, metrics, directory.with_suffix(".json"), directory)
    return [str(path) for path in paths]


@flow(name="watch-data")
def watch_data(config_file: str = "configs/quick.yaml") -> str | State[Any]:
    """Send an event if the trajectories changed since the last retraining started; return their hash.

    They are pulled first if data.dvc names a missing version. The first watch of an environment stores the
    hash and sends nothing. While a retraining runs or waits for a worker the event is postponed: the slot is
    taken, and the server would cancel a second retraining.
    """
    root = Path.cwd()
    config = load_config(root / config_file)
    _pull_data(config, backbone=False)
    current = trajectories_hash(config, root)
    last_trained = trained_on(config)
    if not last_trained:
        note_trained_on(config, current)
    elif current == last_trained:
        message = f"The trajectories are those of the last retraining ({current[:12]})."
        return Completed(name=SKIPPED, message=message)
    elif run := retraining_in_progress(RETRAIN):
        message = (
            f"The trajectories have changed ({current[:12]}). The retraining {run} uses the slot: the event "
            "is sent when it has ended."
        )
        return Completed(name=SKIPPED, message=message)
    else:
        resource = {"prefect.resource.id": DATA_RESOURCE, "prefect.resource.name": "trajectories"}
        emit_event(DATA_CHANGED, resource, payload={"hash": current})
    return current


def _prepare_config(config_file: str, overrides: list[str] | None, *, trains: bool = False) -> Config:
    """Return the config, with its data pulled and its settings checked.

    Args:
        trains: store the hash of the trajectories for the watch, even if the overrides are refused
            afterwards.
    """
    from flows.checks.config_checks import check_settings
    from flows.checks.fit_to_data import fit_to_data
    from flows.checks.machine import require_machine
    from flows.checks.preflight import require_repository

    root = Path.cwd()
    base = load_config(root / config_file)
    require_repository(root)
    require_machine(root)
    _pull_data(base, backbone=not overrides and not base.backbone.path)
    if trains:
        note_trained_on(base, trajectories_hash(base, root))
    if not overrides:
        base, _ = fit_to_data(root, base)
        check_settings(root, base, Path(config_file))
        return base
    config = load_config(root / config_file, overrides)
    _pull_data(config, backbone=not config.backbone.path)
    if trains and config.environment.name != base.environment.name:
        note_trained_on(config, trajectories_hash(config, root))
    config, _ = fit_to_data(root, config)
    check_settings(root, config, Path(config_file))
    return config


def _server_did_not_answer(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return True if a task failed because a server did not answer: only then it is retried."""
    return isinstance(state.result(raise_on_failure=False), ServiceUnreachable)


def _retried_task(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return a decorator for a task that is retried only while a server does not answer."""
    return task(
        name=name,
        retries=3,
        retry_delay_seconds=exponential_backoff(30),
        retry_jitter_factor=0.5,
        retry_condition_fn=_server_did_not_answer,
        cache_policy=NO_CACHE,
    )


@_retried_task("data")
def _pull_data(config: Config, backbone: bool) -> None:
    """Pull the data of the config if it is missing; retried while the remote does not answer."""
    from flows.checks.preflight import ensure_data

    ensure_data(Path.cwd(), config, get_run_logger().info, backbone=backbone)


def _retrain_with_retries(config: Config) -> tuple[str, str]:
    """Retrain; return the run's id and the reason of the promotion gate.

    If a server does not answer it is retried: each attempt is a run of its own, which reuses the finished
    stages. The job is called as a function, so that its stages are subflows of the deployed flow run.
    """
    from flows.retrain import retrain

    for delay in (*RETRY_SECONDS, None):
        try:
            result = retrain.fn(config, Path.cwd())
        except ServiceUnreachable as error:
            if delay is None:
                raise
            get_run_logger().warning("%s Retry in %.0f s.", error, delay)
            time.sleep(delay * random.uniform(1, 1.5))
        else:
            return result.directory.name, result.decision.reason
    raise AssertionError("the last attempt raises or returns")
