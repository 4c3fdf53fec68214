"""What a job would do today, stage by stage: what is reused, what runs, and which part of its key changed.

    dreamgym retrain --dry-run
    dreamgym resume --dry-run

A stage's key is compared with the result of that stage whose key differs in the fewest parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from components.config import Config
from components.errors import FidelityGateClosed
from components.tracking.stage_keys import CODE, CONFIG, INPUTS, PACKAGES, SEED, KeyChange, key_changes
from components.tracking.stages import EarlierResult, StageResult
from flows.workspace import Outcome, Workspace

PENDING = "pending:"
"""Begins the hash of an input that a stage will make which is not there yet; that stage's name follows."""
MOST_NAMES = 6
"""Modules and packages of one stage that the table names; of more, the rest is counted. JSON has all."""


@dataclass(frozen=True)
class Planned:
    """One stage and what becomes of it: `reused`, `goes on`, `made`, `made again`, `open` or `stops`.

    `note`: why. `compared`: the earlier result that is reused or nearest; `seconds`: how long it took.
    `changes`: how the key differs from that result's. `has_parts`: whether that result has its key's parts.
    """

    name: str
    fate: str
    note: str = ""
    seconds: float | None = None
    compared: str = ""
    has_parts: bool = True
    changes: Sequence[KeyChange] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them."""
        changes = [asdict(change) for change in self.changes]
        values = {"stage": self.name, "fate": self.fate, "note": self.note, "why": why(self)}
        return values | {"seconds": self.seconds, "compared": self.compared, "changes": changes}


Ask = Callable[[Workspace], StageResult]
"""What asks a run for one of its stages."""


class StageMissing(Exception):
    """A stage that is not there: what follows depends on what it will give."""


class _PendingHashes(dict[str, str]):
    """The output hashes of a stage that is not there yet."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage

    def __missing__(self, output: str) -> str:
        return f"{PENDING}{self._stage}"


class Plan(Workspace):
    """A run that only asks the store what it has."""

    def __init__(self, config: Config, root: Path) -> None:
        super().__init__(config, root)
        self.steps: list[Planned] = []

    def stage(
        self,
        name: str,
        work: Callable[[Path], Outcome],
        *,
        inputs: Mapping[str, str],
        config: Mapping[str, Any],
        code: Sequence[str],
    ) -> StageResult:
        """The finished result.

        Raises:
            StageMissing: there is none; `results` then has a stand-in whose outputs are pending.
        """
        key = self.key(name, inputs, config, code)
        pending = [value.removeprefix(PENDING) for value in inputs.values() if value.startswith(PENDING)]
        result, damage = (None, "") if pending else self.store.look_up(name, key)
        if result is not None:
            note = f"made in {result.seconds:.0f} s"
            self.steps.append(Planned(name, "reused", note, result.seconds, result.directory.name))
            self.results[name] = result
            return result
        self.steps.append(self._missing(name, key, pending, damage))
        self.results[name] = StageResult(name, key, self.store.root, {}, {}, _PendingHashes(name), 0.0)
        raise StageMissing(name)

    def _missing(self, name: str, key: str, pending: Sequence[str], damage: str) -> Planned:
        nearest, changes = self._nearest(name, key)
        step = Planned(name, "made", has_parts=nearest is None or bool(nearest.parts), changes=changes)
        if nearest is not None:
            step = replace(step, seconds=nearest.seconds, compared=nearest.directory.name)
        if pending:
            makers = ", ".join(dict.fromkeys(pending))
            return replace(step, fate="open", note=f"depends on what comes before: {makers}")
        left = self.store.begun(name, key)
        saved = [entry for entry in left if entry.endswith(".pt")]
        fate = "made again" if damage else "goes on" if left else "made"
        return replace(step, fate=fate, note=damage or (f"from {', '.join(saved)}" if saved else ""))

    def _nearest(self, name: str, key: str) -> tuple[EarlierResult | None, list[KeyChange]]:
        """The earlier result that differs in the fewest parts; one without parts where there is no other."""
        earlier = [result for result in self.store.earlier(name) if result.key != key]
        compared = [
            (result, key_changes(result.parts, self.parts[name])) for result in earlier if result.parts
        ]
        if compared:
            return min(compared, key=lambda pair: len(pair[1]))
        return (earlier[0] if earlier else None), []


def plan(config: Config, root: Path, stages: Mapping[str, Ask]) -> list[Planned]:
    """What would become of each of `stages` with this config, today."""
    run = Plan(config, root.resolve())
    for name, ask in stages.items():
        try:
            ask(run)
        except StageMissing:
            continue
        except FidelityGateClosed as closed:
            run.steps.append(Planned(name, "stops", closed.found))
            return run.steps
    return run.steps


def seconds_to_run(steps: Sequence[Planned]) -> float | None:
    """How long what is not reused took last time; None where one of them was never made."""
    run = [step.seconds for step in steps if step.fate not in ("reused", "stops")]
    return None if any(seconds is None for seconds in run) else sum(seconds or 0.0 for seconds in run)


def why(step: Planned) -> str:
    """The reason in words, on one line."""
    return "; ".join(reasons(step))


def reasons(step: Planned) -> list[str]:
    """The note; the earlier result that the key is compared with; each kind of change."""
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
    """Config keys and the seed with both values; inputs, modules of code and packages by name."""
    told = [_value_change(change) for change in changes if change.part in (CONFIG, SEED)]
    inputs = [_input_change(change) for change in changes if change.part == INPUTS]
    modules = [change.name for change in changes if change.part == CODE]
    pins = [
        f"{change.name} {change.before or 'none'} -> {change.now or 'none'}"
        for change in changes
        if change.part == PACKAGES
    ]
    for label, names in (("input", inputs), ("code", modules), ("packages", pins)):
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            told.append(f"{label} {', '.join(names[:MOST_NAMES])}{more}")
    return told


def _value_change(change: KeyChange) -> str:
    label = change.name if change.part == SEED else f"config {change.name}"
    return f"{label} {_text(change.before)} -> {_text(change.now)}"


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _input_change(change: KeyChange) -> str:
    if str(change.now or "").startswith(PENDING):
        return f"{change.name} (from {change.now.removeprefix(PENDING)})"
    return f"{change.name} {_short(change.before)} -> {_short(change.now)}"


def _short(value: Any) -> str:
    return "none" if value is None else str(value)[:12]
