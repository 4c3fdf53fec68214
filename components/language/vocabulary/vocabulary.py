"""What both text formats have in common: a tokenizer, its ids, and plain text as tokens."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer

from components.errors import DataError

CARD_FILE = "dreamgym.json"
"""File in a model's directory that names its text format."""


class Vocabulary(ABC):
    """A fast Hugging Face tokenizer and the ids of a model that uses it.

    Attributes:
        format: name of the text format: "compact" or "chat".
        added: ids of tokens that the tokenizer lacked, whose rows the model has never trained.
        ids: all ids that stand for a token, in ascending order.
        rows_before: how many rows an embedding needed before tokens were added.

    Raises:
        DataError: the tokenizer has no fast (Rust) backend.
    """

    format: ClassVar[str]

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.rows_before = _row_count(tokenizer)
        self.added: list[int] = []
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._backend.encode_special_tokens = True
        self.ids = sorted(set(self._backend.get_vocab(with_added_tokens=True).values()))

    def __len__(self) -> int:
        """How many rows an embedding needs: the highest id plus one."""
        return self.ids[-1] + 1

    @property
    @abstractmethod
    def pad_id(self) -> int:
        """The id that fills the rows of a batch; it is never read."""

    def unknown_ids(self, rows: int) -> list[int]:
        """The ids below `rows` that stand for no token: padding of the embeddings, and holes."""
        return sorted(set(range(rows)) - set(self.ids))

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """`ids` as one text for people, special tokens included."""

    def card(self) -> dict[str, Any]:
        """What `CARD_FILE` holds of this vocabulary."""
        return {"format": self.format}

    def save(self, directory: Path | str) -> None:
        """Write the tokenizer's files and the card to `directory`, created if missing."""
        self.tokenizer.save_pretrained(str(directory))
        text = json.dumps(self.card(), ensure_ascii=False, indent=1) + "\n"
        Path(directory, CARD_FILE).write_text(text, encoding="utf-8")


def require_fast(tokenizer: Any) -> None:
    """Raise DataError if `tokenizer` has no fast backend."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(
            f"{type(tokenizer).__name__} has no fast backend.",
            "Expected a tokenizer.json.",
            "Convert it to one first.",
        )


def _row_count(tokenizer: Any) -> int:
    require_fast(tokenizer)
    return max(tokenizer.get_vocab().values(), default=-1) + 1
