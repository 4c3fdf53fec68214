"""Artifact locations of a local MLflow store that was moved or copied together with its clone.

MLflow writes absolute locations into its database: of experiments, runs, models and versions.
`follow_artifacts` compares them with where the database lies now, and rewrites those whose files lie there.
So a copy never writes into the original.
"""

from __future__ import annotations

import logging
import sqlite3
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

ARTIFACTS = "artifacts"
"""The folder beside a database of SQLite in which its artifacts lie."""
_COLUMNS = (
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Tables and their columns that hold a location below that of an experiment."""
_LOCK_SECONDS = 30.0
_LOG = logging.getLogger(__name__)


def follow_artifacts(database: Path, root: Path) -> int:
    """Rewrite the locations of artifacts that lie beside `database`, or under `root`, and not where the
    database says; how many.

    An artifact that still lies where the database says, and not here, stays there.
    """
    places = list(
        dict.fromkeys([database.absolute().parent / ARTIFACTS, root.absolute() / "mlflow" / ARTIFACTS])
    )
    with closing(sqlite3.connect(database, timeout=_LOCK_SECONDS)) as connection, connection:
        if not _has_column(connection, "experiments", "artifact_location"):
            return 0
        known = {place.as_uri() for place in places}
        recorded = [
            location
            for (location,) in connection.execute("SELECT DISTINCT artifact_location FROM experiments")
        ]
        moved = [
            location
            for location in recorded
            if location not in known and local_path(location).name == ARTIFACTS
        ]
        changed = sum(_follow(connection, location, database.name, places) for location in moved)
    if changed:
        _LOG.warning(
            "The MLflow store %s was moved or copied: %d artifact locations follow it.", database, changed
        )
    return changed


def local_path(location: str | None) -> Path:
    """The path that a `file:` URI or a plain path means; an empty path for a location elsewhere."""
    parts = urllib.parse.urlsplit(location or "")
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return Path(location) if location and location.startswith("/") else Path()


def _follow(connection: sqlite3.Connection, old: str, database: str, places: Sequence[Path]) -> int:
    """Rewrite the locations below `old`; how many. An experiment's own location changes where `old` is this
    store's former place.
    """
    rows = list(_rows_below(connection, old))
    here = next((place for place in places if any(_at(place, old, row[2]).exists() for row in rows)), None)
    folder = local_path(old)
    is_copy = (folder.parent / database).is_file()
    is_gone = folder.parent.name == "mlflow" and not folder.parents[1].exists()
    if not (here or is_copy or is_gone):
        return 0
    place, changed = here or places[0], 0
    for table, column, location, number in rows:
        if _at(place, old, location).exists() or not local_path(location).exists():
            moved = place.as_uri() + location[len(old) :]
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (moved, number))  # noqa: S608
            changed += 1
    updated = connection.execute(
        "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?", (place.as_uri(), old)
    )
    return changed + updated.rowcount


def _rows_below(connection: sqlite3.Connection, old: str) -> Iterator[tuple[str, str, str, int]]:
    """(table, column, location, row number) of each location below `old`."""
    for table, column in _COLUMNS:
        if _has_column(connection, table, column):
            query = f"SELECT {column}, rowid FROM {table} WHERE substr({column}, 1, ?) = ?"  # noqa: S608
            for location, number in connection.execute(query, (len(old) + 1, f"{old}/")).fetchall():
                yield table, column, location, number


def _at(place: Path, old: str, location: str) -> Path:
    """Where the file of `location`, which is below `old`, lies if its store is at `place`."""
    return local_path(place.as_uri() + location[len(old) :])


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """False in a database that an earlier MLflow made without it, or that is no database of MLflow."""
    return any(name == column for _, name, *_ in connection.execute(f"PRAGMA table_info({table})"))
