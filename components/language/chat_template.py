"""Chat templates: what a backbone's template writes between the messages of a conversation, as tokens that a
prompt is built from.

A template renders a finished conversation; ours grows, and its beginning must stay as it is, or the cache of
it would be worth nothing. So a conversation of known messages is rendered once and taken apart: what stands
before the first user message, between it and the assistant's, and between that and the next user message. A
prompt names these places (`Frame`), and without a template nothing stands there, but for the token that a
tokenizer puts before every text.

Differs from the template on purpose: the template's own system prompt is kept if it has one and none is
added, dates are fixed, and nothing is written behind the last reply (our stop markers end it).
"""

from __future__ import annotations

import re
from typing import Any

from components.errors import ConfigError
from components.language.markers import ANSWER, FRAMES, OPENING, RESUME, Frame

DATE = "01 Jan 2025"
FIXED_DATE = (
    "{%- macro strftime_now(form) -%}" + DATE + "{%- endmacro -%}"
)  # today's date would give other tokens tomorrow
MESSAGES = ("first-question", "first-reply", "second-question")


def frames_of(tokenizer: Any) -> dict[Frame, list[int]]:
    """The tokens at each `Frame`, by the chat template of `tokenizer` if it has one.

    Raises:
        ConfigError: the template cannot be taken apart.
    """
    if not tokenizer.chat_template:
        return {OPENING: _first_token(tokenizer), ANSWER: [], RESUME: []}
    before, between, behind, _ = _take_apart(_rendered(tokenizer))
    parts = dict(zip((OPENING, ANSWER, RESUME), (before, between, behind), strict=True))
    return {frame: _tokens(tokenizer, parts[frame]) for frame in FRAMES}


def _first_token(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before every text by itself: its token for a beginning, or nothing."""
    return [index for index in tokenizer("")["input_ids"][:1] if index == tokenizer.bos_token_id]


def _rendered(tokenizer: Any) -> str:
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": content} for role, content in zip(roles, MESSAGES, strict=True)]
    try:
        template = FIXED_DATE + tokenizer.get_chat_template()
        return str(
            tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, date_string=DATE)
        )
    except Exception as error:  # a template is a program of its own, and raises what it likes
        raise _refused(f"it fails with {type(error).__name__}: {error}") from error


def _take_apart(text: str) -> list[str]:
    parts = re.split("|".join(MESSAGES), text)
    if re.findall("|".join(MESSAGES), text) != list(MESSAGES):
        raise _refused(f"it renders a question, a reply and a question as {text!r}")
    return parts


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """`text` as the template means it, its special tokens as such."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = False
    try:
        return list(backend.encode(text, add_special_tokens=False).ids)
    finally:
        backend.encode_special_tokens = True


def _refused(reason: str) -> ConfigError:
    return ConfigError(
        f"The chat template of the backbone cannot be used: {reason}.",
        "Expected one that renders user and assistant in turn, each message once.",
        "Set backbone.chat_template=off.",
    )
