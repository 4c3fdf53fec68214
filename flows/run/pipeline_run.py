"""One run of the pipeline: its directory, manifest, MLflow runs, and the one way to run a stage.

A stage (`stage.py`) has a key: the hash of its inputs, its slice of the config and the code that it depends
on (`stage_key.py`). A result with the same key is reused if its outputs still have their recorded hashes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.utilities.timeout import timeout

from components.config import Config, dump_config
from components.errors import StageTimeout
from components.evaluation.metrics.intervals import exact_value
from components.language.compute import Compute, compute_of
from components.tracking.data_parts import trajectories_hash
from components.tracking.manifest import Manifest
from components.tracking.mlflow_adapter.tracker import Tracker
from components.tracking.runs import new_run_id, start_run_directory, write_metrics
from components.tracking.stage_store.stage_keys import key_of
from components.tracking.stage_store.stage_result import StageResult
from components.tracking.stage_store.stage_store import StageStore
from components.tracking.stage_store.stopwatch import Stopwatch
from components.trajectories.dvc.snapshots import data_hash
from components.trajectories.store import DataLayout
from flows.dead_flow_runs import end_dead_runs
from flows.run.models.pinned_models import pin_models
from flows.run.run_manifest import CLOCK, name_flow_run, new_manifest, relative_to_root
from flows.run.stage import Stage
from flows.run.stage_curves import StageCurves, json_series
from flows.run.stage_key import (
    code_key_parts,
    compute_settings,
    config_sections,
    input_hashes,
    input_paths,
)

ROUND_STRIDE = 1000
"""Added to the seed in each further round."""


class StageOverdue(TimeoutError):
    """A stage's time is up."""


class Run:
    """What the stages of one run share.

    Attributes:
        data: the environment's tasks, episodes and replay log.
        logs: where the episodes of the stage `validate` come from; another world's for models made from logs.
        results: stage -> result, of the finished stages in their order.
        metrics: name -> value, n and interval as JSON values.
        manifest: the record of the run, after `start`.
        directory: `runs/<id>/`, after `start`.
        round: 1, or one more than that of the run that this one goes on with.
        label: the run's name in MLflow and Prefect, after `start`.
        parent: id of the run's parent run in MLflow, after `start`.
    """

    manifest: Manifest
    directory: Path
    label: str
    parent: str

    def __init__(self, config: Config, root: Path, logs: DataLayout | None = None) -> None:
        self.config = pin_models(config)
        self.root = root
        self.data = DataLayout.of(root, config.environment.name)
        self.logs = logs or self.data
        self.round = 1
        self.store = StageStore(root / ".dreamgym" / "stages")
        self.results: dict[str, StageResult] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        self.curves = StageCurves(lambda mlflow_runs, points: self.tracker.log_points(mlflow_runs, points))

    @property
    def round_seed(self) -> int:
        """Seed of what the policy plays in this round: no round repeats another's games."""
        return self.config.seed + ROUND_STRIDE * (self.round - 1)

    @cached_property
    def tracker(self) -> Tracker:
        """MLflow. Raises TrackingError if it cannot be reached."""
        return Tracker(self.config.tracking, self.root)

    @cached_property
    def compute(self) -> Compute:
        """Device and arithmetic of this run's models. Raises ConfigError if this machine lacks them."""
        return compute_of(self.config)

    def start(self, name: str) -> None:
        """Create the run's directory, manifest and MLflow parent run; end runs whose process was killed.

        Args:
            name: the job, and for a study the method too.

        Raises:
            DataError: there is no data.dvc. Nothing is created.
            TrackingError: MLflow cannot be reached. Nothing is created.
        """
        run_id = new_run_id()
        data_version = data_hash(self.root)
        tracker = self.tracker
        end_dead_runs(self.root, tracker)
        self.directory = start_run_directory(self.root / "runs", run_id)
        (self.directory / "config.json").write_text(dump_config(self.config))
        self.manifest = new_manifest(
            self.config,
            self.root,
            self.directory,
            run_id,
            flow=name.split(" ")[0],
            device=self.compute.device,
            data_version=data_version,
        )
        short_name = name.removeprefix("study ")  # a list of runs shows about twenty letters
        self.label = f"{short_name} {run_id.rpartition('-')[2]}, seed {self.config.seed}"
        name_flow_run(self.manifest.flow, self.label)
        tags = {
            "dreamgym.run_id": run_id,
            "mlflow.source.git.commit": self.manifest.environment.git.commit,
            "dvc.hash": data_version,
        }
        self.parent = tracker.start_run(self.label, tags, self.config.model_dump(mode="json"))
        digest = trajectories_hash(self.config, self.root)
        file = str(self.data.trajectories("train"))
        tracker.log_dataset(self.parent, "trajectories", digest, file, version=data_version)
        self.manifest.mlflow_run_id = self.parent
        self.manifest.mlflow_uri = tracker.uri
        self.manifest.save(self.directory)

    def note_cell(self, file: Path) -> None:
        """Record that the run makes the cell of a study that will be written to `file`."""
        self.manifest.cell = relative_to_root(file, self.root)
        self.manifest.save(self.directory)

    def stage(self, stage: Stage) -> StageResult:
        """Run a stage, or reuse what an earlier run made of the same inputs, config and code.

        The stage has its own MLflow run below the parent run. `flows/printing/run_progress.py` reads the log
        lines.
        """
        log = get_run_logger()
        parts = self.stage_key_parts(stage)
        key = key_of(stage.name, parts)
        stage_run = self.tracker.start_stage(self.parent, stage.name, {"dreamgym.stage_key": key})
        result = self.store.find(stage.name, key)
        try:
            if result is None:
                log.info("%s: started", stage.name)
                result = self._run_work(stage, key, parts, stage_run)
        except BaseException:
            self.tracker.finish(stage_run, "FAILED")
            raise
        log.info("%s: %s in %.0f s", stage.name, "reused, made" if result.reused else "done", result.seconds)
        self._record_result(result, stage_run)
        return result

    def adopt(self, result: StageResult, *, is_counted: bool = True) -> None:
        """Record a finished stage of another run as this run's, with its own MLflow run.

        Args:
            is_counted: its costs are costs of this run too.
        """
        if not is_counted:
            details = {name: value for name, value in result.details.items() if name != "costs"}
            result = dataclasses.replace(result, details=details)
        stage_run = self.tracker.start_stage(self.parent, result.name, {"dreamgym.stage_key": result.key})
        self._record_result(dataclasses.replace(result, reused=True), stage_run)

    def stage_key_parts(self, stage: Stage) -> dict[str, Any]:
        """Return the parts of the stage's key: hashes of inputs and code, config, packages, seed."""
        return self.key_parts(input_hashes(stage, self.results), stage.config, stage.code)

    def key_parts(self, inputs: Mapping[str, str], config: Mapping[str, Any], code: str) -> dict[str, Any]:
        """Return the parts of a key.

        Args:
            inputs: name -> hash.
            config: the config values that change the result.
            code: module whose imports are followed; of all environments only the selected one's code counts.
        """
        return code_key_parts(self.config, self.root, inputs, config, code)

    def _run_work(self, stage: Stage, key: str, parts: dict[str, Any], stage_run: str) -> StageResult:
        directory = self.store.begin(stage.name, key)
        streaming = self.curves.streaming(directory, (stage_run, self.parent))
        with Stopwatch(directory) as watch, streaming, self.limited(stage.name):
            outcome = stage.work(input_paths(stage, self.results), directory)
        details = {
            **outcome.details,
            "series": json_series(outcome.series),
            "costs": outcome.costs,
            "environment": self.config.environment.name,
        }
        return self.store.commit(
            stage.name,
            key,
            metrics={metric: estimate.to_json() for metric, estimate in outcome.metrics.items()},
            outputs=outcome.outputs,
            seconds=round(watch.stop(), 2),
            details=details,
            parts=parts,
        )

    def log_curves(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to curves of the stage under way; MLflow gets it at once, with the time.

        Args:
            step: from 0.
        """
        self.curves.add(step, values)

    @contextmanager
    def limited(self, name: str) -> Iterator[None]:
        """Limit the stage to `stage_timeout_minutes` within this block.

        Raises:
            StageTimeout: the time is up.
        """
        limit_seconds = 60 * self.config.stage_timeout_minutes
        try:
            with timeout(limit_seconds, StageOverdue):
                yield
        except StageOverdue:
            raise StageTimeout(
                f"The stage {name} had not ended after {limit_seconds / 60:g} minutes "
                "(stage_timeout_minutes).",
                next_step="Type the same command again: it continues from its checkpoint. Or give it longer: "
                f"stage_timeout_minutes={limit_seconds / 30:g}",
            ) from None

    def _record_result(self, result: StageResult, stage_run: str) -> None:
        """Add a stage's result to the run, its manifest and MLflow."""
        self.results[result.name] = result
        self.metrics |= result.metrics
        self.curves.log_missing(result, (stage_run, self.parent))
        self.tracker.log_estimates(stage_run, result.metrics, self.curves.names)
        self.tracker.log_metrics(stage_run, {"seconds": result.seconds, "reused": float(result.reused)})
        self.tracker.finish(stage_run)
        self.manifest.add_stage(result, stage_run)
        costs = self.manifest.costs
        for name, value in result.details.get("costs", {}).items():
            setattr(costs, name, getattr(costs, name) + value)
        self.manifest.save(self.directory)

    def conclude(self) -> None:
        """Write the metrics, and a manifest with the status `finished`."""
        write_metrics(self.directory, self.metrics)
        self.manifest.status = "finished"
        self.manifest.seconds = CLOCK.seconds
        self.manifest.save(self.directory)

    @property
    def record(self) -> list[Path]:
        """The files that describe the run; it can be reproduced from them."""
        return [self.directory / f"{name}.json" for name in ("manifest", "metrics", "config")]

    def finish(self, more: Sequence[Path] = ()) -> None:
        """Conclude the run, and store its record in MLflow.

        The parent run gets the values of the metrics; their n and intervals are on the runs of the stages.

        Args:
            more: further files for MLflow.
        """
        self.conclude()
        self.tracker.log_values(self.parent, self.metrics, self.curves.names)
        for path in (*self.record, *more):
            self.tracker.log_artifact(self.parent, path)
        self.tracker.finish(self.parent)
        CLOCK.restart()

    def fail(self, error: BaseException) -> None:
        """Record in the manifest and in MLflow that the run failed, with the reason."""
        self.manifest.status = "failed"
        self.manifest.save(self.directory)
        reason = f"{type(error).__name__}: {error}"
        self.tracker.set_tags(self.parent, {"dreamgym.failure": reason})
        self.tracker.describe(
            self.parent, f"**Failed.** {reason}\n\nThe same command continues after the finished stages."
        )
        self.tracker.finish(self.parent, "FAILED")
        get_run_logger().error(
            "run %s failed; finished stages are kept and reused by the next run", self.manifest.run_id
        )

    def count(self, name: str, value: float) -> None:
        """Add a number without uncertainty to the run's metrics."""
        self.metrics[name] = exact_value(value).to_json()

    def child(self, stage: str) -> str:
        """Return the id of the MLflow run of a finished stage."""
        return next(entry.mlflow_run_id for entry in self.manifest.stages if entry.name == stage)

    def computing(self, *, training: bool = False) -> dict[str, Any]:
        """Return how a stage computes, as part of its config: the hardware and its arithmetic.

        Args:
            training: whether the stage trains a model: then the adapters that it trains, too.
        """
        values = compute_settings(self.compute, training=training)
        if training and self.config.lora.rank:
            values["lora"] = self.config.lora.model_dump(mode="json")
        return values

    def slice(self, *sections: str) -> dict[str, Any]:
        """Return sections of the config as part of a stage's config, without keys that change no result.

        Args:
            sections: names; one of `rl` is named with its stage, such as `rl.dream`.
        """
        return config_sections(self.config, sections)
