"""Rewrite artifact locations in a local MLflow store that was moved or copied together with its clone.

MLflow writes absolute locations of experiments, runs, models and versions into its database.
`rewrite_artifact_locations` compares them with the place of the database, and rewrites those whose files lie
there. So a copy never writes into the original.
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
"""Name of the folder next to a SQLite database that holds its artifacts."""
_LOCATION_COLUMNS = (
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""(table, column) of locations below that of an experiment."""
_LOCK_TIMEOUT_SECONDS = 30.0
_LOG = logging.getLogger(__name__)


def rewrite_artifact_locations(database: Path, root: Path) -> int:
    """Rewrite locations of artifacts that lie next to `database` or under `root`, and not where it says.

    An artifact that still lies where the database says, and not here, keeps its location.

    Returns:
        How many locations were rewritten.
    """
    local_folders = list(
        dict.fromkeys([database.absolute().parent / ARTIFACTS, root.absolute() / "mlflow" / ARTIFACTS])
    )
    with closing(sqlite3.connect(database, timeout=_LOCK_TIMEOUT_SECONDS)) as connection, connection:
        if not _has_column(connection, "experiments", "artifact_location"):
            return 0
        local_uris = {folder.as_uri() for folder in local_folders}
        query = "SELECT DISTINCT artifact_location FROM experiments"
        recorded = [location for (location,) in connection.execute(query)]
        foreign = [
            location
            for location in recorded
            if location not in local_uris and local_path(location).name == ARTIFACTS
        ]
        changed = sum(
            _rewrite_below(connection, location, database.name, local_folders) for location in foreign
        )
    if changed:
        _LOG.warning(
            "The MLflow store %s was moved or copied: rewrote %d artifact locations.", database, changed
        )
    return changed


def local_path(location: str | None) -> Path:
    """The path of a `file:` URI or of a plain absolute path; an empty path for any other location."""
    parts = urllib.parse.urlsplit(location or "")
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return Path(location) if location and location.startswith("/") else Path()


def _rewrite_below(
    connection: sqlite3.Connection, old: str, database_name: str, local_folders: Sequence[Path]
) -> int:
    """Rewrite the locations below `old`, and return how many.

    Locations of experiments change where `old` is the former place of this store.
    """
    rows = list(_rows_below(connection, old))
    folder_with_files = next(
        (folder for folder in local_folders if any(_path_in(folder, old, row[2]).exists() for row in rows)),
        None,
    )
    old_folder = local_path(old)
    is_copy = (old_folder.parent / database_name).is_file()
    is_gone = old_folder.parent.name == "mlflow" and not old_folder.parents[1].exists()
    if not (folder_with_files or is_copy or is_gone):
        return 0
    new_folder = folder_with_files or local_folders[0]
    changed = 0
    for table, column, location, row_number in rows:
        if _path_in(new_folder, old, location).exists() or not local_path(location).exists():
            statement = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
            connection.execute(statement, (new_folder.as_uri() + location[len(old) :], row_number))
            changed += 1
    updated = connection.execute(
        "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?", (new_folder.as_uri(), old)
    )
    return changed + updated.rowcount


def _rows_below(connection: sqlite3.Connection, old: str) -> Iterator[tuple[str, str, str, int]]:
    """(table, column, location, row number) of each location below `old`."""
    for table, column in _LOCATION_COLUMNS:
        if _has_column(connection, table, column):
            query = f"SELECT {column}, rowid FROM {table} WHERE substr({column}, 1, ?) = ?"  # noqa: S608
            for location, row_number in connection.execute(query, (len(old) + 1, f"{old}/")).fetchall():
                yield table, column, location, row_number


def _path_in(folder: Path, old: str, location: str) -> Path:
    """Path of the file of `location`, which is below `old`, if the store's artifacts are in `folder`."""
    return local_path(folder.as_uri() + location[len(old) :])


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """False if the database is not MLflow's, or if an earlier MLflow made it without the column."""
    return any(name == column for _, name, *_ in connection.execute(f"PRAGMA table_info({table})"))
