"""Log metrics, curves, artifacts and data sets to MLflow runs."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

from components.errors import DataError
from components.tracking.curve_file import Point
from components.tracking.mlflow_adapter import runs_view
from components.tracking.mlflow_adapter.connection import Connection
from components.tracking.mlflow_adapter.dataset_schema import describe_parquet
from components.tracking.mlflow_adapter.metric_names import metric_name
from components.tracking.runs import Metrics

FINAL_SUFFIX = "_final"
_METRICS_PER_CALL = 1000
_MAX_DIGEST_CHARS = 36


class RunLog(Connection):
    """What a run measured, stored and read. Every call names the run that it is about."""

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log one value of each metric, all in one call."""
        now = _milliseconds()
        self._log_batches(
            run_id, (Metric(name, float(value), now, step or 0) for name, value in metrics.items())
        )

    def log_estimates(self, run_id: str, metrics: Metrics, curves: Collection[str] = ()) -> None:
        """Log metrics with their n and interval: `name`, `name_n`, `name_low`, `name_high`.

        `name_n` is left out if n is 1, and the interval if its ends are equal.

        Args:
            curves: names of the curves of the run, see `summary_name`.
        """
        values: dict[str, float] = {}
        for name, entry in metrics.items():
            label = summary_name(name, curves)
            keys = ["value", "low", "high"] if entry["low"] != entry["high"] else ["value"]
            for key in keys if entry["n"] == 1 else [*keys, "n"]:
                number = entry[key]
                if number is not None:
                    values[label if key == "value" else f"{label}_{key}"] = number
        self.log_metrics(run_id, values)

    def log_values(self, run_id: str, metrics: Metrics, curves: Collection[str] = ()) -> None:
        """Log metrics without n and interval, in the order in which a page lists them.

        The columns of `runs_view.py` come first.

        Args:
            curves: names of the curves of the run, see `summary_name`.
        """
        first = [name for name in runs_view.METRICS if name in metrics]
        names = dict.fromkeys([*first, *sorted(metrics)])
        values = {name: value for name in names if (value := metrics[name]["value"]) is not None}
        self.log_metrics(run_id, {summary_name(name, curves): value for name, value in values.items()})

    def log_points(self, run_ids: Sequence[str], points: Sequence[Point]) -> None:
        """Log points of curves, with the times at which they were measured, to each of the runs."""
        for run_id in run_ids:
            self._log_batches(
                run_id, (Metric(point.name, point.value, point.time, point.step) for point in points)
            )

    def log_series(self, run_id: str, name: str, values: Sequence[float], start: int = 0) -> None:
        """Log a curve with one value a step, beginning at step `start`, in batches of 1,000."""
        now = _milliseconds()
        self._log_batches(
            run_id, (Metric(name, float(value), now, start + step) for step, value in enumerate(values))
        )

    def log_artifact(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Store a file, or the content of a directory, with the run, under `folder` if it is given.

        Raises:
            DataError: the file is missing.
        """
        if not path.exists():
            raise DataError(
                f"{path} cannot be stored in MLflow: it does not exist.",
                next_step="Run the stage that makes it again.",
            )
        with self.reporting_errors(f"store {path.name}"):
            if path.is_dir():
                self.client.log_artifacts(run_id, str(path), folder)
            else:
                self.client.log_artifact(run_id, str(path), folder)

    def log_dataset(
        self,
        run_id: str,
        name: str,
        dvc_hash: str,
        path: str,
        context: str = "training",
        *,
        version: str = "",
    ) -> None:
        """List a data set among the inputs of the run.

        MLflow's page shows the beginning of the DVC hash as the digest. The tag `dvc.hash` holds all of it.
        For a Parquet file at `path` the page also shows columns and rows.

        Args:
            version: version of all of `data/` that this part belongs to, for the tag `dvc.version`.
        """
        source = json.dumps({"path": path, "dvc_hash": dvc_hash})
        schema, profile = describe_parquet(Path(path))
        digest = dvc_hash[:_MAX_DIGEST_CHARS]
        dataset = Dataset(name, digest, "dvc", source, schema=schema or None, profile=profile or None)
        tags = [InputTag("mlflow.data.context", context), InputTag("dvc.hash", dvc_hash)]
        tags += [InputTag("dvc.version", version)] if version else []
        with self.reporting_errors(f"link the data {name}"):
            self.client.log_inputs(run_id, datasets=[DatasetInput(dataset, tags)])

    def _log_batches(self, run_id: str, metrics: Iterator[Metric]) -> None:
        accepted = (
            Metric(metric_name(metric.key), metric.value, metric.timestamp, metric.step) for metric in metrics
        )
        with self.reporting_errors("log metrics"):
            while batch := list(islice(accepted, _METRICS_PER_CALL)):
                self.client.log_batch(run_id, metrics=batch)


def summary_name(name: str, curves: Collection[str]) -> str:
    """MLflow's name of a metric of `metrics.json`: `name`, or `name_final` where `name` is also a curve.

    MLflow's tables show the last point of a curve under the curve's name. A summary logged under that name,
    such as the mean of the last five points, would become a point of the curve.
    """
    return f"{name}{FINAL_SUFFIX}" if name in curves else name


def _milliseconds() -> int:
    return int(time.time() * 1000)
