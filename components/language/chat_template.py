"""The tokens that a backbone's chat template writes between the messages of a conversation.

A template renders a finished conversation. A prompt grows instead, and its beginning must not change, or the
kept cache would be useless. So one conversation of known messages is rendered and split: the text before the
first user message, between it and the reply, and between the reply and the next user message. A prompt names
these places by `Frame`s. Without a template nothing is inserted there, except the token that a tokenizer puts
before every text.

Intended differences from the template:

1. The template's own system prompt is kept if it has one; none is added.
2. Dates are fixed.
3. Nothing is written after the last reply: our stop markers end it.
"""

from __future__ import annotations

import re
from typing import Any

from components.errors import ConfigError
from components.language.markers import ANSWER, FRAMES, OPENING, RESUME, Frame

DATE = "01 Jan 2025"
FIXED_DATE = "{%- macro strftime_now(form) -%}" + DATE + "{%- endmacro -%}"
"""Prefix of a template that replaces today's date, which would give other tokens every day."""
MESSAGES = ("first-question", "first-reply", "second-question")


def frames_of(tokenizer: Any) -> dict[Frame, list[int]]:
    """The tokens at each `Frame`, by the chat template of `tokenizer` if it has one.

    Raises:
        ConfigError: the template fails, or its output cannot be split.
    """
    if not tokenizer.chat_template:
        return {OPENING: _first_token(tokenizer), ANSWER: [], RESUME: []}
    opening, answer, resume, _ = _split_at_messages(_render_conversation(tokenizer))
    texts = dict(zip((OPENING, ANSWER, RESUME), (opening, answer, resume), strict=True))
    return {frame: _encode_special(tokenizer, texts[frame]) for frame in FRAMES}


def _first_token(tokenizer: Any) -> list[int]:
    """The token that the tokenizer puts before every text, or nothing."""
    return [index for index in tokenizer("")["input_ids"][:1] if index == tokenizer.bos_token_id]


def _render_conversation(tokenizer: Any) -> str:
    """The conversation of `MESSAGES` as the template renders it."""
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": content} for role, content in zip(roles, MESSAGES, strict=True)]
    try:
        template = FIXED_DATE + tokenizer.get_chat_template()
        return str(
            tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, date_string=DATE)
        )
    except Exception as error:  # a template is a program and may raise any exception
        raise _unusable_template(f"it fails with {type(error).__name__}: {error}") from error


def _split_at_messages(text: str) -> list[str]:
    """The texts before, between and after `MESSAGES`.

    Raises:
        ConfigError: the messages do not occur once each, in order.
    """
    parts = re.split("|".join(MESSAGES), text)
    if re.findall("|".join(MESSAGES), text) != list(MESSAGES):
        raise _unusable_template(f"it renders a question, a reply and a question as {text!r}")
    return parts


def _encode_special(tokenizer: Any, text: str) -> list[int]:
    """Token ids of `text`, with the names of special tokens encoded as these tokens."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = False
    try:
        return list(backend.encode(text, add_special_tokens=False).ids)
    finally:
        backend.encode_special_tokens = True


def _unusable_template(reason: str) -> ConfigError:
    return ConfigError(
        f"The chat template of the backbone cannot be used: {reason}.",
        "Expected one that renders user and assistant in turn, each message once.",
        "Set backbone.chat_template=off.",
    )
