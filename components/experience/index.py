"""The vector index of the replay buffer in Chroma: derived from the log, and rebuilt from it at any time.

One collection holds one environment's transitions, since filters cost Chroma more than the search. A query asks for more
neighbours than it needs and leaves out what it must not see.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

_BATCH = 5000


class VectorIndex:
    """Cosine neighbours by number: vector i belongs to transition i of the log."""

    def __init__(self, name: str) -> None:
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        import chromadb
        from chromadb.config import Settings

        client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False, allow_reset=True))
        self._client: Any = client
        self._name = name
        self._open()

    def _open(self) -> None:
        if self._name in [collection.name for collection in self._client.list_collections()]:
            self._client.delete_collection(self._name)
        settings = {"hnsw": {"space": "cosine", "ef_search": 64}}
        self._collection = self._client.create_collection(self._name, embedding_function=None, configuration=settings)
        self.size = 0

    def add(self, vectors: np.ndarray) -> None:
        """Append vectors [n, d]; they get the next n numbers."""
        for start in range(0, len(vectors), _BATCH):
            part = vectors[start : start + _BATCH]
            self._collection.add(ids=[str(self.size + i) for i in range(len(part))], embeddings=part)
            self.size += len(part)

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """For each query [n, d], the numbers of its `count` nearest vectors, nearest first."""
        if not self.size or not len(vectors):
            return [[] for _ in vectors]
        found = self._collection.query(query_embeddings=vectors, n_results=min(count, self.size), include=["distances"])
        return [[int(number) for number in row] for row in found["ids"]]

    def clear(self) -> None:
        """Forget everything."""
        self._open()

    def close(self) -> None:
        """Drop the collection."""
        self._client.delete_collection(self._name)


def exact_nearest(vectors: np.ndarray, queries: np.ndarray, count: int) -> list[list[int]]:
    """The same by brute force: what the index's recall is measured against."""
    scores = queries @ vectors.T
    order: Sequence[Sequence[int]] = np.argsort(-scores, axis=1, kind="stable")[:, :count].tolist()
    return [list(row) for row in order]
