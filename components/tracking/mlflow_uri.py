"""Where MLflow is: which URI, whether it answers at all, and where its artifacts go when there is no server to take them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.config import TrackingConfig
from components.errors import ServiceUnreachable, TrackingError

_PROBE_SECONDS = 10
_SQLITE = "sqlite:///"


def resolve_uri(config: TrackingConfig, root: Path) -> str:
    """`tracking.uri`, else $MLFLOW_TRACKING_URI, else the SQLite store `<root>/mlflow/mlflow.db`."""
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI", "") or f"{_SQLITE}{(root / 'mlflow' / 'mlflow.db').absolute()}"


def artifact_location(uri: str, root: Path) -> str | None:
    """`<root>/mlflow/artifacts` for a bare database; None for a server, which knows its own place."""
    if urllib.parse.urlsplit(uri).scheme in ("http", "https", "databricks"):
        return None
    return (root / "mlflow" / "artifacts").absolute().as_uri()


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
        raise TrackingError(found, "Expected sqlite:///, postgresql:// or http://.", "Leave tracking.uri empty for the local SQLite store.")


@contextmanager
def opened_alone(uri: str) -> Iterator[None]:
    """While this lasts no other process is inside it for the same SQLite file, which has MLflow's tables from the beginning.

    Two processes that make the tables at once would both fail; one that is killed among them would leave a store that nobody can open.
    """
    if not uri.startswith(_SQLITE):
        yield
        return
    file = _file_of(uri)
    with file.with_name(f"{file.name}-lock").open("w") as lock:  # beside SQLite's own `-journal` and `-wal`; its end unlocks it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (file.is_file() and file.stat().st_size):
            _make_tables(file)
        yield


def _make_tables(file: Path) -> None:
    """MLflow's empty tables in a file beside, which is renamed once they are whole."""
    from mlflow.store.db import utils

    beside = file.with_name(f"{file.name}-new")
    for left in file.parent.glob(f"{beside.name}*"):
        left.unlink()
    engine = utils.create_sqlalchemy_engine(f"{_SQLITE}{beside}")
    utils._initialize_tables(engine)
    engine.dispose()
    beside.replace(file)


def without_password(uri: str) -> str:
    """The URI as it may be printed and recorded."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.password:
        return uri
    return parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}").geturl()


def _probe_server(uri: str) -> None:
    bare = urllib.parse.urlsplit(uri)
    address = bare._replace(netloc=bare.netloc.rpartition("@")[2], path=bare.path.rstrip("/") + "/health").geturl()
    try:
        urllib.request.urlopen(address, timeout=_PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code < 500:
            return  # someone answers; whether we are let in, the first real call tells
        raise _unreachable(uri, str(error)) from None
    except (OSError, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error))) from None


def _file_of(uri: str) -> Path:
    return Path(urllib.parse.urlsplit(uri).path.removeprefix("/"))


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
        raise TrackingError(f"The MLflow store {path} cannot be opened: {error}.", "Expected a SQLite database.", next_step) from None


def _unreachable(uri: str, why: str) -> ServiceUnreachable:
    next_step = "Start it (see mlflow/README.md), or unset MLFLOW_TRACKING_URI and tracking.uri to use the local store."
    return ServiceUnreachable(f"The MLflow server {without_password(uri)} does not answer: {why}.", next_step=next_step)
