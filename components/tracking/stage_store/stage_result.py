"""Results of finished stages and their record on disk, `stage.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.files import read_text
from components.tracking.runs import Metrics, checked_metrics
from components.tracking.stage_store.hashes import tree_hash

RECORD = "stage.json"


@dataclass(frozen=True)
class StageResult:
    """A finished stage.

    `seconds` is the wall time of all attempts to compute it. `reused` is True if an earlier run computed it.
    """

    name: str
    key: str
    directory: Path
    metrics: Metrics
    outputs: dict[str, Path]
    output_hashes: dict[str, str]
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    reused: bool = False


@dataclass(frozen=True)
class EarlierResult:
    """A finished result as its record describes it, with unverified files.

    `parts` are the parts of its key; empty in the record of a version that did not keep them.
    `finished_at`: seconds since 1970.
    """

    directory: Path
    key: str
    seconds: float
    parts: dict[str, Any]
    finished_at: float


def read_verified_result(directory: Path, name: str, key: str) -> StageResult:
    """The result in `directory` with `reused` set.

    Raises:
        DataError: the record is of another stage or key, or an output differs from its hash.
        OSError, ValueError, KeyError, TypeError, AttributeError: the record cannot be read.
    """
    record = json.loads(read_text(directory / RECORD))
    if (record["name"], record["key"]) != (name, key):
        raise DataError(f"{RECORD} is of {record['name']} with key {record['key'][:12]}.")
    for label, place in record["outputs"].items():
        actual_hash = tree_hash(output_path(directory, label, place))
        expected_hash = record["output_hashes"][label]
        if actual_hash != expected_hash:
            problem = f"{label} ({place}) has the hash {actual_hash[:12]}."
            raise DataError(problem, f"Expected {expected_hash[:12]}.")
    return result_from_record(directory, record, reused=True)


def result_from_record(directory: Path, record: Mapping[str, Any], reused: bool) -> StageResult:
    """The result that a record describes, without a look at its files."""
    return StageResult(
        name=record["name"],
        key=record["key"],
        directory=directory,
        metrics=checked_metrics(record["metrics"]),
        outputs={label: directory / place for label, place in record["outputs"].items()},
        output_hashes=dict(record["output_hashes"]),
        seconds=float(record["seconds"]),
        details=dict(record["details"]),
        reused=reused,
    )


def output_path(directory: Path, label: str, place: str) -> Path:
    """The path of an output.

    Raises:
        DataError: it lies outside `directory`, or it is missing.
    """
    path = directory / place
    if not path.resolve().is_relative_to(directory.resolve()):
        raise DataError(f"The output {label} lies at {place}.", f"Expected a path relative to {directory}.")
    if not path.exists():
        raise DataError(f"The output {label} is missing: {path}.", "Expected a file or a directory.")
    return path
