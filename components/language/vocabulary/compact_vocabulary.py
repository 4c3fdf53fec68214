"""The vocabulary of format `compact`: markers, and a byte-level BPE or the tokenizer of any model.

In the byte-level BPE a word keeps its leading space and merges with a neighbour in one case only: a small
number after it, because the two name one thing. So a frequent "mug 1" is one token. Finding it in a long
history then takes one match instead of two, which decides what a model of a million parameters can copy.
"mug" itself is another token; the model learns that the two are related. The same text has the same tokens
everywhere: every piece and every line starts with exactly one added space, which `pieces` removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from components.errors import ConfigError, DataError
from components.language.vocabulary.markers import END, MARKERS, PAD, Marker
from components.language.vocabulary.vocabulary import Vocabulary, require_fast

BYTES = 256
MAX_CACHED_TEXTS = 200_000
"""Most texts whose tokens are cached; a full cache is emptied."""
PIECE = r"\n| ?\p{L}+(?: \p{N}{1,2}(?!\p{N}))?| ?\p{N}+| ?[^\s\p{L}\p{N}]|[^\S\n]+(?=[^\S\n]\S)|[^\S\n]+"


class CompactVocabulary(Vocabulary):
    """Encodes text and markers to token ids, and decodes them.

    Attributes: start: the token that the tokenizer puts before every text, or nothing.

    Args:
        tokenizer: a fast Hugging Face tokenizer; markers that it lacks are added as special tokens.

    Raises:
        DataError: the tokenizer has no fast (Rust) backend.
    """

    format = "compact"

    def __init__(self, tokenizer: Any) -> None:
        require_fast(tokenizer)
        tokenizer.chat_template = None  # prompts are not those of a chat
        own_ids = tokenizer.get_vocab()
        tokenizer.add_tokens(
            [AddedToken(str(marker), special=True, normalized=False) for marker in MARKERS],
            special_tokens=True,
        )
        super().__init__(tokenizer)
        all_ids = self._backend.get_vocab(with_added_tokens=True)
        self._ids = {str(marker): all_ids[marker] for marker in MARKERS}
        self._markers = {all_ids[marker]: marker for marker in MARKERS}
        self.added = [index for index, marker in self._markers.items() if marker not in own_ids]
        self.rows_before = max(own_ids.values(), default=-1) + 1
        self.start = [index for index in tokenizer("")["input_ids"][:1] if index == tokenizer.bos_token_id]
        self._cached: dict[str, tuple[int, ...]] = {}

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> CompactVocabulary:
        """A vocabulary trained on `texts`; the same texts give the same vocabulary.

        Args:
            texts: read once.
            size: most tokens, markers and all bytes included.

        Raises:
            ConfigError: `size` is smaller than the markers and the bytes.
            DataError: there is no text.
        """
        if size < BYTES + len(MARKERS):
            raise ConfigError(
                f"backbone.vocabulary is {size}.",
                f"The bytes and markers alone take {BYTES + len(MARKERS)}.",
                "Raise it.",
            )
        backend = _untrained_backend()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[str(marker) for marker in MARKERS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        counted_texts = _CountedTexts(texts)
        backend.train_from_iterator(counted_texts, trainer)
        if not counted_texts.count:
            raise DataError(
                "There is no text to learn a vocabulary from.",
                next_step="Collect trajectories first: dreamgym collect.",
            )
        return cls(PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=str(PAD), eos_token=str(END)))

    @property
    def pad_id(self) -> int:
        """The id of the marker PAD."""
        return self.marker_id(PAD)

    def marker_id(self, marker: str) -> int:
        """The special id of `marker`.

        Raises:
            KeyError: it is not one of `MARKERS`.
        """
        return self._ids[str(marker)]

    def encode_after_word(self, text: str) -> list[int]:
        """Token ids of `text` as it occurs after a word.

        Many vocabularies have different tokens for a word with and without its leading space.
        """
        return self.encode([f"x{text}"])[len(self.encode(["x"])) :]

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """Token ids of `pieces`.

        A `Marker` becomes its special id. Every other string is plain text, whatever it spells.
        """
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, Marker):
                ids.append(self._ids[str(piece)])
            else:
                ids.extend(self._encode_text(piece))
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The markers and the texts between them: the inverse of `encode`, with adjacent texts joined."""
        pieces: list[str] = []
        text_ids: list[int] = []
        for index in ids:
            marker = self._markers.get(index)
            if marker is None:
                text_ids.append(index)
                continue
            pieces += self._decode_text(text_ids)
            pieces.append(marker)
            text_ids = []
        return pieces + self._decode_text(text_ids)

    def decode(self, ids: Iterable[int]) -> str:
        """`ids` as one text for people, markers included.

        To parse an answer use `pieces`: only there a marker differs from its letters.
        """
        return " ".join(self.pieces(ids))

    def _encode_text(self, text: str) -> tuple[int, ...]:
        """Token ids of plain text, from the cache if it is there."""
        ids = self._cached.get(text)
        if ids is None:
            if len(self._cached) >= MAX_CACHED_TEXTS:
                self._cached.clear()
            ids = self._cached[text] = self._encode_as_plain_text(text)
        return ids

    def _encode_as_plain_text(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without any marker: letter by letter if the backend would find one."""
        spaced = _spaced(text)
        if not spaced:
            return ()
        ids = self._backend.encode(spaced, add_special_tokens=False).ids
        if self._markers.keys().isdisjoint(ids):
            return tuple(ids)
        letters = [self._backend.encode(letter, add_special_tokens=False).ids for letter in spaced]
        return tuple(index for letter in letters for index in letter)

    def _decode_text(self, ids: list[int]) -> list[str]:
        """The text of `ids` without its added spaces, as a list of one; empty if there are no ids."""
        if not ids:
            return []
        return [self._backend.decode(ids, skip_special_tokens=False).replace("\n ", "\n").strip()]


class _CountedTexts:
    """Iterates over texts, with the spaces that `encode` adds, and counts them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.count += 1
            yield _spaced(text)


def _spaced(text: str) -> str:
    """`text` stripped, with one space before its first word and before each line.

    So a word is the same token everywhere.
    """
    stripped = text.strip()
    return " " + stripped.replace("\n", "\n ") if stripped else ""


def _untrained_backend() -> Any:
    """A byte-level BPE tokenizer without merges, which splits texts by `PIECE`."""
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECE), behavior="isolated")
    # Tokenizer's stubs declare these two attributes as read-only properties.
    untyped: Any = backend
    untyped.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    untyped.decoder = decoders.ByteLevel()
    return untyped
