"""A cache of embeddings on disk, by encoder and text: a slow encoder embeds each text only once for all runs.

It is a SQLite file that several processes may use at once. Only the time of a run depends on it. A damaged
file is set aside and started again; a file that cannot be read or written is not used. Both are logged.
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
_TIMEOUT_SECONDS = 60.0
_TEXTS_PER_QUERY = 500
_TABLE = (
    "CREATE TABLE IF NOT EXISTS embeddings (encoder TEXT, text BLOB, vector BLOB, PRIMARY KEY "
    "(encoder, text)) WITHOUT ROWID"
)


class EmbeddingCache:
    """Vectors of one encoder in a SQLite file, float32, by the hash of their text."""

    def __init__(self, path: Path, encoder: str, dimensions: int) -> None:
        """Args: encoder: its identity, which distinguishes its weights from others."""
        self._path = path
        self._encoder = encoder
        self._dimensions = dimensions
        self._is_usable = True
        try:
            self._create_file()
        except (sqlite3.Error, OSError) as error:
            self._stop_using(error)

    def read(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Text -> vector, for those of `texts` that the cache holds."""
        text_of = {_text_hash(text): text for text in texts}
        vectors: dict[str, np.ndarray] = {}
        with self._connection() as database:
            if database is None:
                return vectors
            keys = list(text_of)
            for start in range(0, len(keys), _TEXTS_PER_QUERY):
                part = keys[start : start + _TEXTS_PER_QUERY]
                query = (
                    "SELECT text, vector FROM embeddings WHERE encoder = ? AND text IN "
                    f"({','.join('?' * len(part))})"
                )
                rows = database.execute(query, [self._encoder, *part])
                vectors |= {
                    text_of[key]: np.frombuffer(blob, "<f4")
                    for key, blob in rows
                    if len(blob) == 4 * self._dimensions
                }
        return vectors

    def write(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Store vectors by their text. Vectors that another process stored first stay."""
        rows = [
            (self._encoder, _text_hash(text), vector.astype("<f4").tobytes())
            for text, vector in vectors.items()
        ]
        with self._connection() as database:
            if database:
                database.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?, ?)", rows)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection | None]:
        """A connection for one use, so that it belongs to this thread and process; None if the file cannot be
        used.
        """
        if not self._is_usable:
            yield None
            return
        try:
            with closing(_connect(self._path)) as database, database:
                yield database
        except sqlite3.Error as error:
            self._stop_using(error)

    def _create_file(self) -> None:
        """Create the table. A damaged file is renamed first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _create_table(self._path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            damaged = self._path.with_suffix(".damaged")
            self._path.replace(damaged)
            for journal in self._path.parent.glob(f"{self._path.name}-*"):
                journal.unlink()
            _LOG.warning(
                "The cache of embeddings %s is damaged (%s): it was renamed to %s, and a new one is started.",
                self._path,
                error,
                damaged.name,
            )
            _create_table(self._path)

    def _stop_using(self, error: Exception) -> None:
        _LOG.warning(
            "The cache of embeddings %s cannot be used (%s): texts are embedded again in every run.",
            self._path,
            error,
        )
        self._is_usable = False


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_TIMEOUT_SECONDS)


def _create_table(path: Path) -> None:
    with closing(_connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)


def _text_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
