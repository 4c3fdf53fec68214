"""The interface of a generation engine: batched generation on rows of token ids.

An engine opens sessions. A session holds rows; each row is one growing sequence of tokens. Callers append to
rows, generate on them, rewind them, copy them and drop them. `kept_cache.py` implements it with transformers,
`vllm/vllm_engine.py` with vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Generation:
    """The tokens that one row generated, the stop token included.

    `logprobs` are in nats, under the distribution that was sampled from: the softmax at the temperature, at
    temperature 0 the plain softmax. `stopped` is False if `max_new_tokens` or the model's longest sequence
    ended the row.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


class Session(Protocol):
    """Rows 0 to `rows - 1`, each a growing sequence of token ids.

    `rows` counts them; `longest` is the model's longest sequence in tokens.
    """

    rows: int
    longest: int

    @property
    def lengths(self) -> list[int]:
        """The token count of each row."""

    def room(self, row: int) -> int:
        """How many more tokens `row` takes before it reaches the model's longest sequence."""

    def append(self, tokens: Mapping[int, list[int]]) -> None:
        """Append tokens to rows, all rows in one batch.

        Raises:
            DataError: a row would exceed the model's longest sequence.
        """

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
    ) -> dict[int, Generation]:
        """Append the prompts, then generate on each of their rows until a stop token or `max_new_tokens`.

        Args:
            prompts: tokens to append, by row.
            stop: token ids that end a row; the one that ends it belongs to the generation.
            max_new_tokens: limit for each row.
            temperature: of the softmax; 0 is greedy.

        Raises:
            DataError: a prompt does not fit.
            ValueError: a row has neither a prompt nor a token to continue from.
        """

    def rewind(self, lengths: Mapping[int, int]) -> None:
        """Truncate each named row to its first `lengths[row]` tokens.

        Raises:
            ValueError: a row has fewer tokens than that.
        """

    def copy(self, sources: Mapping[int, int]) -> None:
        """Replace the tokens of each named row by those of row `sources[row]`.

        Raises:
            ValueError: a row was dropped, or is both a source and a target.
        """

    def drop(self, rows: Iterable[int]) -> None:
        """Retire rows: they take no more tokens and cost nothing."""

    def clear(self, row: int) -> None:
        """Make `row` empty and usable, whether or not it was dropped."""


class Engine(Protocol):
    """Opens sessions of batched generation on one model.

    `is_concurrent` is True if threads may generate in sessions of their own at the same time.
    """

    is_concurrent: bool

    def open(self, rows: int, capacity: int = 1024) -> Session:
        """A session of `rows` empty rows, with memory for `capacity` tokens a row at first."""

    def with_seed(self, seed: int) -> Engine:
        """An engine over the weights that this one was made with, with another random stream."""
