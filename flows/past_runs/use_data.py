"""Take over a run's version of data/: what would change, and the change."""

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
    """What would change. Its objects are fetched, data/ and data.dvc stay.

    Raises:
        DataError: there is no such run, it made no version, its data is nowhere, or data/ or data.dvc hold
            what would be lost.
    """
    run_id, outs = version_of_run(root, run)
    changes = changed_parts(read_pointer(root / POINTER), outs)
    if changes:
        _require_nothing_lost(root)
    return Adoption(run_id, outs, changes)


def version_of_run(root: Path, run: str) -> tuple[str, tuple[Out, ...]]:
    """The run's id and the parts of the version of data/ that it made; its objects are fetched.

    Raises:
        DataError: there is no such run, it made no version, or its data is nowhere.
    """
    _, manifest = find_run_record(root, run)
    parts = manifest.data.parts_out or ({"data": manifest.data.dvc_out} if manifest.data.dvc_out else {})
    if not parts:
        state = f"Run {manifest.run_id} ({manifest.flow}, {manifest.status}) made no version of data/."
        raise DataError(
            state,
            "Expected a run of `dreamgym retrain` that came as far as its snapshot.",
            "Name another run.",
        )
    return manifest.run_id, outs_of(root, parts)


def _require_nothing_lost(root: Path) -> None:
    if unsaved := drift(root).unsaved:
        found = f"data/ holds files that are in no version: {', '.join(unsaved[:5])}."
        keep = "Type `dreamgym data save` to keep them, or `dreamgym data pull --force` to drop them."
        raise DataError(found, "They would be lost.", keep)
    blob = git_output(root, "hash-object", POINTER)
    if not git_output(root, "log", "--all", "-1", "--format=%H", f"--find-object={blob}", "--", POINTER):
        keep = "Type `git commit data.dvc -m 'My data'` to keep it, or `git checkout data.dvc` to drop it."
        raise DataError("data.dvc names a version that is in no commit.", "It would be forgotten.", keep)


def adopt(root: Path, plan: Adoption) -> None:
    """Make it the version of data/; after a failure data.dvc is as it was. Raises DataError as `pull`."""
    path = root / POINTER
    before = read_text(path)
    write_pointer(path, plan.outs)
    try:
        pull(root)
    except BaseException:
        write_text(path, before)
        raise
