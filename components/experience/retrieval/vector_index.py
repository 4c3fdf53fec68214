"""The vector index of the replay buffer: derived from the log, and rebuilt from it at any time.

Two kinds behind one interface. `ExactIndex` compares with every vector: the same answer on every machine and
in every run, and at tens of thousands of vectors as fast as any. `ChromaIndex` is for larger buffers: an
approximate graph whose shape differs from build to build even on one thread, so that about 2 retrievals in
1,000 differ between two builds of one log, and a run that uses it comes back closely but not to the bit.
`recall` says how closely. Its files on the disk are the matter of
`components/experience/retrieval/stored_index.py`.
"""

from __future__ import annotations

import importlib.metadata
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from components.errors import ServiceUnreachable
from components.experience.retrieval.chroma_server import reachable, silent

_BATCH = 5000
"""Chroma takes at most 5,461 vectors a call."""
_DECIMALS = 5
"""Similarities are compared to this precision, ties are broken by the order of the log: sums of floats differ
in the last bits.
"""


class VectorIndex(Protocol):
    """Cosine neighbours by number: the i-th vector added has the number i."""

    @property
    def size(self) -> int:
        """How many vectors it holds."""
        ...

    def add(self, vectors: np.ndarray) -> None:
        """Append unit vectors [n, d]; they get the next n numbers."""
        ...

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """For each query [n, d], the numbers of its `count` nearest vectors, nearest first."""
        ...

    def keep(self, numbers: Sequence[int]) -> None:
        """Forget all but these vectors, which get the numbers 0, 1, 2 ... in the order given."""
        ...

    def close(self) -> None:
        """Free memory and files of its own."""
        ...


class ExactIndex:
    """Every vector compared with every query."""

    def __init__(self, dimensions: int) -> None:
        self.size = 0
        self._vectors = np.zeros((1024, dimensions), np.float32)

    def add(self, vectors: np.ndarray) -> None:
        """See `VectorIndex`; memory doubles as needed."""
        needed = self.size + len(vectors)
        if needed > len(self._vectors):
            grown = np.zeros((max(needed, 2 * len(self._vectors)), self._vectors.shape[1]), np.float32)
            grown[: self.size] = self._vectors[: self.size]
            self._vectors = grown
        self._vectors[self.size : needed] = vectors
        self.size = needed

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """See `VectorIndex`."""
        if not self.size:
            return [[] for _ in vectors]
        scores = np.round(vectors @ self._vectors[: self.size].T, _DECIMALS)
        kept = min(count, self.size)
        # The same numbers as numpy's argpartition, ties apart, and much sooner.
        part = torch.topk(torch.from_numpy(scores), kept, dim=1).indices.numpy()
        return [self._ranked(row, scores[place]) for place, row in enumerate(part)]

    def _ranked(self, row: np.ndarray, scores: np.ndarray) -> list[int]:
        """The best numbers in order; those tied with the worst of them are looked at again, so that the order
        of the log decides.
        """
        worst = scores[row].min()
        tied = np.flatnonzero(scores == worst)
        better = row[scores[row] > worst]
        best = sorted((-float(scores[n]), int(n)) for n in better)
        return [n for _, n in best] + [int(n) for n in tied[: len(row) - len(better)]]

    def similarities(self, query: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
        """Cosines of one query [d] with the vectors of these numbers, rounded as for ranking."""
        return np.round(self._vectors[list(numbers)] @ query, _DECIMALS)

    def keep(self, numbers: Sequence[int]) -> None:
        """See `VectorIndex`."""
        self._vectors[: len(numbers)] = self._vectors[list(numbers)]
        self.size = len(numbers)

    def close(self) -> None:
        """See `VectorIndex`."""
        self.size = 0


class ChromaIndex:
    """One Chroma collection with our own vectors (nothing is downloaded): in memory, in a directory, or on a
    server.
    """

    def __init__(self, directory: Path | None = None, server: str = "") -> None:
        """Opens what `directory` holds, or makes it; on the `server` (host:port) it is a new collection, gone
        when it is closed.

        Raises:
            chromadb.errors.ChromaError: the files there are damaged.
            ServiceUnreachable: the server does not answer.
        """
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        import chromadb
        from chromadb.config import Settings

        settings, self._lasting, self._server = (
            Settings(anonymized_telemetry=False),
            directory is not None,
            server,
        )
        if server:
            opened: Any = _connected(server, settings)
        else:
            opened = (
                chromadb.PersistentClient(str(directory), settings)
                if directory
                else chromadb.EphemeralClient(settings)
            )
        self._client = cast(Any, opened)
        self._name = "steps" if directory else f"replay-{uuid.uuid4().hex[:12]}"
        graph: Any = {
            "hnsw": {"space": "cosine", "ef_search": 200, "ef_construction": 200, "max_neighbors": 32}
        }
        try:
            with reachable(server):
                self._collection = self._client.get_or_create_collection(
                    self._name, embedding_function=None, configuration=graph
                )
                self._ids = list(range(self._collection.count()))
        except BaseException:
            self._client.close()
            raise
        self._number = {identity: number for number, identity in enumerate(self._ids)}

    @property
    def size(self) -> int:
        """How many vectors it holds."""
        return len(self._ids)

    def add(self, vectors: np.ndarray) -> None:
        """See `VectorIndex`."""
        first = max(self._ids, default=-1) + 1
        for start in range(0, len(vectors), _BATCH):
            part = vectors[start : start + _BATCH]
            identities = list(range(first + start, first + start + len(part)))
            with reachable(self._server):
                self._collection.add(ids=[str(identity) for identity in identities], embeddings=part)
            self._renumber([*self._ids, *identities])

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """See `VectorIndex`."""
        if not self.size or not len(vectors):
            return [[] for _ in vectors]
        with reachable(self._server):
            found: Any = self._collection.query(
                query_embeddings=vectors, n_results=min(count, self.size), include=["distances"]
            )
        pairs = zip(found["ids"], found["distances"], strict=True)
        return [
            [
                n
                for _, n in sorted(
                    (round(d, _DECIMALS), self._number[int(i)]) for i, d in zip(*row, strict=True)
                )
            ]
            for row in pairs
        ]

    def keep(self, numbers: Sequence[int]) -> None:
        """See `VectorIndex`."""
        kept = [self._ids[number] for number in numbers]
        leaving = [str(identity) for identity in sorted(set(self._ids).difference(kept))]
        for start in range(0, len(leaving), _BATCH):
            with reachable(self._server):
                self._collection.delete(ids=leaving[start : start + _BATCH])
        self._renumber(kept)

    def close(self) -> None:
        """Give the memory back; a directory stays as it is. A server that is gone has nothing to give
        back.
        """
        if not self._lasting:
            with suppress(ServiceUnreachable), reachable(self._server):
                self._client.delete_collection(self._name)
        self._client.close()

    def _renumber(self, identities: list[int]) -> None:
        self._ids = identities
        self._number = {identity: number for number, identity in enumerate(identities)}


def _connected(server: str, settings: Any) -> Any:
    import chromadb

    host, _, port = server.rpartition(":")
    try:
        return chromadb.HttpClient(host, int(port), settings=settings)
    except Exception as error:  # chromadb raises a bare ValueError for a server that is not there
        raise silent(server, error) from error


def chroma_version() -> str:
    """Of the installed Chroma: another may not read what this one wrote."""
    return importlib.metadata.version("chromadb")


def neighbours_found(
    index: VectorIndex, exact: ExactIndex, queries: np.ndarray, count: int
) -> tuple[int, int]:
    """(found, asked): of the exact `count` nearest neighbours of each query, how many `index` finds too.

    A neighbour that is exactly as near as the last true one counts as it: which of equals is named first says
    nothing.
    """
    found = asked = 0
    for query, near, true in zip(
        queries, index.nearest(queries, count), exact.nearest(queries, count), strict=True
    ):
        asked += len(true)
        if near and true:
            farthest = exact.similarities(query, true).min()
            found += int((exact.similarities(query, near) >= farthest - 1.5 * 10**-_DECIMALS).sum())
    return found, asked


def recall(index: VectorIndex, exact: ExactIndex, queries: np.ndarray, count: int = 5) -> float:
    """Share of the exact `count` nearest neighbours that `index` finds as well."""
    found, asked = neighbours_found(index, exact, queries, count)
    return found / asked
