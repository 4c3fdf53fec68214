"""The replay buffer: an append-only log of transitions (the truth) and the index derived from it.

Top-k retrieval by the cosine of phi(state, action) (section 4.1.1). Never retrieved: the query's own transition (its whole
episode, since a step's neighbours there give the answer away), unparsable answers (they are never added), and held-out
tasks (the caller never adds them; `hidden` guards against it). Past its capacity the oldest synthetic transitions leave the
index; real ones never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from components.config import RetrievalConfig
from components.errors import ExperienceModelError
from components.experience.encoders import encode_steps, make_encoder
from components.experience.index import ChromaIndex, ExactIndex, VectorIndex
from components.records import REAL, Transition

_SPARE = 8
"""How many neighbours more than k are asked for, so that k remain after those of the own episode are left out."""


class ReplayBuffer:
    """Transitions to retrieve demonstrations from."""

    def __init__(self, config: RetrievalConfig, *, hidden: Iterable[str] = ()) -> None:
        """Args: hidden: ids of held-out tasks, which are refused."""
        self.config = config
        self.encoder = make_encoder(config)
        self.transitions: list[Transition] = []
        self._hidden = frozenset(hidden)
        self._forget_index()

    def __len__(self) -> int:
        return len(self.transitions)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append to the log and to the index.

        The index holds each (state, action) once, with every next state that was seen to follow it: equal demonstrations
        would crowd out others.

        Raises:
            ExperienceModelError: a transition belongs to a held-out task.
        """
        for transition in transitions:
            if transition.task_id in self._hidden:
                raise ExperienceModelError(
                    f"The transition {transition.episode_id}#{transition.step} belongs to a held-out task.",
                    "The buffer holds training tasks only.",
                    "Run `dreamgym validate` to find where it came from.",
                )
        start = len(self.transitions)
        self.transitions += transitions
        if self.config.k:
            self._extend(range(start, len(self.transitions)))
            self._evict()

    def retrieve(self, queries: Sequence[tuple[str, str]], episodes: Sequence[str]) -> list[list[Transition]]:
        """For each (state, action), its k demonstrations, the most similar first; `episodes` names each query's own episode."""
        if not self.config.k or self._index is None or not queries:
            return [[] for _ in queries]
        vectors = encode_steps(self.encoder, queries, self.config.action_weight)
        rows = self._index.nearest(vectors, self.config.k + _SPARE)
        return [self._others(row, own) for row, own in zip(rows, episodes, strict=True)]

    def vectors(self) -> np.ndarray:
        """The indexed vectors [n, d] in the order of their numbers, encoded anew: to build another index from."""
        return encode_steps(self.encoder, list(self._number_of), self.config.action_weight)

    def close(self) -> None:
        """Free the index."""
        self._forget_index()

    def _others(self, row: Sequence[int], own: str) -> list[Transition]:
        found = (self.transitions[number] for place in row for number in self._followers[place])
        return [transition for transition in found if transition.episode_id != own][: self.config.k]

    def _forget_index(self) -> None:
        index = getattr(self, "_index", None)
        if index is not None:
            index.close()
        self._index: VectorIndex | None = None
        self._number_of: dict[tuple[str, str], int] = {}
        self._followers: list[list[int]] = []
        self._indexed = 0

    def _extend(self, numbers: Iterable[int]) -> None:
        """Index transitions of the log by their numbers there."""
        if self._index is None:
            self._index = ChromaIndex() if self.config.index == "chroma" else ExactIndex(2 * self.encoder.dimensions)
        fresh: list[tuple[str, str]] = []
        for number in numbers:
            transition = self.transitions[number]
            asked = (transition.state, transition.action)
            if asked not in self._number_of:
                self._number_of[asked] = len(self._number_of)
                self._followers.append([])
                fresh.append(asked)
            followers = self._followers[self._number_of[asked]]
            # A few episodes each, so that a query's own episode never hides all of them.
            if sum(self.transitions[other].next_state == transition.next_state for other in followers) < 2:
                followers.append(number)
                self._indexed += 1
        self._index.add(encode_steps(self.encoder, fresh, self.config.action_weight))

    def _evict(self) -> None:
        """Rebuild the index without the oldest synthetic transitions once it exceeds its capacity."""
        surplus = self._indexed - self.config.capacity
        if surplus <= 0:
            return
        members = sorted(number for followers in self._followers for number in followers)
        synthetic = [number for number in members if self.transitions[number].source != REAL]
        leaving = set(synthetic[: surplus + self.config.capacity // 10])
        if leaving:
            self._forget_index()
            self._extend(number for number in members if number not in leaving)
