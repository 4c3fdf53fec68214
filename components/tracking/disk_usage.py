"""What the results of past work hold on the disk, what is still needed, and the removal of the rest.

    dreamgym gc
    dreamgym gc --delete --older-than 30

`survey` lists `runs/` and what can be made again under `.dreamgym/`: results of stages, their unfinished and
damaged directories, embeddings, the stored index, downloaded champions, worktrees of `dreamgym reproduce`.
Versions of data, in DVC's cache and remotes, are only counted: the commits of runs need them.
MLflow's files are not touched.

Nothing is removed that one of these needs: a run in progress; a run that is to go on; a champion, or a
version that `dreamgym rollback` may return to; a run's commit; one of the newest runs.
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
"""What is looked at, in the order of the table."""
DATA = "versions of data"
SECONDS_A_DAY = 86400.0
SILENT_DAYS = 7.0
"""A run of another machine whose record has not changed for so long is not in progress. A stage ends after a
day by default.
"""


@dataclass(frozen=True)
class Stored:
    """One file or directory: kind, size, days since its last change, why it is kept (empty: not needed)."""

    kind: str
    path: Path
    bytes: int
    age_days: float
    kept: str = ""


@dataclass(frozen=True)
class Champions:
    """What the registry says of versions that are or were champion: their runs and stage keys.

    `download`: the name of the present champion's directory under .dreamgym/champion/.
    """

    runs: frozenset[str] = frozenset()
    stage_keys: frozenset[str] = frozenset()
    download: str = ""


def runs_in_progress(root: Path) -> list[str]:
    """Ids of the runs in the clone, and of those in its reproduced worktrees, whose process may live."""
    places = [root / "runs", *(root / ".dreamgym" / "reproduced").glob("*/runs")]
    return [
        name
        for place in places
        for name, manifest in _manifests(place).items()
        if _in_progress(manifest, place / name)
    ]


def survey(root: Path, champions: Champions, *, older_than_days: float, keep: int) -> list[Stored]:
    """All entries, each with the reason why it is kept.

    Args: keep: how many of the newest runs keep their stages.
    """
    manifests = _manifests(root / "runs")
    needed = _stages_needed(manifests, champions, keep)
    found = [
        *_stages(root, needed, _newest_is_unfinished(manifests)),
        *_runs(root, manifests, champions, keep),
    ]
    found += _others(root, champions)
    running = runs_in_progress(root)
    kept_by_age = f"changed less than {older_than_days:g} days ago"
    result = []
    for item in found:
        reason = item.kept
        if not reason and running:
            reason = f"a run is in progress: {running[0]}"
        if not reason and item.age_days < older_than_days and item.kind != "damaged stages":
            reason = kept_by_age
        result.append(replace(item, kept=reason))
    return sorted([*result, *_data(root)], key=lambda item: ([*KINDS, DATA].index(item.kind), str(item.path)))


def remove(root: Path, items: Sequence[Stored]) -> tuple[list[Stored], int]:
    """Remove the entries that nothing needs; those, and the bytes that they held.

    Stops where a run has begun meanwhile. A directory is renamed first, so that no run meets half of one.
    """
    removed: list[Stored] = []
    trash = root / ".dreamgym" / f"removed-{os.getpid()}"
    for item in items:
        if item.kept or runs_in_progress(root):
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
    """Run id -> manifest, the oldest first; a run that was cut short before it had one is left out."""
    found = {}
    for name in list_runs(runs):
        with suppress(DreamGymError):
            found[name] = Manifest.load(runs / name)
    return found


def _in_progress(manifest: Manifest, directory: Path) -> bool:
    process = manifest.process
    if manifest.status != "running" or process is None or is_dead(process):
        return False
    return process.host == platform.node() or _stored("runs", directory).age_days < SILENT_DAYS


def _newest_is_unfinished(manifests: Mapping[str, Manifest]) -> bool:
    return bool(manifests) and list(manifests.values())[-1].status != "finished"


def _was_promoted(manifest: Manifest) -> bool:
    return any(model.alias == "champion" for model in manifest.models)


def _stages_needed(manifests: Mapping[str, Manifest], champions: Champions, keep: int) -> dict[str, str]:
    """Directory of a stage's result -> why it is needed."""
    newest = list(manifests)[-keep:] if keep else []
    needed: dict[str, str] = {}
    for name, manifest in manifests.items():
        if _was_promoted(manifest) or name in champions.runs:
            reason = f"champion of run {name}"
        elif name in newest:
            reason = f"one of the {keep} newest runs: {name}"
        else:
            continue
        needed |= {f"{stage.name}-{stage.key[:12]}": reason for stage in manifest.stages}
    return needed | {key[:12]: "a version that was champion" for key in champions.stage_keys}


def _stages(root: Path, needed: Mapping[str, str], unfinished: bool) -> list[Stored]:
    found = []
    store = root / STAGES
    for place in sorted(store.iterdir()) if store.is_dir() else []:
        name = place.name
        if not place.is_dir() or name.startswith("."):
            continue
        if name.endswith(".partial"):
            reason = _why_partial_is_kept(store, name, unfinished)
            found.append(_stored("unfinished stages", place, reason))
        elif ".damaged-" in name:
            found.append(_stored("damaged stages", place))
        else:
            found.append(
                _stored("stages", place, needed.get(name) or needed.get(name.rpartition("-")[2], ""))
            )
    return found


def _why_partial_is_kept(store: Path, name: str, unfinished: bool) -> str:
    lock = store / ".locks" / name.partition(".")[0]
    if _is_locked(lock):
        return "another process works in it"
    return "`dreamgym resume` goes on from it" if unfinished else ""


def _is_locked(lock: Path) -> bool:
    with suppress(FileNotFoundError), lock.open("r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _runs(root: Path, manifests: Mapping[str, Manifest], champions: Champions, keep: int) -> list[Stored]:
    names = list_runs(root / "runs")
    newest = names[-max(keep, 1) :]
    found = []
    for name in names:
        manifest = manifests.get(name)
        if name in champions.runs or (manifest and _was_promoted(manifest)):
            reason = "made a champion"
        elif manifest and manifest.data.experiment_commit:
            reason = f"the record of commit {manifest.data.experiment_commit[:12]}"
        elif name in newest:
            reason = "one of the newest runs"
        else:
            reason = ""
        found.append(_stored("runs", root / "runs" / name, reason))
    return found


def _others(root: Path, champions: Champions) -> list[Stored]:
    own = root / ".dreamgym"
    found = [_stored("embeddings", place) for place in sorted(own.glob("embeddings*"))]
    found += [_stored("stored index", place) for place in sorted(own.glob("index*"))]
    for place in sorted((own / "champion").glob("*")):
        reason = "the champion" if place.name == champions.download else ""
        found.append(_stored("champion downloads", place, reason))
    return found + [_stored("reproduced runs", place) for place in sorted((own / "reproduced").glob("*"))]


def _data(root: Path) -> list[Stored]:
    places = [root / ".dvc" / "cache", root / ".dreamgym" / "dvc-remote"]
    return [_stored(DATA, place, "the commits of runs need them") for place in places if place.is_dir()]


def _stored(kind: str, path: Path, kept: str = "") -> Stored:
    size, newest = _measure(path)
    return Stored(kind, path, size, max(0.0, (time.time() - newest) / SECONDS_A_DAY), kept)


def _measure(path: Path) -> tuple[int, float]:
    """Bytes below a path, and when its newest file was changed, in seconds since 1970. Links count as
    files.
    """
    size, newest = 0, path.lstat().st_mtime
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                state = Path(folder, name).lstat()
                size, newest = size + state.st_size, max(newest, state.st_mtime)
    return (size or path.lstat().st_size, newest) if path.is_file() else (size, newest)
