"""Load the outputs of any stage of any run, verified by their hashes.

from components.tracking.stage_store.loading import load_stage

clone = load_stage("latest", "clone")
clone.paths["policy"], clone.metrics["..."]["value"], clone.curves["..."]

dreamgym load latest clone policy
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from pathlib import Path

from components.errors import DataError
from components.tracking.manifest import Manifest, StageEntry
from components.tracking.runs import Metrics, find_run
from components.tracking.stage_store.stage_result import StageResult
from components.tracking.stage_store.stage_store import StageStore

STAGES = Path(".dreamgym", "stages")
"""Path of the stage store in a clone."""


@dataclass(frozen=True)
class LoadedStage:
    """Outputs of a stage of a run (absolute paths), their hashes, its metrics and its curves.

    A metric is {"value", "n", "low", "high"}. A curve has one value per iteration, NaN if it has none.
    `seconds` is the wall time of its computation. `reused` is True if an earlier run computed it.
    """

    run: str
    stage: str
    key: str
    directory: Path
    paths: dict[str, Path]
    hashes: dict[str, str]
    metrics: Metrics
    curves: dict[str, list[float]]
    seconds: float
    reused: bool


def load_stage(run: str, stage: str, root: Path | str = ".") -> LoadedStage:
    """The result of a stage of a run, after a check of every output's hash.

    Args:
        run: id of a run, or `latest`.
        root: directory of the clone.

    Raises:
        DataError: there is no such run or stage, its files were removed, or one of them is damaged.
    """
    directory = find_run(Path(root).resolve() / "runs", run)
    manifest = Manifest.load(directory)
    entry = _stage_entry(manifest, stage)
    result, damage = StageStore(Path(root).resolve() / STAGES).look_up(entry.name, entry.key)
    if result is None:
        raise _missing_files_error(manifest, entry, damage)
    return LoadedStage(
        run=manifest.run_id,
        stage=entry.name,
        key=entry.key,
        directory=result.directory,
        paths=dict(result.outputs),
        hashes=dict(result.output_hashes),
        metrics=result.metrics,
        curves=curves_of(result),
        seconds=result.seconds,
        reused=entry.reused,
    )


def path_of(loaded: LoadedStage, output: str) -> Path:
    """The path of one output.

    Raises:
        DataError: there is no such output; the message names the existing ones.
    """
    if output in loaded.paths:
        return loaded.paths[output]
    problem = f"The stage {loaded.stage} of run {loaded.run} has no output {output!r}."
    raise DataError(problem, f"Expected one of {', '.join(sorted(loaded.paths)) or 'none'}.")


def curves_of(result: StageResult) -> dict[str, list[float]]:
    """The curves of a stage, with NaN for a missing value (null in JSON, which has no NaN)."""
    series = result.details.get("series", {})
    return {
        name: [math.nan if value is None else value for value in values] for name, values in series.items()
    }


def _stage_entry(manifest: Manifest, stage: str) -> StageEntry:
    names = [entry.name for entry in manifest.stages]
    if stage in names:
        return next(entry for entry in manifest.stages if entry.name == stage)
    problem = f"Run {manifest.run_id} ({manifest.status}) has no finished stage {stage!r}."
    near = difflib.get_close_matches(stage, names, n=1)
    hint = f"The nearest name is {near[0]}." if near else ""
    raise DataError(problem, f"Expected one of {', '.join(names) or 'none'}.", hint)


def _missing_files_error(manifest: Manifest, entry: StageEntry, damage: str) -> DataError:
    if damage:
        problem = f"The stage {entry.name} of run {manifest.run_id} is damaged: {damage}"
    else:
        stage = f"the stage {entry.name} ({entry.key[:12]}) of run {manifest.run_id}"
        problem = f"The files of {stage} no longer exist."
    next_step = f"Make them again: dreamgym reproduce {manifest.run_id} --keep"
    return DataError(problem, "Expected them under .dreamgym/stages/.", next_step)
