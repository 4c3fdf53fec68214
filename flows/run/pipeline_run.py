"""One run of the pipeline: its directory, manifest, MLflow runs, and the one way to run a stage.

A stage (`stage.py`) has a key: the hash of its inputs, its slice of the config and the code that it depends
on. A result with the same key is reused if its outputs still have their recorded hashes.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect import get_client, get_run_logger, runtime
from prefect.utilities.timeout import timeout

from components.config import Config, dump_config, source_of
from components.environments import adapter_modules
from components.environments.text_world.import_path import look_here
from components.errors import StageTimeout
from components.evaluation.metrics.intervals import exact_value
from components.language.compute import Compute, compute_of
from components.language.training import parallel
from components.tracking.curve_file import Curves, Point, read_curves
from components.tracking.data_parts import trajectories_hash
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.process import this_process
from components.tracking.run_environment import collect_environment
from components.tracking.runs import new_run_id, start_run_directory, write_metrics
from components.tracking.stage_store.hashes import tree_hash, with_imports
from components.tracking.stage_store.stage_keys import key_of, key_parts, read_pins
from components.tracking.stage_store.stage_result import RECORD, StageResult
from components.tracking.stage_store.stage_store import StageStore
from components.tracking.stage_store.stopwatch import Stopwatch
from components.trajectories.dvc.snapshots import data_hash, data_parts
from components.trajectories.store import DataLayout
from flows.dead_flow_runs import end_dead_runs
from flows.run.stage import Fingerprint, Stage, StageOutput

BOOKKEEPING = [
    "components.tracking",
    "components.files",
    "components.config",
    "components.errors",
]
BOOKKEEPING += ["flows.dead_flow_runs", "flows.training_log", "flows.run.pipeline_run", "flows.run.stage"]
"""What records results and makes none (a stage's own part of the config is in its key)."""

_SINCE = [psutil.Process().create_time()]
"""When the clock of the run under way began: with the process, or with the end of the run before it, so that
starting up counts too.
"""


class StageOverdue(TimeoutError):
    """A stage's time is up."""


def series_of(result: StageResult) -> dict[str, list[float]]:
    """The curves of a stage; NaN where an iteration had no value (stored as null, since JSON has no NaN)."""
    series = result.details.get("series", {})
    return {
        name: [math.nan if value is None else value for value in values] for name, values in series.items()
    }


class Run:
    """Everything that the stages of one run share."""

    def __init__(self, config: Config, root: Path) -> None:
        self.config, self.root = config, root
        self.data = DataLayout.of(root, config.environment.name)
        self.store = StageStore(root / ".dreamgym" / "stages")
        self.results: dict[str, StageResult] = {}
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

    def stage(self, stage: Stage) -> StageResult:
        """Run a stage, or reuse what an earlier run made of the same inputs, config and code.

        The stage has an MLflow run of its own below the parent run.
        """
        log = get_run_logger()
        parts = self.stage_key_parts(stage)
        key = key_of(stage.name, parts)
        child = self.tracker.start_stage(self.parent, stage.name, {"dreamgym.stage_key": key})
        result = self.store.find(stage.name, key)
        try:
            if result is None:
                log.info("%s: started", stage.name)
                result = self._make(stage, key, parts, child)
        except BaseException:
            self.tracker.finish(child, "FAILED")
            raise
        log.info("%s: %s in %.0f s", stage.name, "reused, made" if result.reused else "done", result.seconds)
        self._note(result, child)
        return result

    def stage_key_parts(self, stage: Stage) -> dict[str, Any]:
        """What the stage's key is made of: hashes of inputs and code, config, packages, seed."""
        inputs = {name: self._input_hash(source) for name, source in stage.inputs.items()}
        return self.key_parts(inputs, stage.config, stage.code)

    def key_parts(self, inputs: Mapping[str, str], config: Mapping[str, Any], code: str) -> dict[str, Any]:
        """The parts of a key. Of all environments, only the selected one's code counts.

        Args: inputs: name -> hash; code: the module whose imports are followed.
        """
        modules = [code]
        if "environment" in config:
            look_here()
            modules += adapter_modules(self.config.environment)
        pins = read_pins(self.root / "constraints.txt")
        return key_parts(inputs, config, with_imports(modules, BOOKKEEPING), pins, self.config.seed)

    def _input_hash(self, source: StageOutput | Path | Fingerprint) -> str:
        match source:
            case StageOutput():
                return self.results[source.stage].output_hashes[source.name]
            case Fingerprint():
                return source.hash
            case _:
                return tree_hash(source)

    def _input_paths(self, stage: Stage) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        for name, source in stage.inputs.items():
            if isinstance(source, StageOutput):
                paths[name] = self.results[source.stage].outputs[source.name]
            elif isinstance(source, Path):
                paths[name] = source
        return paths

    def adopt(self, result: StageResult) -> None:
        """Take a finished stage of another run as this run's own, with an MLflow run of its own below the
        parent run.
        """
        child = self.tracker.start_stage(self.parent, result.name, {"dreamgym.stage_key": result.key})
        self._note(dataclasses.replace(result, reused=True), child)

    def _make(self, stage: Stage, key: str, parts: dict[str, Any], child: str) -> StageResult:
        directory = self.store.begin(stage.name, key)
        with Stopwatch(directory) as watch, self._drawing(directory, child), self.limited(stage.name):
            outcome = stage.work(self._input_paths(stage), directory)
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
            stage.name,
            key,
            metrics=metrics,
            outputs=outcome.outputs,
            seconds=round(watch.stop(), 2),
            details=details,
            parts=parts,
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
        """Limit the stage to `stage_timeout_minutes` within this block. Raises StageTimeout when it is up."""
        limit = 60 * self.config.stage_timeout_minutes
        try:
            with timeout(limit, StageOverdue):
                yield
        except StageOverdue:
            found = f"The stage {name} had not ended after {limit / 60:g} minutes (stage_timeout_minutes)."
            cure = (
                "Type the same command again: it goes on from its checkpoint. Or give it longer: "
                f"stage_timeout_minutes={limit / 30:g}"
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
        self.metrics[name] = exact_value(value).to_json()

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
        """Sections of the config as plain values, without keys that change no result (workers, paths).

        Args: sections: names; of `rl` those of a stage, such as `rl.dream`.
        """
        names = {name for name in sections if not name.startswith("rl.")}
        values = self.config.model_dump(mode="json", include=names)
        for name in set(sections) - names:
            values[name] = self.config.rl.model_dump(mode="json")[name.removeprefix("rl.")]
        if "environment" in values:
            values["environment"] = self.config.environment.decisive()
        for place in ("encoder_path", "server"):
            values.get("retrieval", {}).pop(place, None)
        values.get("experience_model", {}).pop("path", None)
        return values


def _source(config: Config, root: Path) -> tuple[str, list[str]]:
    """The config's file, relative to the repository where it lies in it, and the overrides on top."""
    source = source_of(config)
    file = Path(source.file).absolute() if source.file else None
    named = "" if file is None else str(file.relative_to(root) if file.is_relative_to(root) else file)
    return named, list(source.overrides)
