"""One run of the pipeline: its directory, manifest, MLflow runs and stage store, and the one way to run a
stage.

A stage is a function from a work directory to an `Outcome`. It is keyed by the content of its inputs, its
slice of the config and the code it depends on; a key seen before is reused if its outputs still agree with
their hashes.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect import get_client, get_run_logger, runtime
from prefect.utilities.timeout import timeout

from components.config import Config, dump_config, source_of
from components.environments.named import look_here
from components.errors import StageTimeout
from components.evaluation.intervals import Estimate, exact
from components.language import parallel
from components.language.compute import Compute, compute_of
from components.tracking.curves import Curves, Point, read_curves
from components.tracking.environment import collect_environment
from components.tracking.hashes import with_imports
from components.tracking.manifest import Manifest
from components.tracking.mlflow_store import Tracker
from components.tracking.process import this_process
from components.tracking.runs import new_run_id, start_run_directory, write_metrics
from components.tracking.stage_keys import key_of, key_parts, read_pins
from components.tracking.stages import RECORD, StageResult, StageStore
from components.tracking.stopwatch import Stopwatch
from components.trajectories.snapshots import data_hash, data_parts
from components.trajectories.store import DataLayout
from flows.dead_flow_runs import end_dead_runs
from flows.watched_data import trajectories_hash

BOOKKEEPING = [
    "components.tracking",
    "components.atomic",
    "components.bounded",
    "components.config",
    "components.errors",
]
BOOKKEEPING += ["flows.dead_flow_runs", "flows.progress", "flows.workspace"]
"""What records results and makes none (a stage's own part of the config is in its key)."""

_SINCE = [psutil.Process().create_time()]
"""When the clock of the run under way began: with the process, or with the end of the run before it, so that
starting up counts too.
"""


OF_RUN = "{run.label}"
"""What a stage's flow run is called in Prefect, beside the stage's name: the run that it belongs to, as
MLflow names it.
"""


class StageOverdue(TimeoutError):
    """A stage's time is up."""


@dataclass
class Outcome:
    """What a stage's function gives back: metrics, output names -> paths relative to its work directory,
    curves, details.
    """

    outputs: dict[str, str]
    metrics: dict[str, Estimate] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, int] = field(default_factory=dict)


def series_of(result: StageResult) -> dict[str, list[float]]:
    """The curves of a stage; NaN where an iteration had no value (stored as null, since JSON has no NaN)."""
    series = result.details.get("series", {})
    return {
        name: [math.nan if value is None else value for value in values] for name, values in series.items()
    }


class Workspace:
    """Everything that the stages of one run share."""

    def __init__(self, config: Config, root: Path) -> None:
        self.config, self.root = config, root
        self.data = DataLayout.of(root, config.environment.name)
        self.store = StageStore(root / ".dreamgym" / "stages")
        self.results: dict[str, StageResult] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        self.curve_names: set[str] = set()
        self._curves: Curves | None = None
        self._drawn: set[str] = set()

    @cached_property
    def tracker(self) -> Tracker:
        """MLflow. Raises TrackingError if it cannot be reached."""
        return Tracker(self.config.tracking, self.root)

    def start(self, name: str) -> None:
        """Make the run's directory, manifest and MLflow parent run; runs of before whose process is gone are
        closed.

        Raises DataError without a data.dvc, TrackingError without MLflow, and then makes nothing.
        """
        run_id, version, tracker = new_run_id(), data_hash(self.root), self.tracker
        end_dead_runs(self.root, tracker)
        self.directory = start_run_directory(self.root / "runs", run_id)
        (self.directory / "config.json").write_text(dump_config(self.config))
        environment = collect_environment(self.root, self.directory, self.config.threads, self.compute.device)
        config = self.config.model_dump(mode="json")
        flow, process = name.split(" ")[0], this_process()
        self.manifest = Manifest(
            run_id=run_id, flow=flow, process=process, environment=environment, config=config
        )
        self.manifest.seeds = {
            "run": self.config.seed,
            "data": self.config.data.seed,
            "environment": self.config.environment.seed,
        }
        self.manifest.prefect_flow_run_id = str(runtime.flow_run.id or "")
        self.manifest.data.dvc_in, self.manifest.data.parts_in = version, data_parts(self.root)
        self.manifest.config_file, self.manifest.overrides = _source(self.config, self.root)
        tags = {
            "dreamgym.run_id": run_id,
            "mlflow.source.git.commit": environment.git.commit,
            "dvc.hash": self.manifest.data.dvc_in,
        }
        short = name.removeprefix("study ")  # a list of runs shows some twenty letters
        self.label = f"{short} {run_id.rpartition('-')[2]}, seed {self.config.seed}"
        by_hand_or_deployed = (self.manifest.flow, f"{self.manifest.flow}-from-file")
        own = runtime.flow_run.flow_name in by_hand_or_deployed
        if own and not runtime.task_run.id:  # the cells of a study share a flow run
            with get_client(sync_client=True) as prefect:
                prefect.set_flow_run_name(UUID(runtime.flow_run.id), self.label)
        self.parent = tracker.start_run(self.label, tags, self.config.model_dump(mode="json"))
        part, file = trajectories_hash(self.config, self.root), str(self.data.trajectories("train"))
        tracker.log_dataset(self.parent, "trajectories", part, file, version=version)
        self.manifest.mlflow_run_id, self.manifest.mlflow_uri = self.parent, tracker.uri
        self.manifest.save(self.directory)

    def note_cell(self, file: Path) -> None:
        """The run makes a cell of a study, which will be written to `file`."""
        self.manifest.cell = str(file.relative_to(self.root) if file.is_relative_to(self.root) else file)
        self.manifest.save(self.directory)

    def stage(
        self,
        name: str,
        work: Callable[[Path], Outcome],
        *,
        inputs: Mapping[str, str],
        config: Mapping[str, Any],
        code: Sequence[str],
    ) -> StageResult:
        """Run `work`, or reuse what an earlier run made of the same inputs, config and code; log it below the
        parent run.

        Args: code: the modules that hold `work`; what they import belongs to the key too.
        """
        log = get_run_logger()
        key = self.key(name, inputs, config, code)
        child = self.tracker.start_stage(self.parent, name, {"dreamgym.stage_key": key})
        result = self.store.find(name, key)
        try:
            if result is None:
                log.info("%s: started", name)
                result = self._make(name, key, work, child)
        except BaseException:
            self.tracker.finish(child, "FAILED")
            raise
        log.info("%s: %s in %.0f s", name, "reused, made" if result.reused else "done", result.seconds)
        self._note(result, child)
        return result

    def key(
        self, name: str, inputs: Mapping[str, str], config: Mapping[str, Any], code: Sequence[str]
    ) -> str:
        """The stage's key: what it is made of, the packages' versions and the seed included, and the user's
        module that makes the world.
        """
        if "environment" in config and (own := self.config.environment.own_module):
            look_here()
            code = [*code, own]
        pins = read_pins(self.root / "constraints.txt")
        parts = key_parts(inputs, config, with_imports(code, BOOKKEEPING), pins, self.config.seed)
        self.parts[name] = parts
        return key_of(name, parts)

    def adopt(self, result: StageResult) -> None:
        """Take a finished stage of another run as this run's own, with an MLflow run of its own below the
        parent run.
        """
        child = self.tracker.start_stage(self.parent, result.name, {"dreamgym.stage_key": result.key})
        self._note(dataclasses.replace(result, reused=True), child)

    def _make(self, name: str, key: str, work: Callable[[Path], Outcome], child: str) -> StageResult:
        directory = self.store.begin(name, key)
        with Stopwatch(directory) as watch, self._drawing(directory, child), self.limited(name):
            outcome = work(directory)
        series = {
            name: [value if math.isfinite(value) else None for value in values]
            for name, values in outcome.series.items()
        }
        details = {
            **outcome.details,
            "series": series,
            "costs": outcome.costs,
            "environment": self.config.environment.name,
        }
        metrics = {metric: estimate.to_json() for metric, estimate in outcome.metrics.items()}
        return self.store.commit(
            name,
            key,
            metrics=metrics,
            outputs=outcome.outputs,
            seconds=round(watch.stop(), 2),
            details=details,
            parts=self.parts[name],
        )

    @contextmanager
    def _drawing(self, directory: Path, child: str) -> Iterator[None]:
        """While this is open `log_curves` adds points to the curves of the stage, on its MLflow run `child`
        and on the parent run.
        """
        curves = self._curves = Curves(
            directory, lambda points: self.tracker.log_points((child, self.parent), points)
        )
        try:
            with curves:
                yield
        finally:
            self._curves, self._drawn = None, curves.names

    def log_curves(self, step: int, values: Mapping[str, float]) -> None:
        """One more point, at `step` (from 0), of curves of the stage under way: in MLflow at once, with the
        time.
        """
        if self._curves is not None:
            self._curves.add(step, values)

    @contextmanager
    def limited(self, name: str) -> Iterator[None]:
        """The stage's time (`timeout_minutes`) runs while this is open. Raises StageTimeout when it is up."""
        limit = self.config.timeout_minutes.seconds(name)
        try:
            with timeout(limit, StageOverdue):
                yield
        except StageOverdue:
            found = f"The stage {name} had not ended after {limit / 60:g} minutes (timeout_minutes)."
            cure = (
                "Type the same command again: it goes on from its checkpoint. Or give it longer: "
                f"timeout_minutes.stage={limit / 30:g}"
            )
            raise StageTimeout(found, next_step=cure) from None

    def _note(self, result: StageResult, child: str) -> None:
        self.results[result.name] = result
        self.metrics |= result.metrics
        self._note_curves(result, child)
        self.tracker.log_estimates(child, result.metrics, self.curve_names)
        self.tracker.log_metrics(child, {"seconds": result.seconds, "reused": float(result.reused)})
        self.tracker.finish(child)
        self.manifest.add_stage(result, child)
        costs = self.manifest.costs
        for name, value in result.details.get("costs", {}).items():
            setattr(costs, name, getattr(costs, name) + value)
        self.manifest.save(self.directory)

    def _note_curves(self, result: StageResult, child: str) -> None:
        """Log the curves that are not in MLflow yet: those of a reused stage, and those that were not
        measured one by one.

        Points without a time of their own have that of the stage's end.
        """
        curves, ended = read_curves(result.directory), int((result.directory / RECORD).stat().st_mtime * 1000)
        for name, values in series_of(result).items():
            curves.setdefault(
                name,
                [
                    Point(name, step, ended, value)
                    for step, value in enumerate(values)
                    if math.isfinite(value)
                ],
            )
        points = [point for name, of_name in curves.items() if name not in self._drawn for point in of_name]
        self.tracker.log_points((child, self.parent), points)
        self.curve_names |= self._drawn | {point.name for point in points}
        self._drawn = set()

    def conclude(self) -> None:
        """Write the metrics and a manifest that says finished."""
        write_metrics(self.directory, self.metrics)
        self.manifest.status, self.manifest.seconds = "finished", round(time.time() - _SINCE[0], 1)
        self.manifest.save(self.directory)

    @property
    def record(self) -> list[Path]:
        """The files that say what the run was, and by which it can be made again."""
        return [self.directory / f"{name}.json" for name in ("manifest", "metrics", "config")]

    def finish(self, more: Sequence[Path] = ()) -> None:
        """Conclude, and leave the same record in MLflow, with `more` files; n and interval of a metric stand
        in its stage's run alone.
        """
        self.conclude()
        self.tracker.log_values(self.parent, self.metrics, self.curve_names)
        for path in (*self.record, *more):
            self.tracker.log_artifact(self.parent, path)
        self.tracker.finish(self.parent)
        _SINCE[0] = time.time()

    def fail(self, error: BaseException) -> None:
        """Leave a truthful record: manifest and MLflow say failed, with the reason and the metrics so far."""
        self.manifest.status = "failed"
        self.manifest.save(self.directory)
        said = f"{type(error).__name__}: {error}"
        self.tracker.set_tags(self.parent, {"dreamgym.failure": said})
        self.tracker.describe(
            self.parent, f"**Failed.** {said}\n\nThe same command goes on from what is finished."
        )
        self.tracker.finish(self.parent, "FAILED")
        get_run_logger().error(
            "run %s failed; finished stages are kept and reused by the next run", self.manifest.run_id
        )

    def count(self, name: str, value: float) -> None:
        """Add a number without uncertainty to the run's metrics."""
        self.metrics[name] = exact(value).to_json()

    def child(self, stage: str) -> str:
        """The MLflow run of a finished stage."""
        return next(entry.mlflow_run_id for entry in self.manifest.stages if entry.name == stage)

    @cached_property
    def compute(self) -> Compute:
        """The device and arithmetic of this run's models. Raises ConfigError where this machine has not what
        is asked for.
        """
        return compute_of(self.config)

    def computing(self, *, training: bool = False) -> dict[str, Any]:
        """What of the hardware and its arithmetic changes a stage's numbers: each device rounds in its own
        way.
        """
        values: dict[str, Any] = {"device": self.compute.device, "precision": self.compute.precision}
        if not training:
            return values
        together = {"training_processes": parallel.size()} if parallel.size() > 1 else {}
        return values | together | {"gradient_checkpointing": self.compute.gradient_checkpointing}

    def slice(self, *sections: str) -> dict[str, Any]:
        """The named sections of the config as plain values, without what changes no result: how many workers,
        where a model lies.
        """
        values = self.config.model_dump(mode="json", include=set(sections))
        if "environment" in values:
            values["environment"] = self.config.environment.decisive()
        for place in ("encoder_path", "server"):
            values.get("retrieval", {}).pop(place, None)
        for idle in ("path", "checkpoint_every"):
            values.get("experience_model", {}).pop(idle, None)
        return values


def _source(config: Config, root: Path) -> tuple[str, list[str]]:
    """The config's file, relative to the repository where it lies in it, and the overrides on top."""
    source = source_of(config)
    file = Path(source.file).absolute() if source.file else None
    named = "" if file is None else str(file.relative_to(root) if file.is_relative_to(root) else file)
    return named, list(source.overrides)
