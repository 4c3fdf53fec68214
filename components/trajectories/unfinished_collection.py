"""Finished episodes of a collection that is not complete yet, as Parquet files in a directory.

A collection that was interrupted goes on with them. Each batch is a file of its own, written in one step, so
an interruption loses the batch that is being played and no more.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.files import write_json
from components.records import Task, Trajectory
from components.trajectories.store import read_transitions, trajectories, write_transitions

SETTINGS_FILE = "settings.json"
Report = Callable[[str], None]


class UnfinishedCollection:
    """The finished episodes in a directory, to which more are added.

    Args:
        directory: of the files; it is made with the first ones.
        settings: all that the episodes depend on, as JSON values. Episodes that were played with others are
            discarded.
        tasks: that the episodes play.
        report: called with a sentence about what is kept or discarded.

    Attributes:
        finished: id of an episode -> the whole episode.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, Any], tasks: Sequence[Task], report: Report
    ) -> None:
        self.directory = directory
        self.finished: dict[str, Trajectory] = {}
        self._count = 0
        self._settings = json.loads(json.dumps(settings))
        if not list(directory.glob("*.parquet")):
            return
        changed = _changed_settings(directory / SETTINGS_FILE, self._settings)
        if changed:
            shutil.rmtree(directory)
            report(
                f"An interrupted collection was made with other settings ({', '.join(changed)}): "
                f"its episodes in {directory} are discarded."
            )
            return
        self._read(tasks, report)
        if self.finished:
            report(
                f"{len(self.finished)} episodes of an interrupted collection are kept. To play all again, "
                f"remove {directory}."
            )

    def add(self, episodes: Sequence[Trajectory]) -> None:
        """Keep whole episodes.

        Raises:
            DataError: they cannot be written.
        """
        if not episodes:
            return
        if not self.finished:
            write_json(self.directory / SETTINGS_FILE, self._settings)
        self._count += 1
        steps = [step for episode in episodes for step in episode.steps]
        write_transitions(self.directory / f"{self._count:06d}.parquet", steps)
        self.finished |= {episode.steps[0].episode_id: episode for episode in episodes}

    def _read(self, tasks: Sequence[Task], report: Report) -> None:
        """Read the files. A damaged one is removed, and its episodes are played again."""
        for path in sorted(self.directory.glob("*.parquet")):
            self._count = int(path.stem)
            try:
                episodes = trajectories(tasks, read_transitions(path))
            except DataError as error:
                path.unlink()
                report(f"Episodes of an interrupted collection are played again: {error.found}")
                continue
            self.finished |= {episode.steps[0].episode_id: episode for episode in episodes}


def _changed_settings(path: Path, settings: dict[str, Any]) -> list[str]:
    """Return the names of the settings that differ from those in `path`."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ["unknown ones"]
    return _differences(earlier, settings)


def _differences(first: Any, second: Any, name: str = "") -> list[str]:
    """Return the dotted names of the values that differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        return [
            difference
            for key in sorted(first.keys() | second.keys())
            for difference in _differences(first.get(key), second.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if first == second else [name]
