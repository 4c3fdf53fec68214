"""Switches data/ and data.dvc to the version of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.errors import DataError
from components.files import read_text, write_text
from components.trajectories.dvc.pointer import (
    POINTER,
    Out,
    PartChange,
    changed_parts,
    read_pointer,
    write_pointer,
)
from components.trajectories.dvc.snapshots import drift, git_output, pull
from components.trajectories.dvc.versions import outs_of
from flows.jobs.reproduce import find_run_record


@dataclass(frozen=True)
class Adoption:
    """A run's version of data/, and the parts in which it differs from the version that data.dvc names."""

    run_id: str
    outs: tuple[Out, ...]
    changes: list[PartChange]


def plan_adoption(root: Path, run: str) -> Adoption:
    """Return what would change. The version's objects are fetched; data/ and data.dvc are not changed.

    Raises:
        DataError: there is no such run, it made no version, its data cannot be found, or data/ or data.dvc
            have unsaved changes.
    """
    run_id, outs = version_of_run(root, run)
    changes = changed_parts(read_pointer(root / POINTER), outs)
    if changes:
        _require_nothing_lost(root)
    return Adoption(run_id, outs, changes)


def version_of_run(root: Path, run: str) -> tuple[str, tuple[Out, ...]]:
    """Return the run's id and the parts of its version of data/; the version's objects are fetched.

    Raises:
        DataError: there is no such run, it made no version, or its data cannot be found.
    """
    _, manifest = find_run_record(root, run)
    parts = manifest.data.parts_out or ({"data": manifest.data.dvc_out} if manifest.data.dvc_out else {})
    if not parts:
        problem = f"Run {manifest.run_id} ({manifest.flow}, {manifest.status}) made no version of data/."
        raise DataError(
            problem,
            "Expected a run of `dreamgym retrain` that reached its snapshot (step 8).",
            "Name another run.",
        )
    return manifest.run_id, outs_of(root, parts)


def _require_nothing_lost(root: Path) -> None:
    if unsaved := drift(root).unsaved:
        problem = f"data/ holds files that are in no version: {', '.join(unsaved[:5])}."
        next_step = "Type `dreamgym data save` to keep them, or `dreamgym data pull --force` to drop them."
        raise DataError(problem, "They would be lost.", next_step)
    blob = git_output(root, "hash-object", POINTER)
    if not git_output(root, "log", "--all", "-1", "--format=%H", f"--find-object={blob}", "--", POINTER):
        next_step = (
            "Type `git commit data.dvc -m 'My data'` to keep it, or `git checkout data.dvc` to drop it."
        )
        raise DataError(
            "data.dvc names a version that is in no commit.", "Its name would be lost.", next_step
        )


def adopt(root: Path, plan: Adoption) -> None:
    """Switch data/ and data.dvc to the planned version; after a failure data.dvc is restored.

    Raises:
        DataError: as `pull`.
    """
    path = root / POINTER
    before = read_text(path)
    write_pointer(path, plan.outs)
    try:
        pull(root)
    except BaseException:
        write_text(path, before)
        raise
