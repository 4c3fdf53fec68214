"""Plans a job without running it: which stages are reused, which run, and which part of a key changed.

    dreamgym retrain --dry-run
    dreamgym resume --dry-run

The keys are computed from the stages' declarations (`stage.py`). A key without a result is compared with the
earlier result of that stage whose key differs in the fewest parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from components.config import Config
from components.errors import FidelityGateClosed
from components.tracking.stage_store.stage_keys import (
    CODE,
    CONFIG,
    INPUTS,
    PACKAGES,
    SEED,
    KeyChange,
    key_changes,
    key_of,
)
from components.tracking.stage_store.stage_result import EarlierResult, StageResult
from components.tracking.stage_store.stage_store import StageStore
from flows.run.pipeline_run import Run
from flows.run.stage import Stage

REUSED = "reused"
PENDING = "pending:"
"""Prefix of the hash of an input whose stage has not run yet; that stage's name follows."""
MAX_LISTED_NAMES = 6
"""Most modules and packages of one stage that the table names; the rest is counted. The JSON has all."""


@dataclass(frozen=True)
class StagePlan:
    """One stage and what would happen to it.

    Args:
        name: of the stage.
        fate: `reused`; `goes on` from a checkpoint; `made` for the first time; `made again` because the
            stored result is damaged; `open`, which depends on earlier stages; or `stops`, a closed gate.
        note: why.
        seconds: how long the compared result took.
        compared: the earlier result that is reused or nearest.
        has_parts: whether that result stores the parts of its key.
        changes: how the key differs from that result's.
        key: of the stage; empty for a gate that stops the job.
    """

    name: str
    fate: str
    note: str = ""
    seconds: float | None = None
    compared: str = ""
    has_parts: bool = True
    changes: Sequence[KeyChange] = field(default_factory=list)
    key: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan of this stage as JSON values."""
        changes = [asdict(change) for change in self.changes]
        values = {"stage": self.name, "fate": self.fate, "note": self.note, "why": why(self)}
        return values | {"seconds": self.seconds, "compared": self.compared, "changes": changes}


Declare = Callable[[Run], Stage]
Gate = Callable[[Run, StageResult], None]


@dataclass(frozen=True)
class PlannedStage:
    """A step of a job: the declaration of its stage, and a gate that may stop the job after it.

    Args:
        declare: returns the stage, given a run with the results of the steps before.
        gate: raises FidelityGateClosed if the job must stop here.
        condition: False if the run does not reach this step with the results of the steps before.
    """

    declare: Declare
    gate: Gate | None = None
    condition: Callable[[Run], bool] | None = None


class _PendingHashes(dict[str, str]):
    """Output hashes of a stage that has not run yet."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage

    def __missing__(self, output: str) -> str:
        return f"{PENDING}{self._stage}"


def plan(config: Config, root: Path, steps: Mapping[str, PlannedStage]) -> list[StagePlan]:
    """Return what would happen to each step with this config. Nothing runs and nothing is written."""
    run = Run(config, root.resolve())
    planned: list[StagePlan] = []
    for name, step in steps.items():
        if step.condition is not None and not step.condition(run):
            continue
        stage_plan = _plan_stage(run, step.declare(run))
        planned.append(stage_plan)
        try:
            if step.gate is not None and stage_plan.fate == REUSED:
                step.gate(run, run.results[stage_plan.name])
        except FidelityGateClosed as closed:
            planned.append(StagePlan(name, "stops", closed.found))
            break
    return planned


def _plan_stage(run: Run, stage: Stage) -> StagePlan:
    """Return what would happen to one stage; put its result, or a placeholder, into `run.results`."""
    parts = run.stage_key_parts(stage)
    key = key_of(stage.name, parts)
    pending = [value.removeprefix(PENDING) for value in parts[INPUTS].values() if value.startswith(PENDING)]
    result = None
    damage = ""
    if not pending:
        result, damage = run.store.look_up(stage.name, key)
    if result is not None:
        run.results[stage.name] = result
        note = f"made in {result.seconds:.0f} s"
        return StagePlan(stage.name, REUSED, note, result.seconds, result.directory.name, key=key)
    run.results[stage.name] = StageResult(
        stage.name, key, run.store.root, {}, _PendingPaths(), _PendingHashes(stage.name), 0.0
    )
    return _plan_missing(run.store, stage.name, key, parts, pending, damage)


class _PendingPaths(dict[str, Path]):
    """Output paths of a stage that has not run yet; none of them is read."""

    def __missing__(self, output: str) -> Path:
        return Path()


def _plan_missing(
    store: StageStore, name: str, key: str, parts: Mapping[str, Any], pending: Sequence[str], damage: str
) -> StagePlan:
    """Return the plan of a stage that has no usable result.

    Args:
        pending: earlier stages that it depends on and that have not run yet.
        damage: what is wrong with its stored result; empty: there is none.
    """
    nearest, changes = _nearest_result(store, name, key, parts)
    has_parts = nearest is None or bool(nearest.parts)
    step = StagePlan(name, "made", has_parts=has_parts, changes=changes, key=key)
    if nearest is not None:
        step = replace(step, seconds=nearest.seconds, compared=nearest.directory.name)
    if pending:
        earlier_stages = ", ".join(dict.fromkeys(pending))
        return replace(step, fate="open", note=f"depends on what comes before: {earlier_stages}")
    partial_files = store.unfinished_files(name, key)
    checkpoints = [file for file in partial_files if file.endswith(".pt")]
    fate = "made again" if damage else "goes on" if partial_files else "made"
    return replace(step, fate=fate, note=damage or (f"from {', '.join(checkpoints)}" if checkpoints else ""))


def _nearest_result(
    store: StageStore, name: str, key: str, parts: Mapping[str, Any]
) -> tuple[EarlierResult | None, list[KeyChange]]:
    """Return the earlier result whose key differs in the fewest parts, and these differences.

    A result that does not store its key's parts is returned only if there is no other.
    """
    earlier_results = [result for result in store.earlier_results(name) if result.key != key]
    compared = [(result, key_changes(result.parts, parts)) for result in earlier_results if result.parts]
    if compared:
        return min(compared, key=lambda pair: len(pair[1]))
    return (earlier_results[0] if earlier_results else None), []


def seconds_to_run(steps: Sequence[StagePlan]) -> float | None:
    """Return how long the stages that would run took last time; None if one of them never ran."""
    times = [step.seconds for step in steps if step.fate not in ("reused", "stops")]
    return None if any(seconds is None for seconds in times) else sum(seconds or 0.0 for seconds in times)


def why(step: StagePlan) -> str:
    """Return the reasons on one line."""
    return "; ".join(reasons(step))


def reasons(step: StagePlan) -> list[str]:
    """Return the note, the earlier result that the key is compared with, and each kind of change."""
    notes = [step.note] if step.note else []
    if step.fate in ("reused", "stops"):
        return notes
    if not step.compared:
        return [*notes, "there is no earlier result"]
    if not step.has_parts:
        return [
            *notes,
            f"the key differs from that of {step.compared}, which does not say what its key was made of",
        ]
    return [*notes, f"against {step.compared}:", *describe_changes(step.changes)]


def describe_changes(changes: Sequence[KeyChange]) -> list[str]:
    """Return the changes as text: config keys and the seed with both values, the rest by name."""
    texts = [_value_change(change) for change in changes if change.part in (CONFIG, SEED)]
    inputs = [_input_change(change) for change in changes if change.part == INPUTS]
    modules = [change.name for change in changes if change.part == CODE]
    pins = [
        f"{change.name} {change.before or 'none'} -> {change.now or 'none'}"
        for change in changes
        if change.part == PACKAGES
    ]
    for label, names in (("input", inputs), ("code", modules), ("packages", pins)):
        if names:
            more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
            texts.append(f"{label} {', '.join(names[:MAX_LISTED_NAMES])}{more}")
    return texts


def _value_change(change: KeyChange) -> str:
    label = change.name if change.part == SEED else f"config {change.name}"
    return f"{label} {_value_text(change.before)} -> {_value_text(change.now)}"


def _value_text(value: Any) -> str:
    return "none" if value is None else str(value)


def _input_change(change: KeyChange) -> str:
    if str(change.now or "").startswith(PENDING):
        return f"{change.name} (from {change.now.removeprefix(PENDING)})"
    return f"{change.name} {_short_text(change.before)} -> {_short_text(change.now)}"


def _short_text(value: Any) -> str:
    return "none" if value is None else str(value)[:12]
