"""Where MLflow is: which URI, whether it answers at all, and where its artifacts go when there is no server
to take them.
"""

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
from components.tracking.mlflow_adapter.moved_store import ARTIFACTS, follow_artifacts, local_path

_PROBE_SECONDS = 10
_SQLITE = "sqlite:///"


def resolve_uri(config: TrackingConfig, root: Path) -> str:
    """`tracking.uri`, else $MLFLOW_TRACKING_URI, else the SQLite store `<root>/mlflow/mlflow.db`.

    Raises:
        TrackingError: the path of the local store holds a question mark, which begins the options of such a
            URI.
    """
    if given := config.uri or os.environ.get("MLFLOW_TRACKING_URI", ""):
        return given
    path = (root / "mlflow" / "mlflow.db").absolute()
    if "?" in str(path):
        found = f"The path of the MLflow store {path} holds a question mark."
        raise TrackingError(
            found, "Expected a path without one.", "Rename the directory, or set tracking.uri."
        )
    return f"{_SQLITE}{path}"


def artifact_location(uri: str, root: Path) -> str | None:
    """Where a new experiment's artifacts go.

    The folder `artifacts` beside a database of SQLite; `<root>/mlflow/artifacts` for another database; None
    for a server, which knows its own place.
    """
    if urllib.parse.urlsplit(uri).scheme in ("http", "https", "databricks"):
        return None
    folder = _file_of(uri).absolute().parent if uri.startswith(_SQLITE) else (root / "mlflow").absolute()
    return (folder / ARTIFACTS).as_uri()


def follow_move(uri: str, root: Path) -> None:
    """Let the artifact locations of a SQLite store follow it to where it lies now. Call it inside
    `opened_alone`.

    Raises:
        TrackingError: the store cannot be written.
    """
    if uri.startswith(_SQLITE):
        try:
            follow_artifacts(_file_of(uri), root)
        except sqlite3.Error as error:
            found = f"The MLflow store {_file_of(uri)} cannot be read or written: {error}."
            raise TrackingError(found, next_step=f"See that you own it: ls -l {_file_of(uri)}*") from None


def require_artifacts(uri: str, root: Path, location: str, experiment: str) -> None:
    """Make the folder of a database's artifacts, if it is that of this clone.

    Raises:
        TrackingError: artifacts go to a folder that does not exist on this machine, so that no model could be
            stored or read.
    """
    folder = local_path(location)
    if (
        urllib.parse.urlsplit(uri).scheme in ("http", "https", "databricks")
        or folder == Path()
        or folder.is_dir()
    ):
        return
    if location == artifact_location(uri, root):
        folder.mkdir(parents=True, exist_ok=True)
        return
    found = f"The artifacts of the MLflow experiment {experiment} go to {folder}, which does not exist."
    expected = "Expected the folder in which its models and reports lie."
    moved = f"ln -s {shlex.quote(str((root / 'mlflow' / ARTIFACTS).absolute()))} {shlex.quote(str(folder))}"
    cure = (
        f"If this clone was moved: mkdir -p {shlex.quote(str(folder.parent))} && {moved}. Else set "
        "another tracking.experiment."
    )
    raise TrackingError(found, expected, cure)


def require_reachable(uri: str) -> None:
    """Fail within seconds where MLflow itself would try for minutes.

    Raises:
        ServiceUnreachable: nothing answers there.
        TrackingError: the URI is of a kind that MLflow no longer takes, or the SQLite file is none.
    """
    scheme = urllib.parse.urlsplit(uri).scheme
    if scheme in ("http", "https"):
        _probe_server(uri)
    elif uri.startswith(_SQLITE):
        _probe_sqlite(_file_of(uri))
    elif scheme in ("", "file"):
        found = f"The tracking URI {uri!r} is a directory of files, which MLflow no longer takes."
        raise TrackingError(
            found,
            "Expected sqlite:///, postgresql:// or http://.",
            "Leave tracking.uri empty for the local SQLite store.",
        )


@contextmanager
def opened_alone(uri: str) -> Iterator[None]:
    """While this lasts no other process is inside it for the same SQLite file, which has MLflow's tables from
    the beginning.

    Two processes that make the tables at once would both fail; one that is killed among them would leave a
    store that nobody can open.
    """
    if not uri.startswith(_SQLITE):
        yield
        return
    file = _file_of(uri)
    with file.with_name(f"{file.name}-lock").open(
        "w"
    ) as lock:  # beside SQLite's own `-journal` and `-wal`; its end unlocks it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (file.is_file() and file.stat().st_size):
            _make_tables(file)
        yield


def _make_tables(file: Path) -> None:
    """MLflow's empty tables in a file beside, which is renamed once they are whole.

    MLflow's own experiment, `Default`, gets a location here in which a quotation mark is escaped. MLflow
    would take the working directory instead, and fail where its path holds both kinds of quotation marks.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    beside = file.with_name(f"{file.name}-new")
    for left in file.parent.glob(f"{beside.name}*"):
        left.unlink()
    store = SqlAlchemyStore(f"{_SQLITE}{beside}", (file.absolute().parent / ARTIFACTS).as_uri())
    store._dispose_engine()
    beside.replace(file)


def has_store(uri: str) -> bool:
    """False if `uri` is a local SQLite file that does not exist yet, so that nothing can be registered in
    it.
    """
    return not uri.startswith(_SQLITE) or _file_of(uri).is_file()


def without_password(uri: str) -> str:
    """The URI as it may be printed and recorded."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.password:
        return uri
    return parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}").geturl()


def _probe_server(uri: str) -> None:
    bare = urllib.parse.urlsplit(uri)
    address = bare._replace(
        netloc=bare.netloc.rpartition("@")[2], path=bare.path.rstrip("/") + "/health"
    ).geturl()
    try:
        urllib.request.urlopen(address, timeout=_PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code < 500:
            return  # someone answers; whether we are let in, the first real call tells
        raise _unreachable(uri, str(error)) from None
    except (OSError, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error))) from None


def _file_of(uri: str) -> Path:
    """The file of a SQLite URI, in which `%` and `#` mean themselves."""
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
        next_step = f"Restore it, or move it away and start a new one: mv {path} {path}.old"
        raise TrackingError(
            f"The MLflow store {path} cannot be opened: {error}.", "Expected a SQLite database.", next_step
        ) from None


def _unreachable(uri: str, why: str) -> ServiceUnreachable:
    next_step = (
        "Start it (see mlflow/README.md), or unset MLFLOW_TRACKING_URI and tracking.uri to use the "
        "local store."
    )
    return ServiceUnreachable(
        f"The MLflow server {without_password(uri)} does not answer: {why}.", next_step=next_step
    )
