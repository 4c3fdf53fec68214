"""The vocabulary of format `chat`: conversations in a pretrained model's own template, without added tokens.

A conversation is put together as token ids and only grows: `begin`, then `reply_start`, a reply, `user`,
`reply_start`, a reply, and so on. Text is always encoded as plain text: a page that spells `<|im_end|>` ends
no turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from components.errors import ConfigError
from components.language.vocabulary.chat_template import (
    ChatParts,
    chat_parts,
    own_template,
    renders_as,
)
from components.language.vocabulary.vocabulary import Vocabulary

MAX_CACHED_TEXTS = 200_000
"""Most texts whose tokens are cached; a full cache is emptied."""


class ChatVocabulary(Vocabulary):
    """Encodes the turns of a conversation.

    Attributes:
        system: text of the system turn.
        reply_start: tokens between a user message and the reply.
        end_id: the token that ends a reply.
        stop_ids: all tokens at which a reply ends: `end_id`, and those that the tokenizer names.

    Args:
        tokenizer: a fast Hugging Face tokenizer with a chat template. One that would render a conversation
            differently from this class is replaced by `own_template`.
        system: text of the system turn.

    Raises:
        ConfigError: the chat template cannot be used, or ends replies with no special token.
        DataError: the tokenizer has no fast (Rust) backend.
    """

    format = "chat"

    def __init__(self, tokenizer: Any, system: str = "") -> None:
        super().__init__(tokenizer)
        self._backend = _within_a_sequence(self._backend)
        self.system = system
        added_tokens = self._backend.get_added_tokens_decoder()
        self._special_ids = {index for index, token in added_tokens.items() if token.special}
        self._control_ids = {index for index, token in added_tokens.items() if token.content.strip()}
        self._cached: dict[str, tuple[int, ...]] = {}
        self._parts = chat_parts(tokenizer)
        self.reply_start = self._encode_template(self._parts.before_reply)
        self._before_system = self._encode_template(self._parts.before_system or "")
        self._before_user = self._encode_template(self._parts.before_user)
        after_reply = self._encode_template(self._parts.after_reply)
        if not after_reply or after_reply[0] not in self._control_ids:
            raise _no_end_of_reply(self._parts)
        self.end_id = after_reply[0]
        if not renders_as(tokenizer, self._parts):
            tokenizer.chat_template = own_template(self._parts, added_tokens[self.end_id].content)
        self._after_end = after_reply[1:]
        end_of_sequence = tokenizer.eos_token_id
        self.stop_ids = {self.end_id} | ({end_of_sequence} if end_of_sequence is not None else set())

    @property
    def pad_id(self) -> int:
        """The tokenizer's padding token, or the token that ends a reply."""
        pad = self.tokenizer.pad_token_id
        return self.end_id if pad is None else int(pad)

    def begin(self, text: str) -> list[int]:
        """The tokens of the system turn and of the first user message `text`."""
        if self._parts.before_system is None:
            return self._before_user + self.encode(f"{self.system}\n\n{text}" if self.system else text)
        return self.system_turn() + self.encode(text)

    def system_turn(self) -> list[int]:
        """The tokens up to the first user message; nothing if the template has no system turn."""
        if self._parts.before_system is None:
            return []
        return self._before_system + self.encode(self.system) + self._before_user

    def user(self, text: str) -> list[int]:
        """The tokens behind `end_id` that add the user message `text`."""
        return self._after_end + self.encode(text)

    def reply(self, text: str) -> list[int]:
        """The tokens of a whole reply, `end_id` included."""
        return [*self.encode(text), self.end_id]

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, in which no control token of the template occurs, whatever it spells."""
        ids = self._cached.get(text)
        if ids is None:
            if len(self._cached) >= MAX_CACHED_TEXTS:
                self._cached.clear()
            ids = self._cached[text] = self._encode_as_plain_text(text)
        return list(ids)

    def reply_text(self, ids: Iterable[int]) -> str | None:
        """The text of a reply without the token that ended it; None if a control token stands within."""
        tokens = list(ids)
        if tokens and tokens[-1] in self.stop_ids:
            tokens.pop()
        if not self._special_ids.isdisjoint(tokens) or self.end_id in tokens:
            return None
        return self._backend.decode(tokens, skip_special_tokens=False)

    def decode(self, ids: Iterable[int]) -> str:
        """`ids` as one text for people, special tokens included."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def card(self) -> dict[str, Any]:
        """Format and system text."""
        return {"format": self.format, "system": self.system}

    def _encode_as_plain_text(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`: letter by letter if the tokenizer would find a control token in it."""
        ids = self._backend.encode(text, add_special_tokens=False).ids
        if self._control_ids.isdisjoint(ids):
            return tuple(ids)
        letters = [self._backend.encode(letter, add_special_tokens=False).ids for letter in text]
        return tuple(index for letter in letters for index in letter)

    def _encode_template(self, text: str) -> list[int]:
        """Token ids of a part of the template, with the names of special tokens encoded as these tokens.

        Not for a vocabulary in use: other threads would encode text in the same way.
        """
        self._backend.encode_special_tokens = False
        try:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        finally:
            self._backend.encode_special_tokens = True


def _within_a_sequence(backend: Tokenizer) -> Tokenizer:
    """`backend`, or a copy of it that encodes a text as it stands behind other tokens.

    Tokenizers of the SentencePiece kind put a space in front of a sequence. Of a conversation only its first
    part begins one, and the template writes that with a token of its own.
    """
    settings = json.loads(backend.to_str())
    parts = [settings.get("pre_tokenizer") or {}]
    parts += parts[0].get("pretokenizers", [])
    spaced = [part for part in parts if part.get("prepend_scheme") == "first"]
    if not spaced:
        return backend
    for part in spaced:
        part["prepend_scheme"] = "never"
    inner = Tokenizer.from_str(json.dumps(settings))
    inner.encode_special_tokens = backend.encode_special_tokens
    return inner


def _no_end_of_reply(parts: ChatParts) -> ConfigError:
    return ConfigError(
        f"The chat template of the model writes {parts.after_reply!r} after a reply.",
        "Expected it to begin with a token of its own that ends the reply, such as <|im_end|>.",
        "Set backbone.format=compact, which needs no template.",
    )
