"""Go on with a run that did not come to its end, of `retrain` or a study: first what is there and what will be made, then the making.

A run is never changed: going on is a new run with the same config, which reuses every finished stage and takes up the checkpoint of the one
that was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.config import Config, load_config
from components.errors import DataError, DreamGymError, FidelityGateClosed
from components.tracking.manifest import Manifest
from components.tracking.runs import find_run, list_runs
from components.tracking.stages import StageResult
from flows.retrain import STAGES
from flows.study_methods import METHODS
from flows.workspace import Outcome, Workspace


@dataclass(frozen=True)
class Planned:
    """One stage and what will become of it: `reused`, `goes on`, `made`, `made again`, `open` or `stops`; `note` says why."""

    name: str
    fate: str
    note: str = ""


Ask = Callable[[Workspace], StageResult]
"""What asks a run for one of its stages."""


class _Unmade(Exception):
    """A stage that is not there: what follows depends on what it will give."""


class _Plan(Workspace):
    """A run that only asks the store what it has."""

    def __init__(self, config: Config, root: Path) -> None:
        super().__init__(config, root)
        self.found: list[Planned] = []

    def stage(
        self, name: str, work: Callable[[Path], Outcome], *, inputs: Mapping[str, str], config: Mapping[str, Any], code: Sequence[str]
    ) -> StageResult:
        """The finished result.

        Raises:
            _Unmade: there is none.
        """
        key = self.key(name, inputs, config, code)
        result, damage = self.store.look_up(name, key)
        if result is not None:
            self.found.append(Planned(name, "reused", f"made in {result.seconds:.0f} s"))
            self.results[name] = result
            return result
        left = self.store.begun(name, key)
        saved = [name for name in left if name.endswith(".pt")]
        fate = "made again" if damage else "goes on" if left else "made"
        self.found.append(Planned(name, fate, damage or (f"from {', '.join(saved)}" if saved else "")))
        raise _Unmade


def plan(config: Config, root: Path, stages: Mapping[str, Ask] = STAGES) -> list[Planned]:
    """What would become of each of `stages` with this config, today."""
    run = _Plan(config, root.resolve())
    for name, ask in stages.items():
        try:
            ask(run)
        except _Unmade:
            break
        except FidelityGateClosed as closed:
            run.found.append(Planned(name, "stops", closed.found))
            return run.found
    seen = {step.name for step in run.found}
    return run.found + [Planned(name, "open", "depends on what comes before") for name in stages if name not in seen]


def unchanged_since(config: Config, root: Path) -> str:
    """The newest finished run of the same stages, with the same terms of promotion; empty if there is none, or a stage would be made."""
    run = _Plan(config, root.resolve())
    try:
        keys = {name: ask(run).key for name, ask in STAGES.items()}
    except (_Unmade, FidelityGateClosed):
        return ""
    for name in reversed(list_runs(root / "runs")):
        with suppress(DreamGymError):  # a run that was cut short has no manifest, or half of one
            earlier = Manifest.load(root / "runs" / name)
            same = {stage.name: stage.key for stage in earlier.stages} == keys
            if earlier.status == "finished" and same and earlier.config.get("promotion") == config.promotion.model_dump(mode="json"):
                return name
    return ""


def resumable(root: Path, run: str) -> tuple[Manifest, Config]:
    """The run and its config.

    Raises:
        DataError: there is no such run, it is of another job, or it has come to its end.
    """
    directory = find_run(root / "runs", run)
    manifest = Manifest.load(directory)
    if manifest.flow != "retrain" and not manifest.cell:
        found, wanted = f"Run {manifest.run_id} is of the job {manifest.flow}.", "Expected one of `dreamgym retrain` or `dreamgym study`."
        raise DataError(found, wanted, "Type the command that began it again: it goes on where it was.")
    if manifest.status == "finished":
        raise DataError(f"Run {manifest.run_id} has come to its end.", next_step=f"Compare it: dreamgym compare {manifest.run_id} latest")
    config = load_config(directory / "config.json")
    return manifest, config


def cell_of(manifest: Manifest, root: Path) -> tuple[Path, str]:
    """Where the cell of a study goes that the run was making, and its method.

    Raises:
        DataError: it lies elsewhere than in the clone, where a stranger's manifest could name any file; or there is no such method.
    """
    file = (root / manifest.cell).resolve()
    if not file.is_relative_to(root.resolve()):
        found = f"Run {manifest.run_id} made a cell that goes to {file}."
        raise DataError(found, f"Expected a place in {root}.", "Type the command of the study again: it goes on where it was.")
    method = file.stem.rpartition("-")[0]
    if method not in METHODS:
        raise DataError(f"Run {manifest.run_id} made a cell of {method!r}.", f"Expected one of {', '.join(METHODS)}.")
    return file.parent, method
