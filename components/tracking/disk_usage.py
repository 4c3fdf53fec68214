"""Disk usage of past results: what is stored, what is still needed, and removal of the rest.

    dreamgym gc
    dreamgym gc --delete --older-than 30

`survey` lists `runs/` and the reproducible files under `.dreamgym/`: results of stages, their unfinished and
damaged directories, embeddings, the stored index, downloaded champions, worktrees of `dreamgym reproduce`.
Versions of data in DVC's cache and remotes are only counted, because the commits of runs need them. MLflow's
files are not touched.

Nothing is removed that is needed by a run in progress, a run that can be resumed, a champion, a version that
`dreamgym rollback` may return to, a run's commit, or one of the newest runs.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from components.errors import DreamGymError
from components.tracking.manifest import Manifest
from components.tracking.process import is_dead
from components.tracking.runs import list_runs
from components.tracking.stage_store.loading import STAGES

KINDS = (
    "stages",
    "unfinished stages",
    "damaged stages",
    "runs",
    "embeddings",
    "stored index",
    "champion downloads",
    "reproduced runs",
)
"""Kinds of removable entries, in the order of the table."""
DATA = "versions of data"
SECONDS_PER_DAY = 86400.0
MAX_UNCHANGED_DAYS = 7.0
"""A run of another machine counts as in progress until its record has not changed for so long. A stage ends
after a day by default.
"""


@dataclass(frozen=True)
class StoredItem:
    """One file or directory: size, days since its last change, and why it is kept (empty: not needed)."""

    kind: str
    path: Path
    bytes: int
    age_days: float
    reason_kept: str = ""


@dataclass(frozen=True)
class Champions:
    """Run ids and stage keys of the registry's versions that are or were champion.

    `download` is the name of the current champion's directory under .dreamgym/champion/.
    """

    runs: frozenset[str] = frozenset()
    stage_keys: frozenset[str] = frozenset()
    download: str = ""


def runs_in_progress(root: Path) -> list[str]:
    """Ids of runs in the clone and in its reproduced worktrees whose process may still be alive."""
    folders = [root / "runs", *(root / ".dreamgym" / "reproduced").glob("*/runs")]
    return [
        name
        for folder in folders
        for name, manifest in _manifests(folder).items()
        if _is_in_progress(manifest, folder / name)
    ]


def survey(root: Path, champions: Champions, *, older_than_days: float, keep: int) -> list[StoredItem]:
    """All entries, each with the reason why it is kept.

    Args:
        older_than_days: entries that changed later are kept.
        keep: how many of the newest runs keep their stages.
    """
    manifests = _manifests(root / "runs")
    needed_stages = _needed_stages(manifests, champions, keep)
    items = [
        *_stage_items(root, needed_stages, _newest_is_unfinished(manifests)),
        *_run_items(root, manifests, champions, keep),
        *_other_items(root, champions),
    ]
    running = runs_in_progress(root)
    age_reason = f"changed less than {older_than_days:g} days ago"
    result = []
    for item in items:
        reason = item.reason_kept
        if not reason and running:
            reason = f"a run is in progress: {running[0]}"
        if not reason and item.age_days < older_than_days and item.kind != "damaged stages":
            reason = age_reason
        result.append(replace(item, reason_kept=reason))
    return sorted(
        [*result, *_data_items(root)], key=lambda item: ([*KINDS, DATA].index(item.kind), str(item.path))
    )


def remove(root: Path, items: Sequence[StoredItem]) -> tuple[list[StoredItem], int]:
    """Remove the entries that are not needed.

    It stops if a run starts in the meantime. A directory is renamed first, so that no run sees half of it.

    Returns:
        (removed entries, their size in bytes)
    """
    removed: list[StoredItem] = []
    trash = root / ".dreamgym" / f"removed-{os.getpid()}"
    for item in items:
        if item.reason_kept or runs_in_progress(root):
            continue
        trash.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            item.path.rename(trash / f"{len(removed)}-{item.path.name}")
            removed.append(item)
    shutil.rmtree(trash, ignore_errors=True)
    if any(item.kind == "reproduced runs" for item in removed):
        subprocess.run(["git", "-C", str(root), "worktree", "prune"], capture_output=True, check=False)
    return removed, sum(item.bytes for item in removed)


def _manifests(runs: Path) -> dict[str, Manifest]:
    """Run id -> manifest, the oldest first. Runs without a readable manifest are left out."""
    manifests = {}
    for name in list_runs(runs):
        with suppress(DreamGymError):
            manifests[name] = Manifest.load(runs / name)
    return manifests


def _is_in_progress(manifest: Manifest, directory: Path) -> bool:
    process = manifest.process
    if manifest.status != "running" or process is None or is_dead(process):
        return False
    return process.host == platform.node() or _measured_item("runs", directory).age_days < MAX_UNCHANGED_DAYS


def _newest_is_unfinished(manifests: Mapping[str, Manifest]) -> bool:
    return bool(manifests) and list(manifests.values())[-1].status != "finished"


def _was_promoted(manifest: Manifest) -> bool:
    return any(model.alias == "champion" for model in manifest.models)


def _needed_stages(manifests: Mapping[str, Manifest], champions: Champions, keep: int) -> dict[str, str]:
    """Name of a stage's directory, or the beginning of its key -> why it is needed."""
    newest = list(manifests)[-keep:] if keep else []
    continued = _continued_runs(manifests, champions, newest)
    needed: dict[str, str] = {}
    for name, manifest in manifests.items():
        if _was_promoted(manifest) or name in champions.runs:
            reason = f"champion of run {name}"
        elif name in newest:
            reason = f"one of the {keep} newest runs: {name}"
        elif name in continued:
            reason = f"run {continued[name]} goes on from it"
        else:
            continue
        needed |= {f"{stage.name}-{stage.key[:12]}": reason for stage in manifest.stages}
    return needed | {key[:12]: "a version that was champion" for key in champions.stage_keys}


def _continued_runs(
    manifests: Mapping[str, Manifest], champions: Champions, newest: Sequence[str]
) -> dict[str, str]:
    """Run that `refine` or `next-round` went on from -> the champion or new run that did, over all rounds."""
    continued: dict[str, str] = {}
    for name, manifest in manifests.items():
        is_kept = name in newest or name in champions.runs or _was_promoted(manifest)
        earlier = manifest.continues if is_kept else ""
        while earlier in manifests and earlier not in continued:
            continued[earlier] = name
            earlier = manifests[earlier].continues
    return continued


def _stage_items(
    root: Path, needed_stages: Mapping[str, str], newest_is_unfinished: bool
) -> list[StoredItem]:
    items = []
    store = root / STAGES
    for path in sorted(store.iterdir()) if store.is_dir() else []:
        name = path.name
        if not path.is_dir() or name.startswith("."):
            continue
        if name.endswith(".partial"):
            reason = _reason_partial_is_kept(store, name, newest_is_unfinished)
            items.append(_measured_item("unfinished stages", path, reason))
        elif ".damaged-" in name:
            items.append(_measured_item("damaged stages", path))
        else:
            reason = needed_stages.get(name) or needed_stages.get(name.rpartition("-")[2], "")
            items.append(_measured_item("stages", path, reason))
    return items


def _reason_partial_is_kept(store: Path, name: str, newest_is_unfinished: bool) -> str:
    lock = store / ".locks" / name.partition(".")[0]
    if _is_locked(lock):
        return "another process works in it"
    return "`dreamgym resume` continues from it" if newest_is_unfinished else ""


def _is_locked(lock: Path) -> bool:
    with suppress(FileNotFoundError), lock.open("r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _run_items(
    root: Path, manifests: Mapping[str, Manifest], champions: Champions, keep: int
) -> list[StoredItem]:
    names = list_runs(root / "runs")
    newest = names[-max(keep, 1) :]
    continued = _continued_runs(manifests, champions, newest)
    items = []
    for name in names:
        manifest = manifests.get(name)
        if name in champions.runs or (manifest and _was_promoted(manifest)):
            reason = "made a champion"
        elif manifest and manifest.data.experiment_commit:
            reason = f"the record of commit {manifest.data.experiment_commit[:12]}"
        elif name in newest:
            reason = "one of the newest runs"
        elif name in continued:
            reason = f"run {continued[name]} goes on from it"
        else:
            reason = ""
        items.append(_measured_item("runs", root / "runs" / name, reason))
    return items


def _other_items(root: Path, champions: Champions) -> list[StoredItem]:
    folder = root / ".dreamgym"
    items = [_measured_item("embeddings", path) for path in sorted(folder.glob("embeddings*"))]
    items += [_measured_item("stored index", path) for path in sorted(folder.glob("index*"))]
    for path in sorted((folder / "champion").glob("*")):
        reason = "the champion" if path.name == champions.download else ""
        items.append(_measured_item("champion downloads", path, reason))
    worktrees = sorted((folder / "reproduced").glob("*"))
    return items + [_measured_item("reproduced runs", path) for path in worktrees]


def _data_items(root: Path) -> list[StoredItem]:
    folders = [root / ".dvc" / "cache", root / ".dreamgym" / "dvc-remote"]
    reason = "the commits of runs need them"
    return [_measured_item(DATA, folder, reason) for folder in folders if folder.is_dir()]


def _measured_item(kind: str, path: Path, reason_kept: str = "") -> StoredItem:
    size, last_change = _measure(path)
    age_days = max(0.0, (time.time() - last_change) / SECONDS_PER_DAY)
    return StoredItem(kind, path, size, age_days, reason_kept)


def _measure(path: Path) -> tuple[int, float]:
    """(bytes below a path, last change of its newest file in seconds since 1970). Links count as files."""
    size = 0
    last_change = path.lstat().st_mtime
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = Path(folder, name).lstat()
                size += status.st_size
                last_change = max(last_change, status.st_mtime)
    if path.is_file():
        size = path.lstat().st_size
    return size, last_change
