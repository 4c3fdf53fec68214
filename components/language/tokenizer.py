"""The vocabulary: a byte-level BPE whose pieces are words, numbers and signs, or the tokenizer of any Hugging
Face model.

A word keeps its leading space and merges with its neighbours in one case only: a word and the small number
behind it name one thing, so a frequent "mug 1" is one token. To find it again in a long history then takes
one match instead of two, which decides what a model of a million parameters can copy; "mug" itself is another
token, and that the two belong together is learnt. The same text has the same tokens wherever it stands: every
piece and every line starts with exactly one added space, which `pieces` takes away again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from components.config import ChatTemplate
from components.errors import ConfigError, DataError
from components.language.chat_template import frames_of
from components.language.markers import END, MARKERS, PAD, Frame, Marker

BYTES = 256
MAX_CACHED_TEXTS = 200_000
PIECE = r"\n| ?\p{L}+(?: \p{N}{1,2}(?!\p{N}))?| ?\p{N}+| ?[^\s\p{L}\p{N}]|[^\S\n]+(?=[^\S\n]\S)|[^\S\n]+"


class Vocabulary:
    """Text and markers to token ids and back.

    Args:
        tokenizer: a fast Hugging Face tokenizer; markers that it lacks are added as special tokens.
        chat_template: "off" takes the tokenizer's chat template away, also from what is saved.

    Raises:
        DataError: the tokenizer has no fast (Rust) backend.
        ConfigError: its chat template cannot be used.
    """

    def __init__(self, tokenizer: Any, chat_template: ChatTemplate = "auto") -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(
                f"{type(tokenizer).__name__} has no fast backend.",
                "Expected a tokenizer.json.",
                "Convert it to one first.",
            )
        if chat_template == "off":
            tokenizer.chat_template = None
        there = tokenizer.get_vocab()
        tokenizer.add_tokens(
            [AddedToken(str(marker), special=True, normalized=False) for marker in MARKERS],
            special_tokens=True,
        )
        self.tokenizer = tokenizer
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._backend.encode_special_tokens = True
        known = self._backend.get_vocab(with_added_tokens=True)
        self._ids = {str(marker): known[marker] for marker in MARKERS}
        self._markers = {known[marker]: marker for marker in MARKERS}
        self.added = [index for index, marker in self._markers.items() if marker not in there]
        self.ids = sorted(set(known.values()))
        """All ids that stand for a token."""
        self._rows = max(known.values()) + 1
        self._rows_before = max(there.values(), default=-1) + 1
        self._frames = frames_of(tokenizer)
        self._cached: dict[str, tuple[int, ...]] = {}

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """A vocabulary of at most `size` tokens (markers and all bytes included) learnt from `texts`; the
        same texts give the same one.

        Raises:
            ConfigError: `size` has no room for the markers and the bytes.
            DataError: there is no text.
        """
        if size < BYTES + len(MARKERS):
            raise ConfigError(
                f"backbone.vocabulary is {size}.",
                f"The bytes and markers alone take {BYTES + len(MARKERS)}.",
                "Raise it.",
            )
        backend = _untrained()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[str(marker) for marker in MARKERS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        counted = _Counted(texts)
        backend.train_from_iterator(counted, trainer)
        if not counted.count:
            raise DataError(
                "There is no text to learn a vocabulary from.",
                next_step="Collect trajectories first: dreamgym collect.",
            )
        return cls(PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=str(PAD), eos_token=str(END)))

    @classmethod
    def load(cls, directory: Path | str, chat_template: ChatTemplate = "auto") -> Vocabulary:
        """The vocabulary saved in `directory`, or the tokenizer of any Hugging Face model there (or of that
        hub name).

        Raises:
            DataError: there is no tokenizer, or it cannot be read.
        """
        path = Path(directory)
        if (
            path.is_dir()
            and not (path / "tokenizer.json").is_file()
            and not (path / "tokenizer_config.json").is_file()
        ):
            raise DataError(
                f"{path} holds no tokenizer.json.",
                "Expected a tokenizer's files.",
                "Make the backbone: dreamgym pretrain.",
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(directory), trust_remote_code=False)
        except Exception as error:  # the tokenizers library raises bare exceptions
            raise DataError(
                f"The tokenizer in {directory} cannot be loaded: {error}",
                "Expected a directory with tokenizer.json.",
                "Check backbone.path, or make the backbone: dreamgym pretrain.",
            ) from error
        return cls(tokenizer, chat_template)

    def save(self, directory: Path | str) -> None:
        """Write tokenizer.json and its settings into `directory` (created if missing)."""
        self.tokenizer.save_pretrained(str(directory))

    def __len__(self) -> int:
        """The rows that an embedding needs: the highest id and one, markers included."""
        return self._rows

    @property
    def rows_before(self) -> int:
        """The rows that were needed before markers were added."""
        return self._rows_before

    def unknown_ids(self, rows: int) -> list[int]:
        """Of the ids 0 to `rows - 1` those that stand for no token: padding of the embeddings, and holes."""
        return sorted(set(range(rows)) - set(self.ids))

    @property
    def has_chat_template(self) -> bool:
        """True if prompts are wrapped by a chat template."""
        return bool(self.tokenizer.chat_template)

    def marker_id(self, marker: str) -> int:
        """The special id of `marker`.

        Raises:
            KeyError: it is none of `MARKERS`.
        """
        return self._ids[str(marker)]

    def encode_after_word(self, text: str) -> list[int]:
        """Token ids of `text` as it stands behind a word: with its leading space, where a vocabulary tells
        the two apart.
        """
        return self.encode([f"x{text}"])[len(self.encode(["x"])) :]

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """Token ids of `pieces`: a `Marker` becomes its special id, a `Frame` what the chat template writes
        there, if there is one.

        Every other string is plain text, whatever it spells.
        """
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, Marker):
                ids.append(self._ids[str(piece)])
            elif isinstance(piece, Frame):
                ids.extend(self._frames[piece])
            else:
                ids.extend(self._encode_text(piece))
        return ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The markers and the texts between them: what `encode` was given, with adjacent texts joined and
        stripped.
        """
        found: list[str] = []
        run: list[int] = []
        for index in ids:
            marker = self._markers.get(index)
            if marker is None:
                run.append(index)
                continue
            found += self._text(run)
            found.append(marker)
            run = []
        return found + self._text(run)

    def decode(self, ids: Iterable[int]) -> str:
        """`ids` as one text for people, markers shown. To parse an answer use `pieces`: only there a marker
        is told from its letters.
        """
        return " ".join(self.pieces(ids))

    def _encode_text(self, text: str) -> tuple[int, ...]:
        known = self._cached.get(text)
        if known is None:
            if len(self._cached) >= MAX_CACHED_TEXTS:
                self._cached.clear()
            known = self._cached[text] = self._encode_plainly(text)
        return known

    def _encode_plainly(self, text: str) -> tuple[int, ...]:
        spaced = _spaced(text)
        if not spaced:
            return ()
        ids = self._backend.encode(spaced, add_special_tokens=False).ids
        if self._markers.keys().isdisjoint(ids):
            return tuple(ids)
        letters = [self._backend.encode(letter, add_special_tokens=False).ids for letter in spaced]
        return tuple(index for letter in letters for index in letter)

    def _text(self, run: list[int]) -> list[str]:
        if not run:
            return []
        return [self._backend.decode(run, skip_special_tokens=False).replace("\n ", "\n").strip()]


class _Counted:
    """Texts, spaced as `encode` spaces them, and how many there were."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts, self.count = texts, 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.count += 1
            yield _spaced(text)


def _spaced(text: str) -> str:
    """`text` stripped, with one space before its first word and before each line, so that a word is the same
    token everywhere.
    """
    stripped = text.strip()
    return " " + stripped.replace("\n", "\n ") if stripped else ""


def _untrained() -> Any:
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECE), behavior="isolated")
    # Tokenizer's stubs declare these two attributes as read-only properties.
    untyped: Any = backend
    untyped.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    untyped.decoder = decoders.ByteLevel()
    return untyped
