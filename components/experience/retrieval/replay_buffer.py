"""The replay buffer: an append-only log of transitions (the truth) and the index derived from it.

Top-k retrieval by the cosine of phi(state, action) (section 4.1.1). Never retrieved:

1. Anything of the query's own task: other episodes of it end in the same room with the same answer. A model
   that learns from such
   demonstrations learns to copy their verdicts, and finds none like them where tasks are held out; in a dream
   it would hear its own inventions again.
2. Unparsable answers, which are never added, and held-out tasks (the caller never adds them; `hidden` guards
   against it).

What the index holds is a function of the log alone (`components/experience/retrieval/capacity.py`): the same
log gives the same answers, in however many parts it was added.

What a buffer is opened with may have its index stored on the disk
(`components/experience/retrieval/stored_index.py`); what is added later, such as what a run dreams, never
gets there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from components.config import RetrievalConfig
from components.errors import ExperienceModelError
from components.experience.retrieval.capacity import Known, another_copy, held
from components.experience.retrieval.encoders import encode_steps, make_encoder
from components.experience.retrieval.stored_index import IndexCard, open_stored
from components.experience.retrieval.vector_index import (
    ChromaIndex,
    ExactIndex,
    VectorIndex,
    neighbours_found,
)
from components.records import REAL, Transition, origin

_LOG = logging.getLogger(__name__)
_SPARE, _MORE = 24, 8
"""How many neighbours more than k are asked for, since those of the own task are left out; how many times as
many if k do not remain.
"""
Step = tuple[str, str]


class ReplayBuffer:
    """Transitions to retrieve demonstrations from. `opened` says what was done to open the stored index, if
    there is one.
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
            log: the transitions it is opened with.
            hidden: ids of held-out tasks, which are refused.
            stored: directory of the stored index of `log`, with `index: chroma`; None: its vectors are kept
            in memory.
            embeddings: directory of the embeddings that slow encoders keep.
            rebuild: build the stored index anew, whatever is there.

        Raises:
            ExperienceModelError: a transition belongs to a held-out task, or the encoder cannot be used.
        """
        self.config = config
        self.encoder = make_encoder(config, embeddings)
        self.transitions: list[Transition] = []
        self.opened = ""
        self._hidden = frozenset(hidden)
        self._said_full = False
        self._forget_index()
        if stored and config.index == "chroma" and not config.server and config.k and log:
            self._refuse_hidden(log)
            self.transitions += log
            self._arrange(stored, rebuild)
        else:
            self.add(log)

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def held(self) -> int:
        """How many transitions of the log can be retrieved."""
        return self._held

    @property
    def steps(self) -> int:
        """How many different (state, action) the index holds."""
        return len(self._followers)

    def add(self, transitions: Sequence[Transition]) -> None:
        """Append to the log and to the index.

        The index holds each (state, action) once, with every next state that was seen to follow it: equal
        demonstrations would crowd out others.

        Raises:
            ExperienceModelError: a transition belongs to a held-out task.
        """
        self._refuse_hidden(transitions)
        start = len(self.transitions)
        self.transitions += transitions
        if not self.config.k or not transitions:
            return
        if self._held + len(transitions) <= self.config.capacity and self._is_plain(start):
            self._append(range(start, len(self.transitions)))
        else:
            self._arrange()

    def retrieve(self, queries: Sequence[Step], tasks: Sequence[str]) -> list[list[Transition]]:
        """For each (state, action), its k demonstrations, the most similar first; `tasks` names each query's
        own task.

        Fewer than k come back where the log has no more of other tasks.
        """
        found: list[list[Transition]] = [[] for _ in queries]
        if not self.config.k or self._index is None or not queries:
            return found
        vectors, asked, count = self._encode(queries), list(range(len(queries))), self.config.k + _SPARE
        while asked:
            for place, row in zip(asked, self._index.nearest(vectors[asked], count), strict=True):
                found[place] = self._others(row, origin(tasks[place]))
            asked = [
                place for place in asked if len(found[place]) < self.config.k and count < self._index.size
            ]
            count *= _MORE
        return found

    def vectors(self) -> np.ndarray:
        """The indexed vectors [n, d] in the order of their numbers, encoded anew: to build another index
        from.
        """
        return self._encode(list(self._number_of))

    def neighbours_found(self, queries: Sequence[Step]) -> tuple[int, int]:
        """(found, asked): of the exact k nearest steps of each query, how many the index finds; the rest is
        its approximation.
        """
        if self._index is None or not queries:
            return 0, 0
        exact = ExactIndex(2 * self.encoder.dimensions)
        exact.add(self.vectors())
        return neighbours_found(self._index, exact, self._encode(queries), self.config.k)

    def close(self) -> None:
        """Free the index."""
        self._forget_index()

    def _refuse_hidden(self, transitions: Sequence[Transition]) -> None:
        for transition in transitions:
            if transition.task_id in self._hidden:
                raise ExperienceModelError(
                    f"The transition {transition.episode_id}#{transition.step} belongs to a held-out task.",
                    "The buffer holds training tasks only.",
                    "Run `dreamgym validate` to find where it came from.",
                )

    def _others(self, row: Sequence[int], own: str) -> list[Transition]:
        found = (self.transitions[number] for place in row for number in self._followers[place])
        return [transition for transition in found if origin(transition.task_id) != own][: self.config.k]

    def _forget_index(self) -> None:
        index = getattr(self, "_index", None)
        if index is not None:
            index.close()
        self._index: VectorIndex | None = None
        self._number_of: dict[Step, int] = {}
        self._followers: list[list[int]] = []
        self._copies: Known = {}
        self._held = 0
        self._dreamed = False

    def _is_plain(self, start: int) -> bool:
        """True if no real transition comes after a synthetic one: then the first copies of each are those to
        hold.
        """
        for transition in self.transitions[start:]:
            if transition.source != REAL:
                self._dreamed = True
            elif self._dreamed:
                return False
        return True

    def _append(self, numbers: Iterable[int]) -> None:
        """Index new transitions of a log that fits as a whole: what `_arrange` would do, without looking at
        the old ones.
        """
        index, fresh = self._index or self._new_index(), []
        for number in numbers:
            transition = self.transitions[number]
            asked = (transition.state, transition.action)
            if asked not in self._number_of:
                self._number_of[asked] = len(self._number_of)
                self._followers.append([])
                fresh.append(asked)
            if another_copy(transition, self._copies):
                self._followers[self._number_of[asked]].append(number)
                self._held += 1
        index.add(self._encode(fresh))
        self._index = index

    def _arrange(self, stored: Path | None = None, rebuild: bool = False) -> None:
        """Make the index hold what the whole log asks for, in the order of the log."""
        numbers = held(self.transitions, self.config.capacity)
        self._dreamed = any(transition.source != REAL for transition in self.transitions)
        followers: dict[Step, list[int]] = {}
        for number in numbers:
            followers.setdefault(
                (self.transitions[number].state, self.transitions[number].action), []
            ).append(number)
        if self._index is None and stored:
            card = IndexCard.of(self.encoder, self.config.action_weight, list(followers))
            self._index, self.opened = open_stored(stored, card, list(followers), self._encode, rebuild)
        else:
            self._index = self._rearranged(self._index or self._new_index(), list(followers))
        self._number_of = {step: number for number, step in enumerate(followers)}
        self._followers, self._held, self._copies = list(followers.values()), len(numbers), {}
        for number in numbers:
            another_copy(self.transitions[number], self._copies)
        self._say_if_full(numbers)

    def _rearranged(self, index: VectorIndex, steps: list[Step]) -> VectorIndex:
        fresh = [step for step in steps if step not in self._number_of]
        known = self._number_of | {step: index.size + place for place, step in enumerate(fresh)}
        index.add(self._encode(fresh))
        order = [known[step] for step in steps]
        if order != list(range(index.size)):
            index.keep(order)
        return index

    def _new_index(self) -> VectorIndex:
        if self.config.index == "chroma":
            return ChromaIndex(server=self.config.server)
        return ExactIndex(2 * self.encoder.dimensions)

    def _encode(self, steps: Sequence[Step]) -> np.ndarray:
        return encode_steps(self.encoder, steps, self.config.action_weight)

    def _say_if_full(self, numbers: Sequence[int]) -> None:
        real = sum(self.transitions[number].source == REAL for number in numbers)
        if real > self.config.capacity and not self._said_full:
            self._said_full = True
            told = (
                "The buffer holds %d real transitions, more than retrieval.capacity=%d: they all stay, "
                "and no synthetic one is held."
            )
            _LOG.warning(told, real, self.config.capacity)
