"""The engine vLLM: sessions whose rows are lists of tokens.

vLLM's prefix cache recognises a row by its tokens, so a row that goes on costs its new tokens alone, as far
as its cache has room. `rewind` and `copy` cost nothing. A row has a random stream of its own, so its tokens
do not depend on the rows beside it, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from components.language.engines.active_rows import ActiveRows, require_start
from components.language.engines.engine_protocol import Generation
from components.language.engines.vllm.requests import Request

Role = Literal["policy", "experience-model"]
ROLES = get_args(Role)
"""The two models of a run, as servers that hold all weights of one of them call it."""


class ModelHost(Protocol):
    """A vLLM that computes as one model: in this process, or behind servers."""

    signature: str
    syncs: int

    @property
    def gap(self) -> float:
        """Mean difference in nats between trainer and vLLM on the probe, at the last sync."""

    def take_weights(self, model: Any) -> None:
        """Compute as `model` from now on; nothing happens if its weights are here already.

        Raises:
            TrainingError: the weights did not arrive.
        """

    def generate(
        self, requests: Sequence[Request], *, stop: set[int], temperature: float
    ) -> list[Generation]:
        """Continue each request; the generations in their order.

        Raises:
            TrainingError: vLLM failed.
        """

    def close(self) -> None:
        """Free what it holds."""


class VllmEngine:
    """Opens sessions on the model that `host` holds.

    Args:
        host: holds the weights; they may change between sessions, but not within one.
        config: of the model, which bounds the length of a row.
        seed: each session derives its own random stream from it.
    """

    is_concurrent = True

    def __init__(self, host: ModelHost, config: object, *, seed: int = 0) -> None:
        self.host = host
        self.seed = seed
        self._config = config
        self._session_count = 0

    def open(self, rows: int, capacity: int = 1024) -> VllmSession:
        """A session of `rows` empty rows; vLLM allots memory itself, so `capacity` has no effect."""
        self._session_count += 1
        return VllmSession(self.host, self._config, rows, self.seed * 1_000_003 + self._session_count)

    def with_seed(self, seed: int) -> VllmEngine:
        """An engine over the same weights, with another random stream."""
        return VllmEngine(self.host, self._config, seed=seed)


class VllmSession:
    """Rows 0 to `rows - 1`, each a growing sequence of tokens. Implements `protocol.Session`."""

    def __init__(self, host: ModelHost, config: object, rows: int, seed: int) -> None:
        self.rows = rows
        self._host = host
        self._active = ActiveRows(rows, config)
        self.longest = self._active.longest
        self._tokens: list[list[int]] = [[] for _ in range(rows)]
        self._seed = seed
        self._calls = [0] * rows

    @property
    def lengths(self) -> list[int]:
        """The token count of each row."""
        return [len(tokens) for tokens in self._tokens]

    def room(self, row: int) -> int:
        """How many more tokens `row` takes before it reaches the model's longest sequence."""
        return self.longest - len(self._tokens[row])

    def append(self, tokens: Mapping[int, list[int]]) -> None:
        """Append tokens to rows; they are computed with the next generation.

        Raises:
            DataError: a row would exceed the model's longest sequence.
        """
        self._active.require_fit({row: added for row, added in tokens.items() if added}, self.room)
        for row, added in tokens.items():
            self._tokens[row] = self._tokens[row] + added

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
    ) -> dict[int, Generation]:
        """Append the prompts, then generate on each of their rows until a stop token or `max_new_tokens`.

        Raises:
            DataError: a prompt does not fit.
            TrainingError: vLLM failed.
            ValueError: a row has neither a prompt nor a token to continue from.
        """
        if not prompts:
            return {}
        require_start([row for row, prompt in prompts.items() if not prompt and not self._tokens[row]])
        self._active.require_fit(prompts, self.room, extra_tokens=1)
        for row, prompt in prompts.items():
            self._tokens[row] = self._tokens[row] + prompt
        if max_new_tokens < 1:
            return {row: Generation() for row in prompts}
        requests = [
            Request(
                self._tokens[row],
                self._row_seed(row),
                min(max_new_tokens, self.room(row)),
                affinity=hash((self._seed, row)),
            )
            for row in prompts
        ]
        generations = self._host.generate(requests, stop=stop, temperature=temperature)
        for row, generation in zip(prompts, generations, strict=True):
            self._tokens[row] = self._tokens[row] + generation.tokens
        return dict(zip(prompts, generations, strict=True))

    def _row_seed(self, row: int) -> int:
        """A seed of 63 bits for the next call of this row, which no other row has an effect on."""
        self._calls[row] += 1
        return hash((self._seed, self._calls[row], row)) & (2**63 - 1)

    def rewind(self, lengths: Mapping[int, int]) -> None:
        """Truncate each named row to its first `lengths[row]` tokens.

        Raises:
            ValueError: a row has fewer tokens than that.
        """
        for row, length in lengths.items():
            if not 0 <= length <= len(self._tokens[row]):
                raise ValueError(
                    f"row {row} has {len(self._tokens[row])} tokens and cannot be rewound to {length}"
                )
            self._tokens[row] = self._tokens[row][:length]

    def copy(self, sources: Mapping[int, int]) -> None:
        """Replace the tokens of each named row by those of row `sources[row]`.

        Raises:
            ValueError: a row was dropped, or is both a source and a target.
        """
        self._active.require_copyable(sources)
        for row, source in sources.items():
            self._tokens[row] = list(self._tokens[source])

    def drop(self, rows: Iterable[int]) -> None:
        """Retire rows: they take no more tokens and cost nothing."""
        for row in rows:
            self._active.drop([row])
            self._tokens[row] = []

    def clear(self, row: int) -> None:
        """Make `row` empty and usable, whether or not it was dropped."""
        self._active.revive(row)
        self._tokens[row] = []
