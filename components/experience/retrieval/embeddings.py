"""Embeddings on the disk, by encoder and text: a slow encoder embeds a text once, whichever run asks for it.

A SQLite file that several processes may use at once. Nothing depends on it but the time a run takes: a
damaged file is set aside and begun anew, and one that cannot be read or written is done without. Both are
said in the log.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 60.0
_AT_ONCE = 500
_TABLE = (
    "CREATE TABLE IF NOT EXISTS embeddings (encoder TEXT, text BLOB, vector BLOB, PRIMARY KEY "
    "(encoder, text)) WITHOUT ROWID"
)


class EmbeddingCache:
    """Vectors of one encoder in a SQLite file, float32, by the hash of their text."""

    def __init__(self, path: Path, encoder: str, dimensions: int) -> None:
        """Args: encoder: its identity, which tells its weights from others."""
        self._path, self._encoder, self._dimensions = path, encoder, dimensions
        self._usable = True
        try:
            self._begin()
        except (sqlite3.Error, OSError) as error:
            self._do_without(error)

    def read(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Those of `texts` that are there, with their vectors."""
        keys = {_key(text): text for text in texts}
        found: dict[str, np.ndarray] = {}
        with self._open() as database:
            if database is None:
                return found
            for start in range(0, len(keys), _AT_ONCE):
                part = list(keys)[start : start + _AT_ONCE]
                query = (
                    "SELECT text, vector FROM embeddings WHERE encoder = ? AND text IN "
                    f"({','.join('?' * len(part))})"
                )
                rows = database.execute(query, [self._encoder, *part])
                found |= {
                    keys[key]: np.frombuffer(blob, "<f4")
                    for key, blob in rows
                    if len(blob) == 4 * self._dimensions
                }
        return found

    def write(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Keep vectors by their text; those of another process that was first stay."""
        rows = [
            (self._encoder, _key(text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()
        ]
        with self._open() as database:
            if database:
                database.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?)", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection | None]:
        """A connection for one use, so that it belongs to this thread and process; None if the file is done
        without.
        """
        if not self._usable:
            yield None
            return
        try:
            with closing(_connect(self._path)) as database, database:
                yield database
        except sqlite3.Error as error:
            self._do_without(error)

    def _begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _create(self._path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            for journal in self._path.parent.glob(f"{self._path.name}-*"):
                journal.unlink()
            _LOG.warning(
                "The cache of embeddings %s is damaged (%s): set aside as %s and begun anew.",
                self._path,
                error,
                aside.name,
            )
            _create(self._path)

    def _do_without(self, error: Exception) -> None:
        _LOG.warning(
            "The cache of embeddings %s cannot be used (%s): texts are embedded anew in every run.",
            self._path,
            error,
        )
        self._usable = False


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_SECONDS)


def _create(path: Path) -> None:
    with closing(_connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
