"""The vector index of the replay buffer: derived from the log, and rebuilt from it at any time.

There are two kinds with one interface:

- `ExactIndex` compares a query with every vector. Its answers are the same on every machine and in every run.
  Up to tens of thousands of vectors, nothing is faster.
- `ChromaIndex` is for larger buffers. It is an approximate graph whose shape differs between builds, even on
  one thread: about 2 retrievals in 1,000 differ between two builds of one log. So a run that uses it is
  reproduced closely, but not to the bit. `neighbour_recall` measures how closely.

`components/experience/retrieval/stored_index.py` keeps a Chroma index on disk.
"""

from __future__ import annotations

import importlib.metadata
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from components.errors import ServiceUnreachable
from components.experience.retrieval.chroma_server import server_calls, unreachable_error

_VECTORS_PER_CALL = 5000
"""Chroma takes at most 5,461 vectors a call."""
_DECIMALS = 5
"""Precision of compared similarities, because sums of floats differ in the last bits. The order of the log
breaks ties.
"""


class VectorIndex(Protocol):
    """Cosine neighbours by number. The i-th added vector has the number i."""

    @property
    def size(self) -> int:
        """The number of vectors."""
        ...

    def add(self, vectors: np.ndarray) -> None:
        """Append unit vectors [n, d], which get the next n numbers."""
        ...

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """For each query of [n, d], the numbers of its `count` nearest vectors, the nearest first."""
        ...

    def keep(self, numbers: Sequence[int]) -> None:
        """Remove all other vectors; these get the numbers 0, 1, 2 ... in this order."""
        ...

    def close(self) -> None:
        """Free the memory and the files of the index."""
        ...


class ExactIndex:
    """Exact search: every vector is compared with every query."""

    def __init__(self, dimensions: int) -> None:
        self.size = 0
        self._vectors = np.zeros((1024, dimensions), np.float32)

    def add(self, vectors: np.ndarray) -> None:
        """See `VectorIndex`. The memory doubles when it is full."""
        needed = self.size + len(vectors)
        if needed > len(self._vectors):
            larger = np.zeros((max(needed, 2 * len(self._vectors)), self._vectors.shape[1]), np.float32)
            larger[: self.size] = self._vectors[: self.size]
            self._vectors = larger
        self._vectors[self.size : needed] = vectors
        self.size = needed

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """See `VectorIndex`."""
        if not self.size:
            return [[] for _ in vectors]
        scores = np.round(vectors @ self._vectors[: self.size].T, _DECIMALS)
        neighbour_count = min(count, self.size)
        # Except for ties, topk gives the same numbers as numpy's argpartition, and is much faster.
        best = torch.topk(torch.from_numpy(scores), neighbour_count, dim=1).indices.numpy()
        return [self._ranked(numbers, scores[query]) for query, numbers in enumerate(best)]

    def _ranked(self, numbers: np.ndarray, scores: np.ndarray) -> list[int]:
        """The best numbers in order. Of vectors that tie with the worst one, the first in the log count."""
        worst = scores[numbers].min()
        tied = np.flatnonzero(scores == worst)
        better = numbers[scores[numbers] > worst]
        ranked = sorted((-float(scores[n]), int(n)) for n in better)
        return [n for _, n in ranked] + [int(n) for n in tied[: len(numbers) - len(better)]]

    def similarities(self, query: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
        """Cosines of one query [d] with the vectors of these numbers, rounded as in the ranking."""
        return np.round(self._vectors[list(numbers)] @ query, _DECIMALS)

    def keep(self, numbers: Sequence[int]) -> None:
        """See `VectorIndex`."""
        self._vectors[: len(numbers)] = self._vectors[list(numbers)]
        self.size = len(numbers)

    def close(self) -> None:
        """See `VectorIndex`."""
        self.size = 0


class ChromaIndex:
    """One Chroma collection with our own vectors, in memory, in a directory, or on a server. Nothing is
    downloaded.
    """

    def __init__(self, directory: Path | None = None, server: str = "") -> None:
        """Open the collection in `directory`, or create it. On the `server` (host:port) it is a new
        collection, which is deleted at `close`.

        Raises:
            chromadb.errors.ChromaError: the files in `directory` are damaged.
            ServiceUnreachable: the server does not answer.
        """
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        self._is_persistent = directory is not None
        self._server = server
        self._client: Any
        if server:
            self._client = _connect(server, settings)
        elif directory:
            self._client = chromadb.PersistentClient(str(directory), settings)
        else:
            self._client = chromadb.EphemeralClient(settings)
        self._name = "steps" if directory else f"replay-{uuid.uuid4().hex[:12]}"
        graph = {"hnsw": {"space": "cosine", "ef_search": 200, "ef_construction": 200, "max_neighbors": 32}}
        try:
            with server_calls(server):
                self._collection = self._client.get_or_create_collection(
                    self._name, embedding_function=None, configuration=graph
                )
                self._ids = list(range(self._collection.count()))
        except BaseException:
            self._client.close()
            raise
        self._numbers = {vector_id: number for number, vector_id in enumerate(self._ids)}

    @property
    def size(self) -> int:
        """The number of vectors."""
        return len(self._ids)

    def add(self, vectors: np.ndarray) -> None:
        """See `VectorIndex`."""
        first = max(self._ids, default=-1) + 1
        for start in range(0, len(vectors), _VECTORS_PER_CALL):
            part = vectors[start : start + _VECTORS_PER_CALL]
            new_ids = list(range(first + start, first + start + len(part)))
            with server_calls(self._server):
                self._collection.add(ids=[str(new_id) for new_id in new_ids], embeddings=part)
            self._numbers.update(zip(new_ids, range(self.size, self.size + len(part)), strict=True))
            self._ids += new_ids

    def nearest(self, vectors: np.ndarray, count: int) -> list[list[int]]:
        """See `VectorIndex`."""
        if not self.size or not len(vectors):
            return [[] for _ in vectors]
        with server_calls(self._server):
            results = self._collection.query(
                query_embeddings=vectors, n_results=min(count, self.size), include=["distances"]
            )
        return [
            self._ranked(ids, distances)
            for ids, distances in zip(results["ids"], results["distances"], strict=True)
        ]

    def _ranked(self, ids: Sequence[str], distances: Sequence[float]) -> list[int]:
        """The numbers of `ids`, the nearest first; the order of the log breaks ties."""
        ranked = sorted(
            (round(distance, _DECIMALS), self._numbers[int(vector_id)])
            for vector_id, distance in zip(ids, distances, strict=True)
        )
        return [number for _, number in ranked]

    def keep(self, numbers: Sequence[int]) -> None:
        """See `VectorIndex`."""
        remaining = [self._ids[number] for number in numbers]
        removed = [str(vector_id) for vector_id in sorted(set(self._ids).difference(remaining))]
        for start in range(0, len(removed), _VECTORS_PER_CALL):
            with server_calls(self._server):
                self._collection.delete(ids=removed[start : start + _VECTORS_PER_CALL])
        self._renumber(remaining)

    def close(self) -> None:
        """Free the memory. A directory stays as it is; a server that does not answer is ignored."""
        if not self._is_persistent:
            with suppress(ServiceUnreachable), server_calls(self._server):
                self._client.delete_collection(self._name)
        self._client.close()

    def _renumber(self, ids: list[int]) -> None:
        """Set the ids of the vectors numbered 0, 1, 2 ..."""
        self._ids = ids
        self._numbers = {vector_id: number for number, vector_id in enumerate(ids)}


def _connect(server: str, settings: Any) -> Any:
    import chromadb

    host, _, port = server.rpartition(":")
    try:
        return chromadb.HttpClient(host, int(port), settings=settings)
    except Exception as error:  # chromadb raises a bare ValueError for a server that does not answer
        raise unreachable_error(server, error) from error


def chroma_version() -> str:
    """The installed version of Chroma. Another version may not read its files."""
    return importlib.metadata.version("chromadb")


def count_found_neighbours(
    index: VectorIndex, exact: ExactIndex, queries: np.ndarray, count: int
) -> tuple[int, int]:
    """How many of the exact `count` nearest neighbours of the queries `index` finds.

    A neighbour exactly as near as the last exact one counts too: the order of ties is arbitrary.

    Returns:
        The number that `index` finds, and the number of exact neighbours.
    """
    found_count = 0
    total = 0
    for query, neighbours, exact_neighbours in zip(
        queries, index.nearest(queries, count), exact.nearest(queries, count), strict=True
    ):
        total += len(exact_neighbours)
        if neighbours and exact_neighbours:
            farthest = exact.similarities(query, exact_neighbours).min()
            similarities = exact.similarities(query, neighbours)
            found_count += int((similarities >= farthest - 1.5 * 10**-_DECIMALS).sum())
    return found_count, total


def neighbour_recall(index: VectorIndex, exact: ExactIndex, queries: np.ndarray, count: int = 5) -> float:
    """Share of the exact `count` nearest neighbours that `index` finds."""
    found_count, total = count_found_neighbours(index, exact, queries, count)
    return found_count / total
