"""Any step's output of any run, verified by its hash.

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
from components.tracking.stage_store.stage_store import StageResult, StageStore

STAGES = Path(".dreamgym", "stages")
"""Where the stage store lies in a clone."""


@dataclass(frozen=True)
class LoadedStage:
    """What a stage of a run left: absolute paths of its outputs, their hashes, its metrics and its curves.

    A metric is {"value", "n", "low", "high"}. A curve has one value an iteration, NaN where there was none.
    `seconds`: how long it took to compute; `reused`: an earlier run had computed it.
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
    """The result of a stage of a run; every output is hashed and compared with its record.

    Args: run: a run's id, or `latest`. root: the clone.

    Raises:
        DataError: there is no such run or stage, its files were removed, or one of them is damaged.
    """
    directory = find_run(Path(root).resolve() / "runs", run)
    manifest = Manifest.load(directory)
    entry = _entry(manifest, stage)
    result, damage = StageStore(Path(root).resolve() / STAGES).look_up(entry.name, entry.key)
    if result is None:
        raise _missing(manifest, entry, damage)
    return LoadedStage(
        manifest.run_id,
        entry.name,
        entry.key,
        result.directory,
        dict(result.outputs),
        dict(result.output_hashes),
        result.metrics,
        curves_of(result),
        result.seconds,
        entry.reused,
    )


def path_of(loaded: LoadedStage, output: str) -> Path:
    """The path of one output. Raises DataError naming the outputs that there are."""
    if output in loaded.paths:
        return loaded.paths[output]
    found = f"The stage {loaded.stage} of run {loaded.run} has no output {output!r}."
    raise DataError(found, f"Expected one of {', '.join(sorted(loaded.paths)) or 'none'}.")


def curves_of(result: StageResult) -> dict[str, list[float]]:
    """The curves of a stage; NaN where an iteration had no value (stored as null, since JSON has no NaN)."""
    series = result.details.get("series", {})
    return {
        name: [math.nan if value is None else value for value in values] for name, values in series.items()
    }


def _entry(manifest: Manifest, stage: str) -> StageEntry:
    names = [entry.name for entry in manifest.stages]
    if stage in names:
        return next(entry for entry in manifest.stages if entry.name == stage)
    found = f"Run {manifest.run_id} ({manifest.status}) has no finished stage {stage!r}."
    near = difflib.get_close_matches(stage, names, n=1)
    hint = f"Name the nearest: {near[0]}." if near else ""
    raise DataError(found, f"Expected one of {', '.join(names) or 'none'}.", hint)


def _missing(manifest: Manifest, entry: StageEntry, damage: str) -> DataError:
    if damage:
        found = f"The stage {entry.name} of run {manifest.run_id} is damaged: {damage}"
    else:
        stage = f"the stage {entry.name} ({entry.key[:12]}) of run {manifest.run_id}"
        found = f"The files of {stage} are not here any more."
    cure = f"Make them again: dreamgym reproduce {manifest.run_id} --keep"
    return DataError(found, "Expected them under .dreamgym/stages/.", cure)
