"""The manifest of a new run, the name of its Prefect flow run, and the clock of its wall time."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

import psutil
from prefect import get_client, runtime

from components.config import Config, source_of
from components.tracking.manifest import Manifest
from components.tracking.process import this_process
from components.tracking.run_environment import collect_environment
from components.trajectories.dvc.snapshots import data_parts
from flows.run.models.pinned_models import model_sources


class RunClock:
    """Wall time of the run under way.

    It starts with the process, or with the end of the previous run in it, so that starting up counts.
    """

    def __init__(self) -> None:
        self._start = psutil.Process().create_time()

    def restart(self) -> None:
        """Start again at 0."""
        self._start = time.time()

    @property
    def seconds(self) -> float:
        """Seconds since the start, rounded to tenths."""
        return round(time.time() - self._start, 1)


CLOCK = RunClock()
"""The clock of this process; its runs follow each other."""


def new_manifest(
    config: Config, root: Path, directory: Path, run_id: str, *, flow: str, device: str, data_version: str
) -> Manifest:
    """Return the manifest of a run that starts now, without its MLflow run.

    Args:
        root: of the repository.
        directory: of the run, for the git diff.
        flow: the run's job, such as `retrain`.
        device: the one that the run computes on.
        data_version: hash of `data.dvc`.
    """
    manifest = Manifest(
        run_id=run_id,
        flow=flow,
        process=this_process(),
        environment=collect_environment(root, directory, config.threads, device),
        config=config.model_dump(mode="json"),
    )
    manifest.pretrained = model_sources(config)
    manifest.seeds = {
        "run": config.seed,
        "data": config.data.seed,
        "environment": config.environment.seed,
    }
    manifest.prefect_flow_run_id = str(runtime.flow_run.id or "")
    manifest.data.dvc_in = data_version
    manifest.data.parts_in = data_parts(root)
    manifest.config_file = _config_file(config, root)
    manifest.overrides = list(source_of(config).overrides)
    return manifest


def _config_file(config: Config, root: Path) -> str:
    """Return the config's file, relative to the repository if it is inside; empty if there is none."""
    source = source_of(config)
    if not source.file:
        return ""
    return relative_to_root(Path(source.file).absolute(), root)


def relative_to_root(file: Path, root: Path) -> str:
    """Return the path of a file, relative to the repository if it is inside."""
    return str(file.relative_to(root) if file.is_relative_to(root) else file)


def name_flow_run(flow: str, label: str) -> None:
    """Give the Prefect flow run of the job `flow` the name `label`.

    A flow run of another flow keeps its name: the cells of a study share the study's flow run.
    """
    is_own_flow = runtime.flow_run.flow_name in (flow, f"{flow}-from-file")
    if is_own_flow and not runtime.task_run.id:
        with get_client(sync_client=True) as prefect:
            prefect.set_flow_run_name(UUID(runtime.flow_run.id), label)
