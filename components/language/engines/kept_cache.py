"""Batched generation in this process, with a cache that is kept from step to step of an episode.

A row is one conversation: a growing prefix in the cache. What was computed once is not computed again; a
volatile part (demonstrations, an answer) is generated behind the prefix and dropped by `rewind`, at no cost.
Rows have lengths of their own and no holes; rows that have stopped leave the batch while the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from components.errors import ConfigError, DataError
from components.language.backbone import (
    PROBE_TOLERANCE,
    has_plain_head,
    longest_sequence,
    shorter_or_longer,
    without_adapters,
)
from components.language.engines.key_value_cache import KeptCache
from components.language.kernels.cache_attention import KEPT, attention_of, evaluating
from components.language.kernels.fused_decoder import PASS_TOKENS, FusedDecoder, Span, can_fuse
from components.language.sampled_ids import last_known_id, without_unknown
from components.language.tokenizer import Vocabulary
from components.language.torch_seeds import torch_seed

PREFILL_TOKENS = 8192  # computed in one pass, which bounds the size of its mask
MIN_PREFILL = 32  # columns of a pass: below, its fixed cost outweighs the padding
MOVES_PER_TOKEN = 40  # cached tokens moved in the time that computes one new token
COMPACT_BELOW = 0.75  # share of rows still writing at which the others leave the batch
PROBE_TOLERANCE_BF16 = 0.1


@dataclass
class Generation:
    """Tokens that one row generated, the stop token included.

    `logprobs` are in nats under the distribution sampled from (softmax at the temperature; at temperature 0
    the plain softmax). `stopped` is False if `max_new_tokens` or the model's longest sequence came first.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


class KeptCacheEngine:
    """Opens sessions of batched generation on `model`, whose weights may go on changing between sessions (not
    within one).

    Raises:
        ConfigError: the model's architecture gives other numbers with a kept cache than without.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, vocabulary: Vocabulary, *, seed: int = 0) -> None:
        self.model = without_adapters(model)
        self.vocabulary = vocabulary
        self.seed = seed
        self._opened = 0
        if not has_plain_head(self.model):
            probe_kept_cache(self.model)

    def open(self, rows: int, capacity: int = 1024) -> Session:
        """A session of `rows` empty rows; `capacity` tokens a row are allocated at first. Each session has
        its own random stream.
        """
        self._opened += 1
        return Session(self.model, rows, capacity, seed=self.seed * 1_000_003 + self._opened)


class Session:
    """Rows 0 to `rows - 1`, each a growing sequence of tokens.

    `rows` counts them; `lengths[row]` counts the row's tokens. The last generated token of a row is counted
    but computed only with the next ones (`_pending`). Inside, a row lives in a slot of the cache; slots are
    swapped so that the rows at work are neighbours.
    """

    def __init__(self, model: PreTrainedModel, rows: int, capacity: int, seed: int) -> None:
        if rows < 1:
            raise ValueError(f"a session of {rows} rows; expected at least one")
        self.model, self.rows = model, rows
        self.device = model.device
        self.longest = longest_sequence(model.config)
        self._cache = KeptCache(model.config.num_hidden_layers, rows, min(capacity, self.longest))
        self._fused = FusedDecoder(model) if can_fuse(model) else None
        self._cached = [0] * rows
        self._pending: list[list[int]] = [[] for _ in range(rows)]
        self._slot = list(range(rows))
        self._row = list(range(rows))
        self._active = set(range(rows))
        self._random = torch.Generator(device=self.device)
        self._random.manual_seed(torch_seed(seed))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [cached + len(pending) for cached, pending in zip(self._cached, self._pending, strict=True)]

    def room(self, row: int) -> int:
        """Tokens that still fit behind `row` before the model's longest sequence is reached."""
        return self.longest - self._cached[row] - len(self._pending[row])

    def append(self, tokens: Mapping[int, list[int]]) -> None:
        """Put tokens behind rows, all rows in one batch.

        Raises:
            DataError: a row would be longer than the model's longest sequence.
        """
        wanted = {row: new for row, new in tokens.items() if new}
        if wanted:
            self._check(wanted)
            with evaluating(self.model), attention_of(self.model, KEPT):
                self._feed(wanted)

    def generate(
        self,
        prompts: Mapping[int, list[int]],
        *,
        stop: set[int],
        max_new_tokens: int,
        temperature: float,
        force: Mapping[int, list[int]] | None = None,
    ) -> dict[int, Generation]:
        """Append the prompts, then let each row write until a token of `stop` or `max_new_tokens`;
        temperature 0 is greedy.

        `force[row]` are tokens that the row must write first; they count, and their log-probabilities are
        recorded as well. Prompt and generated tokens, the stop token included, are behind the row afterwards.

        Raises:
            DataError: a prompt does not fit behind its row.
            ValueError: an empty prompt, or a row without anything to go on from.
        """
        if not prompts:
            return {}
        empty = [row for row, prompt in prompts.items() if not prompt and not self._pending[row]]
        if empty:
            raise ValueError(
                f"rows {empty} have an empty prompt and nothing pending; expected at least one token to go "
                "on from"
            )
        self._check(prompts, beyond=1)
        with evaluating(self.model), attention_of(self.model, KEPT):
            return _Decoding(self, stop, max_new_tokens, temperature, force or {}).run(prompts)

    def rewind(self, lengths: Mapping[int, int]) -> None:
        """Forget what stands behind the first `lengths[row]` tokens of each row named.

        Raises:
            ValueError: a row has fewer tokens than that.
        """
        for row, length in lengths.items():
            now = self._cached[row] + len(self._pending[row])
            if not 0 <= length <= now:
                raise ValueError(f"row {row} has {now} tokens and cannot be rewound to {length}")
            self._pending[row] = self._pending[row][: max(0, length - self._cached[row])]
            self._cached[row] = min(self._cached[row], length)

    def copy(self, sources: Mapping[int, int]) -> None:
        """Make each row named the same as another: `sources[row]` is the row whose tokens it takes in place
        of its own.

        Raises:
            ValueError: a row was dropped, or is both taken from and given to.
        """
        both = set(sources) & set(sources.values())
        gone = (set(sources) | set(sources.values())) - self._active
        if both or gone:
            raise ValueError(
                f"rows {sorted(both | gone)} cannot be copied: dropped, never opened, or both source and "
                "target"
            )
        if sources:
            longest = max(self._cached[source] for source in sources.values())
            with torch.inference_mode():
                self._cache.move(
                    [self._slot[source] for source in sources.values()],
                    [self._slot[row] for row in sources],
                    longest,
                )
        for row, source in sources.items():
            self._cached[row], self._pending[row] = self._cached[source], list(self._pending[source])

    def drop(self, rows: Iterable[int]) -> None:
        """Forget finished rows for good; they cost nothing any more and take no tokens."""
        for row in rows:
            self._active.discard(row)
            self._cached[row], self._pending[row] = 0, []

    def clear(self, row: int) -> None:
        """Make `row` empty and usable again, whether it was dropped or holds something."""
        self._active.add(row)
        self._cached[row], self._pending[row] = 0, []

    def _check(self, tokens: Mapping[int, list[int]], beyond: int = 0) -> None:
        gone = [row for row in tokens if row not in self._active]
        if gone:
            raise ValueError(f"rows {gone} were dropped or never opened")
        for row, new in tokens.items():
            if len(new) + beyond > self.room(row):
                raise DataError(
                    f"Row {row} would have {self.longest - self.room(row) + len(new) + beyond} tokens.",
                    f"The model takes {self.longest}.",
                    shorter_or_longer(self.model.config),
                )

    def _feed(self, tokens: Mapping[int, list[int]]) -> Tensor:
        """Compute pending and new tokens of the rows; returns the logits [rows in that order, V] behind each
        row's last token.
        """
        new = {row: self._pending[row] + list(given) for row, given in tokens.items()}
        if self._fused is not None:
            return self._feed_fused(self._fused, new)
        order, is_sorted = self._prefill_order(new)
        self._arrange(order)
        last: dict[int, Tensor] = {}
        done = 0
        while order:
            left = [len(new[row]) - done for row in order]
            # Longest first, the rows still at it are a prefix: stop where the shortest ends and go on without
            # it.
            width = min(
                max(left),
                max(MIN_PREFILL, PREFILL_TOKENS // len(order)),
                max(MIN_PREFILL, min(left)) if is_sorted else max(left),
            )
            logits = self._forward(order, [new[row][done : done + width] for row in order])
            last |= {row: logits[place] for place, row in enumerate(order) if 0 < left[place] <= width}
            done += width
            order = (
                [row for row in order if len(new[row]) > done] if is_sorted or max(left) <= width else order
            )
        for row in new:
            self._pending[row] = []
        return torch.stack([last[row] for row in tokens])

    def _feed_fused(self, fused: FusedDecoder, new: Mapping[int, list[int]]) -> Tensor:
        """`_feed` without padding: passes of `PASS_TOKENS` tokens, in which a row may begin or end
        anywhere.
        """
        last: dict[int, Tensor] = {}
        places = ((row, start) for row, tokens in new.items() for start in range(0, len(tokens), PASS_TOKENS))
        left = [(row, start, new[row][start : start + PASS_TOKENS]) for row, start in places]
        while left:
            count, room = 0, PASS_TOKENS
            while count < len(left) and (room := room - len(left[count][2])) >= 0:
                count += 1
            now, left = left[:count], left[count:]
            spans = [Span(self._slot[row], self._cached[row] + start, len(part)) for row, start, part in now]
            logits = fused.logits(
                torch.tensor([token for _, _, part in now for token in part]), spans, self._cache
            )
            last |= {row: logits[place] for place, (row, _, _) in enumerate(now)}
        for row, tokens in new.items():
            self._cached[row] += len(tokens)
            self._pending[row] = []
        return torch.stack([last[row] for row in new])

    def _prefill_order(self, new: Mapping[int, list[int]]) -> tuple[list[int], bool]:
        """Rows in slot order, or longest first (and True) where the padding that it saves outweighs moving
        the rows.
        """
        counts = [len(tokens) for tokens in new.values()]
        padding = max(counts) * len(counts) - sum(counts)
        if padding * MOVES_PER_TOKEN > sum(self._cached[row] for row in new):
            return sorted(new, key=lambda row: (-len(new[row]), self._slot[row])), True
        return self._close_ranks(list(new)), False

    def _forward(self, order: list[int], chunks: list[list[int]]) -> Tensor:
        """One pass over rows in the slots 0, 1, ...; returns the logits [rows, V] behind the last token of
        each chunk.
        """
        if self._fused is not None:
            spans = [
                Span(slot, self._cached[row], len(chunk))
                for slot, (row, chunk) in enumerate(zip(order, chunks, strict=True))
            ]
            for row, chunk in zip(order, chunks, strict=True):
                self._cached[row] += len(chunk)
            return self._fused.logits(
                torch.tensor([token for chunk in chunks for token in chunk]), spans, self._cache
            )
        width = max(len(chunk) for chunk in chunks)
        ids = torch.tensor([chunk + [0] * (width - len(chunk)) for chunk in chunks], device=self.device)
        starts = torch.tensor([self._cached[row] for row in order], device=self.device)
        ends = torch.tensor([len(chunk) - 1 for chunk in chunks], device=self.device)
        logits = self._logits(ids, starts, ends)
        for row, chunk in zip(order, chunks, strict=True):
            self._cached[row] += len(chunk)
        return logits

    def _logits(self, ids: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """Tokens ids [B, L] behind the first `starts` [B] tokens of slots 0 to B - 1; fp32 logits [B, V] at
        column `ends` [B].
        """
        positions = starts[:, None] + torch.arange(ids.shape[1], device=self.device)
        self._cache.aim(positions)
        hidden_from = (
            torch.arange(self._cache.reach, device=self.device)[None, None, :] > positions[:, :, None]
        )
        mask = torch.zeros(hidden_from.shape, dtype=self.model.dtype, device=self.device).masked_fill_(
            hidden_from, float("-inf")
        )
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "position_ids": positions.clamp(max=self.longest - 1),
            "attention_mask": mask[:, None],
            "past_key_values": self._cache,
            "use_cache": True,
        }
        rows = torch.arange(len(ids), device=self.device)
        if not has_plain_head(self.model):
            return self.model(**inputs).logits[rows, ends].float()
        hidden = self.model.get_decoder()(**inputs).last_hidden_state
        return self.model.get_output_embeddings()(hidden[rows, ends]).float()

    def _close_ranks(self, rows: list[int]) -> list[int]:
        """`rows` in an order for the first slots that leaves those already there where they are."""
        front = {self._slot[row]: row for row in rows if self._slot[row] < len(rows)}
        movers = [row for row in rows if self._slot[row] >= len(rows)]
        return [front[slot] if slot in front else movers.pop() for slot in range(len(rows))]

    def _arrange(self, order: list[int]) -> None:
        """Bring the rows of `order` into the slots 0, 1, ...; whoever is in the way swaps places."""
        row_in, slot_of = list(self._row), list(self._slot)
        for slot, row in enumerate(order):
            other, old = row_in[slot], slot_of[row]
            row_in[slot], row_in[old] = row, other
            slot_of[row], slot_of[other] = slot, old
        moved = [row for row, slot in enumerate(slot_of) if slot != self._slot[row] and self._cached[row]]
        if moved:
            longest = max(self._cached[row] for row in moved)
            self._cache.move([self._slot[row] for row in moved], [slot_of[row] for row in moved], longest)
        self._row, self._slot = row_in, slot_of


class _Decoding:
    """One call of `Session.generate`: which rows still write, and what they have written."""

    def __init__(
        self, session: Session, stop: set[int], limit: int, temperature: float, force: Mapping[int, list[int]]
    ) -> None:
        self.session, self.stop, self.limit, self.temperature, self.force = (
            session,
            stop,
            limit,
            temperature,
            force,
        )
        self.out: dict[int, Generation] = {}

    def run(self, prompts: Mapping[int, list[int]]) -> dict[int, Generation]:
        """Prefill, then token by token while a row still writes; the result has the order of `prompts`."""
        session = self.session
        self.out = {row: Generation() for row in prompts}
        given = list(prompts)
        logits = session._feed(prompts)
        rows = session._close_ranks(given)
        session._arrange(rows)
        logits = logits[torch.tensor([given.index(row) for row in rows], device=session.device)]
        writing = set(rows) if self.limit > 0 else set()
        while writing:
            writing -= self._write(rows, logits, writing)
            if not writing:
                break
            if len(writing) <= COMPACT_BELOW * len(rows):
                rows = session._close_ranks([row for row in rows if row in writing])
                session._arrange(rows)
            logits = self._advance(rows, writing)
        return self.out

    def _write(self, rows: list[int], logits: Tensor, writing: set[int]) -> set[int]:
        """Choose the next token of each row that writes; returns the rows that end with it."""
        tokens, logprobs = self._choose(rows, logits)
        ended = set()
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            if row not in writing:
                continue
            generation = self.out[row]
            generation.tokens.append(token)
            generation.logprobs.append(logprob)
            generation.stopped = token in self.stop
            self.session._pending[row] = [token]
            if generation.stopped or len(generation.tokens) >= self.limit or self.session.room(row) < 1:
                ended.add(row)
        return ended

    def _choose(self, rows: list[int], logits: Tensor) -> tuple[list[int], list[float]]:
        known = without_unknown(self.session.model, logits)
        distribution = torch.log_softmax(known / self.temperature if self.temperature > 0 else known, dim=-1)
        if self.temperature > 0:
            tokens = self._sample(distribution)
        else:
            tokens = distribution.argmax(-1, keepdim=True)
        for place, row in enumerate(rows):
            forced = self.force.get(row, [])
            if len(self.out[row].tokens) < len(forced):
                tokens[place, 0] = forced[len(self.out[row].tokens)]
        return tokens[:, 0].tolist(), distribution.gather(1, tokens)[:, 0].tolist()

    def _sample(self, distribution: Tensor) -> Tensor:
        """One token of each row's log-probabilities [B, V], by inversion: several times faster than
        torch.multinomial on a CPU.
        """
        cumulated = distribution.exp().cumsum(-1)
        drawn = torch.rand(len(distribution), 1, generator=self.session._random, device=distribution.device)
        tokens = torch.searchsorted(cumulated, drawn * cumulated[:, -1:], right=True)
        return tokens.clamp(max=last_known_id(self.session.model, distribution.shape[1]))

    def _advance(self, rows: list[int], writing: set[int]) -> Tensor:
        """Compute the token just written of every row; rows that have ended ride along and keep theirs
        pending.
        """
        session = self.session
        logits = session._forward(rows, [session._pending[row] for row in rows])
        for row in rows:
            if row in writing:
                session._pending[row] = []
            else:
                session._cached[row] -= 1
        return logits


def probe_kept_cache(model: PreTrainedModel) -> None:
    """Compare a ragged session with plain forward passes on an architecture that is not known to agree.

    Raises:
        ConfigError: it says something else, or cannot be computed so.
    """
    texts = {0: [1, 2, 3, 4, 5], 1: [3, 1]}
    cure = "Use a backbone of another architecture, for example Llama, Qwen or Mistral."
    name = model.config.model_type
    tolerance = PROBE_TOLERANCE if model.dtype == torch.float32 else PROBE_TOLERANCE_BF16
    try:
        session = Session(model, 2, 16, seed=0)
        session.append({0: texts[0][:2]})
        kept = session.generate({0: texts[0][2:], 1: texts[1]}, stop=set(), max_new_tokens=1, temperature=0.0)
        # The plainest attention there is: where it says something else, ours leaves out what the architecture
        # adds to attention.
        with torch.inference_mode(), attention_of(model, "eager"):
            for row, tokens in texts.items():
                plain = model(input_ids=torch.tensor([tokens], device=model.device)).logits[0, -1].float()
                plain = without_unknown(model, plain).log_softmax(-1)
                gap = abs(float(plain[kept[row].tokens[0]]) - kept[row].logprobs[0])
                if not gap < tolerance:
                    raise ConfigError(
                        f"With a kept cache {name} is off by {gap:.2g} nats.",
                        "Expected the same numbers as without.",
                        cure,
                    )
    except (TypeError, AttributeError, RuntimeError, IndexError, KeyError, ValueError) as error:
        found = f"The architecture {name} cannot use the kept cache: {str(error).rstrip('.')}."
        raise ConfigError(found, "Expected attention that the kept cache computes alike.", cure) from error
