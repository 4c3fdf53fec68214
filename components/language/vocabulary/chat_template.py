"""What a model's chat template writes between the messages of a conversation.

A template renders a finished conversation. Ours grows, and what was read or written is never rendered again.
So one conversation of known messages is rendered once and split at them (`ChatParts`). Every later
conversation is put together from these parts, as token ids.

1. A template that has no system turn (it raises, or leaves the message out) gets the system text in front of
   the first user message.
2. Dates are fixed: today's date would give other tokens every day.
3. A template may drop the thinking of earlier replies. Ours stay as they were written.
4. A template may ask for a reply with more than it writes before a finished one: Qwen3.5 without thinking
   puts an empty block of thinking there. That block is then before every reply. A block that is left open,
   which asks the model to think, is not.

Where the template would render a conversation differently, `own_template` takes its place in a saved model,
so that a server that renders it sends the tokens that the model was trained on.
"""

from __future__ import annotations

import json
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
    system = [{"role": "system", "content": SYSTEM}]
    try:
        before_system, *parts = _split(_render(tokenizer, system + messages), True)
    except ConfigError:
        system, before_system = [], None
        parts = _split(_render(tokenizer, messages), False)
    before_user, before_reply, after_reply = parts[:3]
    asked = _render(tokenizer, system + messages[:1], add_generation_prompt=True)
    before_asked = asked.rpartition(MESSAGES[0])[2]
    if before_asked.startswith(before_reply) and not _leaves_thinking_open(before_asked):
        before_reply = before_asked
    return ChatParts(before_system, before_user, before_reply, after_reply.lstrip())


def renders_as(tokenizer: Any, parts: ChatParts) -> bool:
    """Whether a server that renders the template, with nothing set, sends what `parts` put together.

    Whitespace at the ends of messages, which some templates cut off, is not looked at.
    """
    if (
        parts.before_system is None
    ):  # a client sends a system message, which `begin` puts in front of the first
        return False
    question, reply, second = MESSAGES[0], f"<think>x</think>{MESSAGES[1]}", MESSAGES[2]
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [
        {"role": role, "content": text} for role, text in zip(ROLES, (question, reply, second), strict=True)
    ]
    expected = f"{parts.before_system}{SYSTEM}"
    expected += f"{parts.before_user}{question}{parts.before_reply}{reply}{parts.after_reply}{second}"
    expected += parts.before_reply
    try:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception:  # a template is a program and may raise any exception
        return False
    return bool(rendered == expected)


def own_template(parts: ChatParts, end: str) -> str:
    """A Jinja template that renders a conversation of user and assistant in turn from `parts`.

    Without a system turn a system message is put in front of the first user message.

    Args:
        end: text of the token that ends a reply; behind a last reply nothing but it and whitespace stands.
    """
    before_user, before_reply, after_reply = map(
        _quoted, (parts.before_user, parts.before_reply, parts.after_reply)
    )
    behind = parts.after_reply[len(end) :]
    last = _quoted(end + behind[: len(behind) - len(behind.lstrip())])
    told = "{% set told = messages[0]['content'] if messages and messages[0]['role'] == 'system' else '' %}"
    turns = "(messages[1:] if messages and messages[0]['role'] == 'system' else messages)"
    begin, first = f"{told}{{{{ {_quoted(parts.before_system or '')} + told }}}}", ""
    if parts.before_system is None:
        begin, first = told, "{% if loop.first and told %}{{ told + '\\n\\n' }}{% endif %}"
    return (
        f"{begin}{{% for turn in {turns} %}}"
        "{% if turn['role'] != ('assistant' if loop.index0 % 2 else 'user') %}"
        "{{ raise_exception('Expected user and assistant in turn, found ' + turn['role']) }}{% endif %}"
        "{% if turn['role'] == 'user' %}"
        f"{{{{ {before_user} if loop.first else {after_reply} }}}}{first}{{{{ turn['content'] }}}}"
        f"{{% if not loop.last or add_generation_prompt %}}{{{{ {before_reply} }}}}{{% endif %}}"
        f"{{% else %}}{{{{ turn['content'] }}}}{{% if loop.last %}}{{{{ {last} }}}}{{% endif %}}{{% endif %}}"
        "{% endfor %}"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _leaves_thinking_open(text: str) -> bool:
    return text.count("<think>") > text.count("</think>")


def _render(tokenizer: Any, messages: list[dict[str, str]], **settings: bool) -> str:
    """What the template writes without thinking, where it can be told so, and with a fixed date."""
    try:
        template = FIXED_DATE + tokenizer.get_chat_template()
        return str(
            tokenizer.apply_chat_template(
                messages,
                chat_template=template,
                tokenize=False,
                date_string=DATE,
                enable_thinking=False,
                **settings,
            )
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
