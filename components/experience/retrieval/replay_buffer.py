"""The replay buffer: an append-only log of transitions (the truth) and the index derived from it.

Retrieval is top-k by the cosine of phi(state, action) (section 4.1.1). Never retrieved:

1. Transitions of the query's own task: other episodes of it end in the same room with the same answer. A
   model that learns from such demonstrations learns to copy their verdicts, and finds none like them on
   held-out tasks. In a dream it would see its own inventions again.
2. Unparsable answers, which are never added, and held-out tasks (callers never add them; `hidden` guards
   against it).

What the index holds is a function of the log alone (`components/experience/retrieval/capacity.py`): the same
log gives the same answers, in however many parts it was added.

The log that a buffer is opened with may have its index stored on disk
(`components/experience/retrieval/stored_index.py`). What is added later, such as dreamed transitions, is not
stored there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from components.config import RetrievalConfig
from components.errors import ExperienceModelError
from components.experience.retrieval.capacity import TasksOfCopies, add_copy, select_held
from components.experience.retrieval.encoders import encode_steps, make_encoder
from components.experience.retrieval.stored_index import IndexCard, open_stored
from components.experience.retrieval.vector_index import (
    ChromaIndex,
    ExactIndex,
    VectorIndex,
    count_found_neighbours,
)
from components.records import REAL, Transition, origin

_LOG = logging.getLogger(__name__)
_EXTRA_NEIGHBOURS = 24
"""Neighbours requested beyond k, because those of the query's own task are left out."""
_SEARCH_GROWTH = 8
"""Factor of the neighbours requested next, if fewer than k remain."""
_STEPS_A_PART = 10_000
"""Steps that are encoded at once."""
Step = tuple[str, str]
"""State and action."""


class ReplayBuffer:
    """Transitions to retrieve demonstrations from.

    Attributes:
        transitions: the log.
        opening_message: what was done to open the stored index; "" without one.
    """

    def __init__(
        self,
        config: RetrievalConfig,
        log: Sequence[Transition] = (),
        *,
        hidden: Iterable[str] = (),
        stored: Path | None = None,
        embeddings: Path | None = None,
        rebuild: bool = False,
    ) -> None:
        """Args:
            log: the first transitions.
            hidden: ids of held-out tasks, whose transitions are refused.
            stored: directory of the stored index of `log`, used with `index: chroma`; None: the index is in
                memory.
            embeddings: directory where slow encoders cache their vectors.
            rebuild: build the stored index again, even if it can be used.

        Raises:
            ExperienceModelError: a transition belongs to a held-out task, or the encoder cannot be used.
        """
        self.config = config
        self.encoder = make_encoder(config, embeddings)
        self.transitions: list[Transition] = []
        self.opening_message = ""
        self._hidden = frozenset(hidden)
        self._has_warned_full = False
        self._index: VectorIndex | None = None
        self._clear_index()
        if stored and config.index == "chroma" and not config.server and config.k and log:
            self._refuse_hidden(log)
            self.transitions += log
            self._index_whole_log(stored, rebuild)
        else:
            self.add(log)

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def held(self) -> int:
        """Number of transitions of the log that can be retrieved."""
        return self._held_count

    @property
    def steps(self) -> int:
        """Number of different (state, action) pairs in the index."""
        return len(self._followers)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append to the log and to the index.

        The index holds each (state, action) once, with every next state that followed it: equal
        demonstrations would crowd out others.

        Raises:
            ExperienceModelError: a transition belongs to a held-out task.
        """
        self._refuse_hidden(transitions)
        first = len(self.transitions)
        self.transitions += transitions
        if not self.config.k or not transitions:
            return
        has_room = self._held_count + len(transitions) <= self.config.capacity
        if has_room and self._has_no_real_after_synthetic(first):
            self._append_to_index(range(first, len(self.transitions)))
        else:
            self._index_whole_log()

    def retrieve(self, queries: Sequence[Step], tasks: Sequence[str]) -> list[list[Transition]]:
        """For each (state, action), its k demonstrations, the most similar first.

        There are fewer than k where the log has no more of other tasks.

        Args: tasks: id of each query's own task.
        """
        demonstrations: list[list[Transition]] = [[] for _ in queries]
        if not self.config.k or self._index is None or not queries:
            return demonstrations
        vectors = self._encode(queries)
        open_queries = list(range(len(queries)))
        count = self.config.k + _EXTRA_NEIGHBOURS
        while open_queries:
            neighbours = self._index.nearest(vectors[open_queries], count)
            for query, numbers in zip(open_queries, neighbours, strict=True):
                demonstrations[query] = self._of_other_tasks(numbers, origin(tasks[query]))
            open_queries = [
                query
                for query in open_queries
                if len(demonstrations[query]) < self.config.k and count < self._index.size
            ]
            count *= _SEARCH_GROWTH
        return demonstrations

    def vectors(self) -> np.ndarray:
        """The indexed vectors [n, d] in the order of their numbers, encoded again, to build another index."""
        return self._encode(list(self._number_of))

    def count_found_neighbours(self, queries: Sequence[Step]) -> tuple[int, int]:
        """How many of the exact k nearest steps of the queries the index finds.

        Returns:
            The number that the index finds, and the number of exact neighbours.
        """
        if self._index is None or not queries:
            return 0, 0
        exact = ExactIndex(2 * self.encoder.dimensions)
        exact.add(self.vectors())
        return count_found_neighbours(self._index, exact, self._encode(queries), self.config.k)

    def close(self) -> None:
        """Free the index."""
        self._clear_index()

    def _refuse_hidden(self, transitions: Sequence[Transition]) -> None:
        for transition in transitions:
            if transition.task_id in self._hidden:
                raise ExperienceModelError(
                    f"The transition {transition.episode_id}#{transition.step} belongs to a held-out task.",
                    "The buffer holds training tasks only.",
                    "Run `dreamgym validate` to find where it came from.",
                )

    def _of_other_tasks(self, numbers: Sequence[int], own_task: str) -> list[Transition]:
        """The first k transitions of these indexed steps that are not of `own_task`."""
        candidates = (self.transitions[follower] for step in numbers for follower in self._followers[step])
        return [it for it in candidates if origin(it.task_id) != own_task][: self.config.k]

    def _clear_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None
        self._number_of: dict[Step, int] = {}
        self._followers: list[list[int]] = []
        self._copies: TasksOfCopies = {}
        self._held_count = 0
        self._has_synthetic = False

    def _has_no_real_after_synthetic(self, first: int) -> bool:
        """True if no real transition follows a synthetic one, from number `first` on.

        Then the first copies in the order of the log are those to hold.
        """
        for transition in self.transitions[first:]:
            if transition.source != REAL:
                self._has_synthetic = True
            elif self._has_synthetic:
                return False
        return True

    def _append_to_index(self, numbers: Iterable[int]) -> None:
        """Index new transitions of a log that fits as a whole.

        The result is that of `_index_whole_log`, without a look at the earlier transitions.
        """
        index = self._index or self._new_index()
        new_steps: list[Step] = []
        for number in numbers:
            transition = self.transitions[number]
            step = (transition.state, transition.action)
            if step not in self._number_of:
                self._number_of[step] = len(self._number_of)
                self._followers.append([])
                new_steps.append(step)
            if add_copy(transition, self._copies):
                self._followers[self._number_of[step]].append(number)
                self._held_count += 1
        self._add_steps(index, new_steps)
        self._index = index

    def _index_whole_log(self, stored: Path | None = None, rebuild: bool = False) -> None:
        """Make the index hold what the whole log asks for, in the order of the log."""
        numbers = select_held(self.transitions, self.config.capacity)
        self._has_synthetic = any(transition.source != REAL for transition in self.transitions)
        followers: dict[Step, list[int]] = {}
        for number in numbers:
            transition = self.transitions[number]
            followers.setdefault((transition.state, transition.action), []).append(number)
        steps = list(followers)
        if self._index is None and stored:
            card = IndexCard.of(self.encoder, self.config.action_weight, steps)
            self._index, self.opening_message = open_stored(stored, card, steps, self._encode, rebuild)
        else:
            self._index = self._rearrange(self._index or self._new_index(), steps)
        self._number_of = {step: number for number, step in enumerate(steps)}
        self._followers = list(followers.values())
        self._held_count = len(numbers)
        self._copies = {}
        for number in numbers:
            add_copy(self.transitions[number], self._copies)
        self._warn_if_full(numbers)

    def _rearrange(self, index: VectorIndex, steps: list[Step]) -> VectorIndex:
        """The index with exactly `steps`, in this order."""
        new_steps = [step for step in steps if step not in self._number_of]
        number_of = self._number_of | {step: index.size + place for place, step in enumerate(new_steps)}
        self._add_steps(index, new_steps)
        order = [number_of[step] for step in steps]
        if order != list(range(index.size)):
            index.keep(order)
        return index

    def _new_index(self) -> VectorIndex:
        if self.config.index == "chroma":
            return ChromaIndex(server=self.config.server)
        return ExactIndex(2 * self.encoder.dimensions)

    def _add_steps(self, index: VectorIndex, steps: Sequence[Step]) -> None:
        """Encode `steps` and append them to the index, in parts, so that few vectors are in memory twice."""
        part = max(1, len(steps)) if self.encoder.depends_on_call else _STEPS_A_PART
        for start in range(0, len(steps), part):
            index.add(self._encode(steps[start : start + part]))

    def _encode(self, steps: Sequence[Step]) -> np.ndarray:
        return encode_steps(self.encoder, steps, self.config.action_weight)

    def _warn_if_full(self, numbers: Sequence[int]) -> None:
        real_count = sum(self.transitions[number].source == REAL for number in numbers)
        if real_count > self.config.capacity and not self._has_warned_full:
            self._has_warned_full = True
            _LOG.warning(
                "The buffer holds %d real transitions, more than retrieval.capacity=%d: they all stay, and "
                "no synthetic one is held.",
                real_count,
                self.config.capacity,
            )
