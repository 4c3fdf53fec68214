"""What a model's chat template writes between the messages of a conversation.

A template renders a finished conversation. Ours grows, and what was read or written is never rendered again.
So one conversation of known messages is rendered once and split at them (`ChatParts`). Every later
conversation is put together from these parts, as token ids.

1. A template that has no system turn (it raises, or leaves the message out) gets the system text in front of
   the first user message.
2. Dates are fixed: today's date would give other tokens every day.
3. A template may drop the thinking of earlier replies. Ours stay as they were written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from components.errors import ConfigError

DATE = "01 Jan 2025"
FIXED_DATE = "{%- macro strftime_now(form) -%}" + DATE + "{%- endmacro -%}"
"""Prefix of a template that replaces today's date."""
SYSTEM = "first-system-text"
MESSAGES = ("first-question", "first-reply", "second-question")
ROLES = ("user", "assistant", "user")


@dataclass(frozen=True)
class ChatParts:
    """The texts that a template writes around messages.

    Attributes:
        before_system: in front of the system text; None if the template has no system turn.
        before_user: between the system text and the first user message; without a system turn, in front of
            the first user message.
        before_reply: between a user message and the reply.
        after_reply: between a reply and the next user message.
    """

    before_system: str | None
    before_user: str
    before_reply: str
    after_reply: str


def chat_parts(tokenizer: Any) -> ChatParts:
    """The parts of the chat template of `tokenizer`.

    Raises:
        ConfigError: there is no template, it fails, or its output cannot be split at the messages.
    """
    if not tokenizer.chat_template:
        raise _unusable("there is none")
    messages = [{"role": role, "content": text} for role, text in zip(ROLES, MESSAGES, strict=True)]
    try:
        with_system = _split(_render(tokenizer, [{"role": "system", "content": SYSTEM}, *messages]), True)
        return ChatParts(*with_system[:4])
    except ConfigError:
        return ChatParts(None, *_split(_render(tokenizer, messages), False)[:3])


def _render(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    try:
        template = FIXED_DATE + tokenizer.get_chat_template()
        return str(
            tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, date_string=DATE)
        )
    except Exception as error:  # a template is a program and may raise any exception
        raise _unusable(f"it fails with {type(error).__name__}: {error}") from error


def _split(text: str, has_system: bool) -> list[str]:
    """The texts before, between and after the messages.

    Raises:
        ConfigError: the messages do not occur once each, in order.
    """
    expected = [SYSTEM, *MESSAGES] if has_system else list(MESSAGES)
    pattern = "|".join(expected)
    if re.findall(pattern, text) != expected:
        raise _unusable(f"it renders a question, a reply and a question as {text!r}")
    return re.split(pattern, text)


def _unusable(reason: str) -> ConfigError:
    return ConfigError(
        f"The chat template of the model cannot be used: {reason}.",
        "Expected one that renders user and assistant in turn, each message once.",
        "Set backbone.format=compact, which needs no template.",
    )
