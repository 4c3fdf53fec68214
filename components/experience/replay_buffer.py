"""The replay buffer: an append-only log of transitions (the truth) and the index derived from it.

Top-k retrieval by the cosine of phi(state, action) (section 4.1.1). Never retrieved: the query's own transition (its whole
episode, since a step's neighbours there give the answer away), unparsable answers (they are never added), and held-out
tasks (the caller never adds them; `hidden` guards against it). Past its capacity the oldest synthetic transitions leave the
index; real ones never do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from components.config import RetrievalConfig
from components.errors import ExperienceModelError
from components.experience.encoders import make_encoder, query_text
from components.experience.index import VectorIndex
from components.records import REAL, Transition

_SPARE = 12
"""How many neighbours more than k are asked for, so that k remain after those of the own episode are left out."""


class ReplayBuffer:
    """Transitions to retrieve demonstrations from."""

    def __init__(self, config: RetrievalConfig, *, hidden: Iterable[str] = ()) -> None:
        """Args: hidden: ids of held-out tasks, which are refused."""
        self.config = config
        self.encoder = make_encoder(config)
        self.transitions: list[Transition] = []
        self._hidden = frozenset(hidden)
        self._texts: set[str] = set()
        self._members: list[int] = []
        self._index: VectorIndex | None = None

    def __len__(self) -> int:
        return len(self.transitions)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append to the log and to the index.

        The log takes every transition; the index takes one of each (state, action, next state) text, since equal
        demonstrations would crowd out others.

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
            self._extend([number for number in range(start, len(self.transitions)) if self._is_new(number)])
            self._evict()

    def retrieve(self, queries: Sequence[tuple[str, str]], episodes: Sequence[str]) -> list[list[Transition]]:
        """For each (state, action), its k demonstrations, the most similar first; `episodes` names each query's own episode."""
        if not self.config.k or self._index is None:
            return [[] for _ in queries]
        vectors = self.encoder([query_text(state, action) for state, action in queries])
        rows = self._index.nearest(vectors, self.config.k + _SPARE)
        return [self._others(row, own) for row, own in zip(rows, episodes, strict=True)]

    def close(self) -> None:
        """Free the index."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def _others(self, row: Sequence[int], own: str) -> list[Transition]:
        found = (self.transitions[self._members[number]] for number in row)
        return [transition for transition in found if transition.episode_id != own][: self.config.k]

    def _is_new(self, number: int) -> bool:
        transition = self.transitions[number]
        text = f"{transition.state}\n{transition.action}\n{transition.next_state}"
        known = text in self._texts
        self._texts.add(text)
        return not known

    def _extend(self, numbers: Sequence[int]) -> None:
        if self._index is None:
            self._index = VectorIndex(f"replay-{uuid.uuid4().hex[:12]}")
        chosen = [self.transitions[number] for number in numbers]
        self._index.add(self.encoder([query_text(t.state, t.action) for t in chosen]))
        self._members += numbers

    def _evict(self) -> None:
        """Rebuild the index without the oldest synthetic transitions once it exceeds its capacity."""
        surplus = len(self._members) - self.config.capacity
        if surplus <= 0 or self._index is None:
            return
        synthetic = [n for n in self._members if self.transitions[n].source != REAL]
        leaving = set(synthetic[: surplus + self.config.capacity // 10])
        staying = [n for n in self._members if n not in leaving]
        self._index.clear()
        self._members = []
        self._extend(staying)
