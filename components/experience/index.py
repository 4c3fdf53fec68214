"""The vector index of the replay buffer: derived from the log, and rebuilt from it at any time.

Two kinds behind one interface. `ExactIndex` compares with every vector: the same answer on every machine and in every run,
and at tens of thousands of vectors as fast as any. `ChromaIndex` is for larger buffers: an approximate graph whose shape
differs from build to build even on one thread, so that about 2 retrievals in 1,000 differ between two builds of one log,
and a run that uses it comes back closely but not to the bit. `recall` says how closely.
"""

from __future__ import annotations

import os
import uuid
from typing import Any, Protocol

import numpy as np

_BATCH = 5000
"""Chroma takes at most 5,461 vectors a call."""
_DECIMALS = 5
"""Similarities are compared to this precision, ties are broken by the order of the log: sums of floats differ in the last bits."""


class VectorIndex(Protocol):
    """Cosine neighbours by number: the i-th vector added has the number i."""

    size: int

    def add(self, vectors: np.ndarray) -> None:
        """Append unit vectors [n, d]; they get the next n numbers."""
        ...

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """For each query [n, d], the numbers of its `count` nearest vectors, nearest first."""
        ...

    def close(self) -> None:
        """Free memory."""
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
        part = np.argpartition(-scores, kept - 1, axis=1)[:, :kept]
        return [self._ranked(row, scores[place]) for place, row in enumerate(part)]

    def _ranked(self, row: np.ndarray, scores: np.ndarray) -> list[int]:
        """The best numbers in order; those tied with the worst of them are looked at again, so that the order of the log decides."""
        worst = scores[row].min()
        tied = np.flatnonzero(scores == worst)
        better = row[scores[row] > worst]
        best = sorted((-float(scores[n]), int(n)) for n in better)
        return [n for _, n in best] + [int(n) for n in tied[: len(row) - len(better)]]

    def close(self) -> None:
        """See `VectorIndex`."""
        self.size = 0


class ChromaIndex:
    """One Chroma collection, in memory, with our own vectors (nothing is downloaded)."""

    def __init__(self) -> None:
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        import chromadb
        from chromadb.config import Settings

        self._client: Any = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
        self._name = f"replay-{uuid.uuid4().hex[:12]}"
        graph: Any = {"hnsw": {"space": "cosine", "ef_search": 200, "ef_construction": 200, "max_neighbors": 32}}
        self._collection = self._client.create_collection(self._name, embedding_function=None, configuration=graph)
        self.size = 0

    def add(self, vectors: np.ndarray) -> None:
        """See `VectorIndex`."""
        for start in range(0, len(vectors), _BATCH):
            part = vectors[start : start + _BATCH]
            self._collection.add(ids=[str(self.size + i) for i in range(len(part))], embeddings=part)
            self.size += len(part)

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """See `VectorIndex`."""
        if not self.size or not len(vectors):
            return [[] for _ in vectors]
        found: Any = self._collection.query(query_embeddings=vectors, n_results=min(count, self.size), include=["distances"])
        pairs = zip(found["ids"], found["distances"], strict=True)
        return [[n for _, n in sorted((round(d, _DECIMALS), int(i)) for i, d in zip(ids, far, strict=True))] for ids, far in pairs]

    def close(self) -> None:
        """See `VectorIndex`."""
        self._client.delete_collection(self._name)


def recall(index: VectorIndex, exact: ExactIndex, queries: np.ndarray, count: int = 5) -> float:
    """Share of the exact `count` nearest neighbours that `index` finds as well."""
    found, true = index.nearest(queries, count), exact.nearest(queries, count)
    return sum(len(set(a) & set(b)) for a, b in zip(found, true, strict=True)) / sum(len(b) for b in true)
