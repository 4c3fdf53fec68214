"""Generation in which two models write the turns of one conversation, chosen turn by turn.

    turn t ~ other(. | all turns before) with probability `share`, else ~ own(. | all turns before)

This is AgentRL's cross-policy sampling (arXiv 2510.04206). Deviation from the paper: there are two models,
the trained one and a fixed one; the paper draws from a pool of models. `policy_gradient.py` says which one is
fixed, and how a loss corrects for it.

Both models read everything. Each has a session of its own; a model reads what the other one wrote when it
writes the row's next turn, so no token is read twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from components.language.engines.engine_protocol import Engine, Generation, Session

OTHER_STREAM = 1_000_003
"""Added to the seed of the other model's random stream."""


@dataclass
class CrossedEngines:
    """An `Engine` of two others, for a policy that plays with another one.

    Args:
        own: of the policy.
        other: of the other policy.
        share: probability that the other one writes a turn.
        seed: of the choices.
    """

    own: Engine
    other: Engine
    share: float
    seed: int

    def __post_init__(self) -> None:
        self.is_concurrent = self.own.is_concurrent and self.other.is_concurrent
        self._session_count = 0

    def open(self, rows: int, capacity: int = 1024) -> CrossedSessions:
        """A session of `rows` empty rows of both models."""
        self._session_count += 1
        choices = random.Random(f"crossed {self.seed} {self._session_count}")
        return CrossedSessions(
            self.own.open(rows, capacity), self.other.open(rows, capacity), self.share, choices
        )

    def with_seed(self, seed: int) -> CrossedEngines:
        """The same two models, with other random streams."""
        return CrossedEngines(
            self.own.with_seed(seed), self.other.with_seed(seed + OTHER_STREAM), self.share, seed
        )


class CrossedSessions:
    """A `Session` of two others, over the same rows of tokens.

    Args:
        own: of the policy.
        other: of the other policy.
        share: probability that the other one writes a turn.
        choices: random numbers that say who writes.
    """

    def __init__(self, own: Session, other: Session, share: float, choices: random.Random) -> None:
        self.rows = own.rows
        self.longest = min(own.longest, other.longest)
        self._sessions = own, other
        self._share = share
        self._choices = choices
        self._unread: tuple[dict[int, list[int]], dict[int, list[int]]] = {}, {}

    @property
    def lengths(self) -> list[int]:
        """The token count of each row."""
        unread = self._unread[0]
        return [length + len(unread.get(row, ())) for row, length in enumerate(self._sessions[0].lengths)]

    def room(self, row: int) -> int:
        """How many more tokens `row` takes before it reaches the longest sequence of one model."""
        return min(
            session.room(row) - len(unread.get(row, ()))
            for session, unread in zip(self._sessions, self._unread, strict=True)
        )

    def append(self, tokens: Mapping[int, list[int]]) -> None:
        """Append tokens to rows.

        Raises:
            DataError: a row would exceed the longest sequence of a model.
        """
        for session, unread in zip(self._sessions, self._unread, strict=True):
            session.append({row: unread.pop(row, []) + new for row, new in tokens.items()})

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
    ) -> dict[int, Generation]:
        """Append the prompts, and let one of the models generate on each of their rows.

        See `Session.generate`.
        """
        writers = {row: int(self._choices.random() < self._share) for row in sorted(prompts)}
        generations: dict[int, Generation] = {}
        for writer, session in enumerate(self._sessions):
            rows = [row for row in prompts if writers[row] == writer]
            if not rows:
                continue
            unread = self._unread[writer]
            own_prompts = {row: unread.pop(row, []) + list(prompts[row]) for row in rows}
            generations |= session.generate(
                own_prompts, stop=stop, max_new_tokens=max_new_tokens, temperature=temperature
            )
            for row in rows:
                reader = self._unread[1 - writer]
                reader[row] = [*reader.get(row, ()), *prompts[row], *generations[row].tokens]
        return {row: generations[row] for row in prompts}

    def rewind(self, lengths: Mapping[int, int]) -> None:
        """Truncate each named row to its first `lengths[row]` tokens."""
        self._read(lengths)
        for session in self._sessions:
            session.rewind(lengths)

    def copy(self, sources: Mapping[int, int]) -> None:
        """Replace the tokens of each named row by those of row `sources[row]`."""
        self._read([*sources, *sources.values()])
        for session in self._sessions:
            session.copy(sources)

    def drop(self, rows: Iterable[int]) -> None:
        """Retire rows."""
        dropped = list(rows)
        for session, unread in zip(self._sessions, self._unread, strict=True):
            session.drop(dropped)
            for row in dropped:
                unread.pop(row, None)

    def clear(self, row: int) -> None:
        """Make `row` empty and usable."""
        for session, unread in zip(self._sessions, self._unread, strict=True):
            session.clear(row)
            unread.pop(row, None)

    def _read(self, rows: Iterable[int]) -> None:
        """Let both models read what they have not read of these rows."""
        named = set(rows)
        for session, unread in zip(self._sessions, self._unread, strict=True):
            tokens = {row: unread.pop(row) for row in named & set(unread)}
            if tokens:
                session.append(tokens)
