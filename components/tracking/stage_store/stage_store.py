"""The content-addressed store of finished stages: what was computed once is not computed again, and a damaged
result never used.

A stage's key is the hash of its inputs' content, its slice of the config and the source of the code it
depends on. Its files lie in `<root>/<name>-<first 12 of the key>/`, with `stage.json` naming the hash of
every output. While a stage runs, they lie in `....partial/`, which outlives a crash, so that the stage
resumes from its own checkpoints; `commit` renames it.

Two processes with the same key: the second gets a work directory of its own, and its `commit` returns the
result of whichever came first. In one process a second `begin` (a retry) gets the same work directory, so
threads must not share a key.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import DataError, TrackingError
from components.files import cannot_write, read_text, sync_directory, sync_tree, write_json
from components.tracking.runs import Metrics, checked_metrics
from components.tracking.stage_store.hashes import code_hash, file_hash, tree_hash
from components.tracking.stage_store.stage_keys import key_of, key_parts

__all__ = ["StageResult", "StageStore", "code_hash", "file_hash", "tree_hash"]

RECORD = "stage.json"
_LOG = logging.getLogger(__name__)
_BEGUN: dict[tuple[int, Path], tuple[Path, int | None]] = {}
"""(process, lock file) -> (work directory, lock's descriptor, None if another process holds the lock).

Record locks vanish with their process and are not inherited by its workers; that is why the process is part
of the key.
"""


@dataclass(frozen=True)
class StageResult:
    """A finished stage. `seconds` is the wall time of the computation, of all its attempts, also when this
    run `reused` it.
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
    """A finished result of a stage as its record tells, unverified: what its key was made of, and how long it
    took.

    `parts` is empty in a record of a version that did not keep them. `made`: seconds since 1970.
    """

    directory: Path
    key: str
    seconds: float
    parts: dict[str, Any]
    made: float


class StageStore:
    """Results of stages below `root`, by name and key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def key(
        self, name: str, inputs: Mapping[str, str], config: Mapping[str, Any], code: Sequence[str]
    ) -> str:
        """sha256 (hex) of the stage's name, its inputs' content hashes, its config (JSON values) and the
        source of `code`.

        Raises:
            TrackingError: `code` names a module that does not exist.
            TypeError, ValueError: `config` holds something that is not JSON, or a NaN.
        """
        return key_of(name, key_parts(inputs, config, code))

    def find(self, name: str, key: str) -> StageResult | None:
        """The stage's result with `reused` set, or None if it was never made or is damaged (then a warning
        says how).
        """
        result, reason = self.look_up(name, key)
        if result is None and reason:
            _LOG.warning("%s", reason)
        return result

    def look_up(self, name: str, key: str) -> tuple[StageResult | None, str]:
        """(result, "") if it can be reused, (None, "") if it was never made, (None, what is damaged) if it
        must be made again.
        """
        directory = self._directory(name, key)
        if not directory.exists():
            return None, ""
        try:
            return _verified(directory, name, key), ""
        except (DataError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return (
                None,
                f"The stored result of {name} in {directory} is damaged and will be made again: {error}",
            )

    def earlier(self, name: str) -> list[EarlierResult]:
        """All finished results of a stage, whatever their keys, the newest first; what cannot be read is left
        out.
        """
        found = []
        for record in self.root.glob(f"{name}-*/{RECORD}"):
            try:
                values = json.loads(read_text(record))
                if values["name"] == name and record.parent == self._directory(name, values["key"]):
                    made = record.stat().st_mtime
                    parts = values.get("key_parts") or {}
                    found.append(
                        EarlierResult(record.parent, values["key"], float(values["seconds"]), parts, made)
                    )
            except (DataError, TrackingError, OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        return sorted(found, key=lambda result: result.made, reverse=True)

    def begun(self, name: str, key: str) -> list[str]:
        """Names of what an attempt that did not come to its end left in the work directory."""
        work = self._work(name, key)
        return (
            sorted(entry.name for entry in work.iterdir() if not entry.name.startswith("."))
            if work.is_dir()
            else []
        )

    def begin(self, name: str, key: str) -> Path:
        """The work directory, with whatever a crashed attempt left in it. Raises DataError if it cannot be
        made.
        """
        work = self._work(name, key)
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(work, error) from error
        return work

    def commit(
        self,
        name: str,
        key: str,
        *,
        metrics: Mapping[str, Mapping[str, float]],
        outputs: Mapping[str, str],
        seconds: float,
        details: Mapping[str, Any] | None = None,
        parts: Mapping[str, Any] | None = None,
    ) -> StageResult:
        """Make the work directory the stage's result; `outputs` are files or directories relative to it.

        `parts` are those of the key (`stage_keys.py`), kept so that later changes can be told.

        If another process has committed this key meanwhile, its result is returned (`reused`) and the work
        directory removed.

        Raises:
            DataError: an output is missing or lies elsewhere, or the disk refuses; the work directory then
                stays.
            TrackingError: a metric is not in the form {"value", "n", "low", "high"}, or `begin` was not
                called.
        """
        work, final = self._work(name, key), self._directory(name, key)
        if not work.is_dir():
            raise TrackingError(
                f"The stage {name} has no work directory {work}.", "Expected one from StageStore.begin."
            )
        record = {
            "name": name,
            "key": key,
            "metrics": checked_metrics(metrics),
            "outputs": dict(outputs),
            "output_hashes": {
                label: tree_hash(_inside(work, label, place)) for label, place in outputs.items()
            },
            "seconds": seconds,
            "details": dict(details or {}),
            "key_parts": dict(parts or {}),
        }
        try:
            sync_tree(work)
            write_json(work / RECORD, record)
            first = self._place(work, final, name, key)
        except OSError as error:
            raise cannot_write(final, error) from error
        self._release(name, key)
        return first or _result(final, record, reused=False)

    def _place(self, work: Path, final: Path, name: str, key: str) -> StageResult | None:
        """Rename `work` to `final`, or give the valid result that is there already; a damaged one is set
        aside, not removed.
        """
        while True:
            first, damage = self.look_up(name, key)
            if first is not None:
                shutil.rmtree(work)
                return first
            if damage:
                final.rename(_free_name(final))
            try:
                work.rename(final)
            except OSError:
                if final.exists():
                    continue
                raise
            sync_directory(final.parent)
            return None

    def _directory(self, name: str, key: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or not re.fullmatch(r"[0-9a-f]{64}", key):
            raise TrackingError(
                f"No stage can be called {name!r} with the key {key!r}.",
                "Expected letters, digits, '_', '-'; a sha256.",
            )
        return self.root / f"{name}-{key[:12]}"

    def _lock_file(self, name: str, key: str) -> Path:
        return self.root.absolute() / ".locks" / self._directory(name, key).name

    def _work(self, name: str, key: str) -> Path:
        """The directory of this process's last `begin`; else `.partial` if its lock is free, else one that
        carries the process's id.
        """
        final, lock = self._directory(name, key), self._lock_file(name, key)
        begun = _BEGUN.get((os.getpid(), lock))
        if begun is None:
            descriptor = _acquire(lock)
            own = "" if descriptor is not None else f".{os.getpid()}"
            begun = _BEGUN[os.getpid(), lock] = (final.with_name(f"{final.name}{own}.partial"), descriptor)
        return begun[0]

    def _release(self, name: str, key: str) -> None:
        _, descriptor = _BEGUN.pop((os.getpid(), self._lock_file(name, key)), (None, None))
        if descriptor is not None:
            os.close(descriptor)


def _verified(directory: Path, name: str, key: str) -> StageResult:
    record = json.loads(read_text(directory / RECORD))
    if (record["name"], record["key"]) != (name, key):
        raise DataError(f"{RECORD} is of {record['name']} with key {record['key'][:12]}.")
    for label, place in record["outputs"].items():
        found, expected = tree_hash(_inside(directory, label, place)), record["output_hashes"][label]
        if found != expected:
            raise DataError(f"{label} ({place}) has the hash {found[:12]}.", f"Expected {expected[:12]}.")
    return _result(directory, record, reused=True)


def _result(directory: Path, record: Mapping[str, Any], reused: bool) -> StageResult:
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


def _inside(directory: Path, label: str, place: str) -> Path:
    path = directory / place
    if not path.resolve().is_relative_to(directory.resolve()):
        raise DataError(f"The output {label} lies at {place}.", f"Expected a path relative to {directory}.")
    if not path.exists():
        raise DataError(f"The output {label} is missing: {path}.", "Expected a file or a directory.")
    return path


def _free_name(final: Path) -> Path:
    number = 1
    while (aside := final.with_name(f"{final.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _acquire(lock: Path) -> int | None:
    """The descriptor of `lock`, held until it is closed or the process ends; None if another living process
    holds it.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(lock, error) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
