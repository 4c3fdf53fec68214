"""The URI of the MLflow store: which one applies, whether it answers, and where its artifacts go."""

from __future__ import annotations

import fcntl
import os
import shlex
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from components.config import TrackingConfig
from components.errors import ServiceUnreachable, TrackingError
from components.tracking.mlflow_adapter.moved_store import ARTIFACTS, local_path, rewrite_artifact_locations

_PROBE_TIMEOUT_SECONDS = 10
_SQLITE = "sqlite:///"
_SERVER_SCHEMES = ("http", "https", "databricks")


def resolve_uri(config: TrackingConfig, root: Path) -> str:
    """`tracking.uri`, else $MLFLOW_TRACKING_URI, else the SQLite store `<root>/mlflow/mlflow.db`.

    Raises:
        TrackingError: the path of the local store contains a question mark, which starts the options of a
            SQLite URI.
    """
    if uri := config.uri or os.environ.get("MLFLOW_TRACKING_URI", ""):
        return uri
    path = (root / "mlflow" / "mlflow.db").absolute()
    if "?" in str(path):
        raise TrackingError(
            f"The path of the MLflow store {path} contains a question mark.",
            "Expected a path without one.",
            "Rename the directory, or set tracking.uri.",
        )
    return f"{_SQLITE}{path}"


def artifact_location(uri: str, root: Path) -> str | None:
    """URI of the folder for a new experiment's artifacts.

    It is the folder `artifacts` next to a SQLite database, and `<root>/mlflow/artifacts` for another
    database. It is None for a server, which chooses the folder itself.
    """
    if urllib.parse.urlsplit(uri).scheme in _SERVER_SCHEMES:
        return None
    folder = _sqlite_file(uri).absolute().parent if uri.startswith(_SQLITE) else (root / "mlflow").absolute()
    return (folder / ARTIFACTS).as_uri()


def update_moved_locations(uri: str, root: Path) -> None:
    """Rewrite the artifact locations of a SQLite store that was moved.

    Call it inside `exclusive_store_access`.

    Raises:
        TrackingError: the store is not readable and writable.
    """
    if uri.startswith(_SQLITE):
        file = _sqlite_file(uri)
        try:
            rewrite_artifact_locations(file, root)
        except sqlite3.Error as error:
            problem = f"The MLflow store {file} cannot be read or written: {error}."
            raise TrackingError(problem, next_step=f"Check that you own it: ls -l {file}*") from None


def require_artifacts(uri: str, root: Path, location: str, experiment: str) -> None:
    """Check that an experiment's artifact folder exists; create it if it belongs to this clone.

    Raises:
        TrackingError: the folder does not exist on this machine, so models could not be stored or read.
    """
    folder = local_path(location)
    is_remote = urllib.parse.urlsplit(uri).scheme in _SERVER_SCHEMES or folder == Path()
    if is_remote or folder.is_dir():
        return
    if location == artifact_location(uri, root):
        folder.mkdir(parents=True, exist_ok=True)
        return
    own_folder = shlex.quote(str((root / "mlflow" / ARTIFACTS).absolute()))
    link_command = (
        f"mkdir -p {shlex.quote(str(folder.parent))} && ln -s {own_folder} {shlex.quote(str(folder))}"
    )
    raise TrackingError(
        f"The artifacts of the MLflow experiment {experiment} go to {folder}, which does not exist.",
        "Expected the folder that holds its models and reports.",
        f"If this clone was moved: {link_command}. Else set another tracking.experiment.",
    )


def require_reachable(uri: str) -> None:
    """Check within seconds that the store answers. MLflow itself would retry for minutes.

    Raises:
        ServiceUnreachable: nothing answers there.
        TrackingError: MLflow does not support this kind of URI, or the SQLite file is not a database.
    """
    scheme = urllib.parse.urlsplit(uri).scheme
    if scheme in ("http", "https"):
        _probe_server(uri)
    elif uri.startswith(_SQLITE):
        _probe_sqlite(_sqlite_file(uri))
    elif scheme in ("", "file"):
        raise TrackingError(
            f"The tracking URI {uri!r} is a directory of files, which MLflow no longer supports.",
            "Expected sqlite:///, postgresql:// or http://.",
            "Leave tracking.uri empty for the local SQLite store.",
        )


@contextmanager
def exclusive_store_access(uri: str) -> Iterator[None]:
    """Keep other processes out of this context for the same SQLite file, and create MLflow's tables in it.

    Two processes that create the tables at once would both fail. A process that is killed while it creates
    them would leave a store that nobody can open.
    """
    if not uri.startswith(_SQLITE):
        yield
        return
    file = _sqlite_file(uri)
    lock_file = file.with_name(f"{file.name}-lock")  # SQLite itself uses `-journal` and `-wal`
    with lock_file.open("w") as lock:  # closing the file releases the lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (file.is_file() and file.stat().st_size):
            _make_tables(file)
        yield


def _make_tables(file: Path) -> None:
    """Create MLflow's empty tables in a temporary file, and rename it when they are complete.

    MLflow's own experiment, `Default`, gets a location here in which a quotation mark is escaped. MLflow
    would take the working directory instead, and fail if its path contains both kinds of quotation marks.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    temporary = file.with_name(f"{file.name}-new")
    for leftover in file.parent.glob(f"{temporary.name}*"):
        leftover.unlink()
    store = SqlAlchemyStore(f"{_SQLITE}{temporary}", (file.absolute().parent / ARTIFACTS).as_uri())
    store._dispose_engine()
    temporary.replace(file)


def has_store(uri: str) -> bool:
    """False if `uri` is a local SQLite file that does not exist yet, so nothing is registered in it."""
    return not uri.startswith(_SQLITE) or _sqlite_file(uri).is_file()


def without_password(uri: str) -> str:
    """The URI with its password replaced by ***, for messages and records."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.password:
        return uri
    return parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}").geturl()


def _probe_server(uri: str) -> None:
    parts = urllib.parse.urlsplit(uri)
    health_url = parts._replace(
        netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/health"
    ).geturl()
    try:
        urllib.request.urlopen(health_url, timeout=_PROBE_TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code < 500:
            return  # the server answers; the first real call shows whether it accepts the login
        raise _unreachable(uri, str(error)) from None
    except (OSError, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error))) from None


def _sqlite_file(uri: str) -> Path:
    """The file of a SQLite URI. SQLAlchemy reads it, so that `%` and `#` stand for themselves."""
    return Path(make_url(uri).database or "")


def _probe_sqlite(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise TrackingError(
            f"The MLflow store {path} cannot be opened: {error}.",
            "Expected a SQLite database.",
            f"Restore it, or move it away and start a new one: mv {path} {path}.old",
        ) from None


def _unreachable(uri: str, reason: str) -> ServiceUnreachable:
    return ServiceUnreachable(
        f"The MLflow server {without_password(uri)} does not answer: {reason}.",
        next_step="Start it (see mlflow/README.md), or unset MLFLOW_TRACKING_URI and tracking.uri to use the "
        "local store.",
    )
