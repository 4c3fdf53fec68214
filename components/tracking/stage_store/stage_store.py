"""Content-addressed store of finished stages. A finished stage is reused, and a damaged result is never used.

A stage's key is the hash of the content of its inputs, its slice of the config, the code that it depends on,
the package pins and the seed (`flows.run` collects them). Its files are in `<root>/<name>-<first 12
characters of the key>/`. The record `stage.json` there has the hash of every output.

While a stage runs, its files are in `<...>.partial/`. That directory remains after a crash, so that the stage
resumes from its own checkpoints. `commit` renames it.

If two processes compute the same key, the second one gets a work directory of its own. Its `commit` returns
the result of the process that was first. Within one process a second `begin` (a retry) gets the same work
directory, so threads must not share a key.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.errors import DataError, TrackingError
from components.files import cannot_write, read_text, sync_directory, sync_tree, write_json
from components.tracking.runs import checked_metrics
from components.tracking.stage_store.hashes import tree_hash
from components.tracking.stage_store.stage_keys import key_of, key_parts
from components.tracking.stage_store.stage_result import (
    RECORD,
    EarlierResult,
    StageResult,
    output_path,
    read_verified_result,
    result_from_record,
)
from components.tracking.stage_store.work_directory import release, work_directory

_LOG = logging.getLogger(__name__)


class StageStore:
    """Results of stages below `root`, by name and key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def key(
        self, name: str, inputs: Mapping[str, str], config: Mapping[str, Any], code: Sequence[str]
    ) -> str:
        """sha256 (hex) of a stage's name, input hashes, config (JSON values) and the source of `code`.

        Raises:
            TrackingError: `code` names a module that does not exist.
            TypeError, ValueError: `config` holds something that is not JSON, or a NaN.
        """
        return key_of(name, key_parts(inputs, config, code))

    def find(self, name: str, key: str) -> StageResult | None:
        """The stage's result with `reused` set, or None if it does not exist or is damaged.

        A warning in the log says how it is damaged.
        """
        result, damage = self.look_up(name, key)
        if result is None and damage:
            _LOG.warning("%s", damage)
        return result

    def look_up(self, name: str, key: str) -> tuple[StageResult | None, str]:
        """A reusable result, or the reason why it must be computed again.

        Returns:
            (result, "") if it can be reused, (None, "") if it does not exist, (None, damage) if it is
            damaged.
        """
        directory = self._directory(name, key)
        if not directory.exists():
            return None, ""
        try:
            return read_verified_result(directory, name, key), ""
        except (DataError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return (
                None,
                f"The stored result of {name} in {directory} is damaged and will be made again: {error}",
            )

    def earlier_results(self, name: str) -> list[EarlierResult]:
        """All finished results of a stage under any key, the newest first; unreadable ones are left out."""
        results = []
        for record in self.root.glob(f"{name}-*/{RECORD}"):
            try:
                values = json.loads(read_text(record))
                if values["name"] == name and record.parent == self._directory(name, values["key"]):
                    results.append(
                        EarlierResult(
                            directory=record.parent,
                            key=values["key"],
                            seconds=float(values["seconds"]),
                            parts=values.get("key_parts") or {},
                            finished_at=record.stat().st_mtime,
                        )
                    )
            except (DataError, TrackingError, OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        return sorted(results, key=lambda result: result.finished_at, reverse=True)

    def unfinished_files(self, name: str, key: str) -> list[str]:
        """Names of the files that an unfinished attempt left in the work directory."""
        work = self._work(name, key)
        if not work.is_dir():
            return []
        return sorted(entry.name for entry in work.iterdir() if not entry.name.startswith("."))

    def begin(self, name: str, key: str) -> Path:
        """Create the work directory and return it; it holds what a crashed attempt left.

        Raises:
            DataError: it cannot be created.
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
        """Make the work directory the stage's result, and return it.

        If another process has committed this key, its result is returned and the work directory removed.

        Args:
            outputs: label -> file or directory, relative to the work directory.
            parts: parts of the key (`stage_keys.py`), stored to explain later changes.

        Raises:
            DataError: an output is missing or outside the work directory, or the disk refuses.
            TrackingError: a metric has another form than `metrics.json`, or `begin` was not called.
        """
        work = self._work(name, key)
        final = self._directory(name, key)
        if not work.is_dir():
            raise TrackingError(
                f"The stage {name} has no work directory {work}.", "Expected one from StageStore.begin."
            )
        output_hashes = {
            label: tree_hash(output_path(work, label, place)) for label, place in outputs.items()
        }
        record = {
            "name": name,
            "key": key,
            "metrics": checked_metrics(metrics),
            "outputs": dict(outputs),
            "output_hashes": output_hashes,
            "seconds": seconds,
            "details": dict(details or {}),
            "key_parts": dict(parts or {}),
        }
        try:
            sync_tree(work)
            write_json(work / RECORD, record)
            other_result = self._rename_to_final(work, final, name, key)
        except OSError as error:
            raise cannot_write(final, error) from error
        release(self._lock_file(name, key))
        return other_result or result_from_record(final, record, reused=False)

    def _rename_to_final(self, work: Path, final: Path, name: str, key: str) -> StageResult | None:
        """Rename `work` to `final` and return None, or return the valid result that is already there.

        A damaged result there is renamed, not removed.
        """
        while True:
            existing, damage = self.look_up(name, key)
            if existing is not None:
                shutil.rmtree(work)
                return existing
            if damage:
                final.rename(_free_damaged_name(final))
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
                "Expected letters, digits, '_' and '-' in the name, and a sha256 as the key.",
            )
        return self.root / f"{name}-{key[:12]}"

    def _lock_file(self, name: str, key: str) -> Path:
        return self.root.absolute() / ".locks" / self._directory(name, key).name

    def _work(self, name: str, key: str) -> Path:
        return work_directory(self._directory(name, key), self._lock_file(name, key))


def _free_damaged_name(final: Path) -> Path:
    number = 1
    while (renamed := final.with_name(f"{final.name}.damaged-{number}")).exists():
        number += 1
    return renamed
