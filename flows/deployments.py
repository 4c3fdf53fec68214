"""What a schedule runs: flows whose parameters are plain values, so that a deployment can carry them (prefect.yaml, `dreamgym deploy`).

A server that does not answer is waited for and tried again; nothing else is: a stage that failed fails again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from flows.settings import prepare

prepare(Path.cwd())

# The settings above are read at these imports.
from prefect import Task, flow, get_run_logger, tags, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State, TaskRun  # noqa: E402
from prefect.events import emit_event  # noqa: E402
from prefect.states import Completed  # noqa: E402
from prefect.tasks import exponential_backoff  # noqa: E402
from prefect.variables import Variable  # noqa: E402

from components.config import Config, load_config  # noqa: E402
from components.errors import ServiceUnreachable  # noqa: E402
from components.trajectories.store import DataLayout  # noqa: E402
from flows.automations import DATA_CHANGED, DATA_RESOURCE, SKIPPED, TAG  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")
SEEN = "dreamgym_trajectories"
"""The Prefect variables, one an environment, that hold the DVC hash of its trajectories last seen."""


@flow(name="retrain-from-file")
def retrain_from_file(
    config_file: str = "configs/quick.yaml", overrides: list[str] | None = None, skip_unchanged: bool = True
) -> str | State[Any]:
    """Retrain with a config file of the repository and `key=value` overrides; the run's id.

    Skipped, and says so, when a finished run is made of the same data, config and code. A refused promotion is a normal outcome: the
    flow completes. Any other failure fails it.
    """
    from flows.resume import unchanged_since

    config = _prepared(config_file, overrides)
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
    seeds: list[int] | None = None,
    cells: str = ".dreamgym/study",
) -> list[str]:
    """A study with a config file of the repository; finished cells are read back. Its JSON file and figures lie beside the cells,
    where git does not look: a schedule leaves the workspace clean."""
    from components.evaluation.study import summarise
    from flows.study import study, write_study
    from flows.study_methods import BASE, BASES, chosen_methods

    config, place = _prepared(config_file, overrides), Path.cwd() / cells
    with tags(TAG):
        found = study(config, Path.cwd(), chosen_methods(methods), seeds or [0, 1, 2], place)
    return [str(path) for path in write_study(found, summarise(found, BASE, BASES), place.with_suffix(".json"), place)]


@flow(name="watch-data")
def watch_data(config_file: str = "configs/quick.yaml") -> str | State[Any]:
    """Send an event if the offline trajectories of that config's environment are of another version than last time, pulled if data.dvc
    names one that is not there; what RL adds to the replay log does not count."""
    from components.trajectories.snapshots import part_hash

    config, root = load_config(Path.cwd() / config_file), Path.cwd()
    _data_in_place(config, backbone=False)
    layout, noted = DataLayout.of(root, config.environment.name), f"{SEEN}_{config.environment.name}"
    found = part_hash(root, layout.trajectories("train").parent.relative_to(layout.root.parent).as_posix())
    seen: Any = Variable.get(noted, default="")
    if found == seen:
        return Completed(name=SKIPPED, message=f"The trajectories are those of last time ({found[:12]}).")
    if seen:  # told before it is noted: a watch that is cut off between the two tells twice, not never
        emit_event(DATA_CHANGED, {"prefect.resource.id": DATA_RESOURCE, "prefect.resource.name": "trajectories"}, payload={"hash": found})
    Variable.set(noted, found, overwrite=True)
    return found


def _prepared(config_file: str, overrides: list[str] | None) -> Config:
    from flows.preflight import check_settings, require_repository

    root = Path.cwd()
    config = load_config(root / config_file, overrides or [])
    require_repository(root)
    _data_in_place(config, backbone=not config.backbone.path)
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
    from flows.preflight import ensure_data

    ensure_data(Path.cwd(), config, get_run_logger().info, backbone=backbone)


@_tried_again("retrain")
def _retrained(config: Config) -> tuple[str, str]:
    """Each try is a run of its own, which reuses the stages that the one before finished."""
    from flows.retrain import retrain

    finished = retrain(config, Path.cwd())
    return finished.directory.name, finished.decision.reason
