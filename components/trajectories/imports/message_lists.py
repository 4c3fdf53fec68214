"""Message lists in the form of OpenAI's chat completions: `--as openai`.

A record is a list of messages, or an object with them under `messages` (or `conversation`, `conversations`,
`prompt` and `completion`, or `request.messages` and `response.choices` of a logged call). What stands beside
them may name the episode (`id`, `episode_id`, ...), the task (`task`, `instruction`, ...) and the outcome.

- The messages before the agent's first reply are what it saw first. System and developer messages describe
  the world.
- A reply with tool calls has the calls as its action, such as `open({"door": 2})`, parallel ones with `; `
  between them, and its text as its thought. Otherwise the text behind `Action:` is the action and the text
  before it the thought; a reply without `Action:` is an action as a whole. Text in `<think>` and
  `reasoning_content` is thought.
- The messages up to the next reply are the observation, results of parallel calls in the order of the calls.
  An episode in which one of them has a result and another has none is not used.
- A list of messages may be JSON text, as in columns of tables. The result of a tool that is a JSON object, a
  number or a truth value becomes JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.trajectories.imports.logged_episode import LoggedEpisode, LoggedStep, Unusable
from components.trajectories.imports.outcomes import OutcomeRule

NO_RESULT = "a parallel tool call without a result"
IDS = ("episode_id", "conversation_id", "session_id", "trace_id", "id", "uuid", "uid")
TASKS = ("instruction", "task", "goal", "objective", "question", "query")
_LISTS = ("messages", "conversation", "conversations", "trajectory")
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
"""Other names of roles -> the usual one."""
_ACTION = re.compile(r"^(?P<thought>.*?)^[ \t]*Action[ \t]*:[ \t]*(?P<action>\S.*)$", re.S | re.M)
_THOUGHT_LABEL = re.compile(r"^\s*Thought\s*:\s*")
_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.S)


def episode_of(
    record: Any, place: str, outcome: OutcomeRule, mask: Callable[[str], str] = lambda text: text
) -> LoggedEpisode:
    """The episode of one record.

    Args:
        place: where it stands.
        outcome: tells the episode's outcome.
        mask: applied to each text.

    Raises:
        Unusable: it has no messages, no reply, no observation, or something that is not text.
    """
    messages = [_Message(message, mask) for message in _messages(record)]
    fields = record if isinstance(record, Mapping) else {}
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    turns = _merged([message for message in messages if message.role != "system"])
    replies = [number for number, message in enumerate(turns) if message.role == "assistant"]
    if not replies:
        raise Unusable("no reply of an agent")
    before = _joined(turns[: replies[0]])
    if not before:
        raise Unusable("nothing that the agent saw before its first reply")
    steps = tuple(
        _step(turns[start], turns[start + 1 : end])
        for start, end in zip(replies, [*replies[1:], len(turns)], strict=True)
    )
    if any(step.observation is None for step in steps[:-1]):
        raise Unusable("two replies without an observation between them")
    instruction = next((mask(str(fields[name])) for name in TASKS if _is_words(fields.get(name))), before)
    episode_id = next((str(fields[name]) for name in IDS if fields.get(name) not in (None, "")), "")
    return LoggedEpisode(episode_id, place, system, instruction, before, steps, outcome(fields, steps))


def _messages(record: Any) -> Sequence[Any]:
    """The messages of a record, in order."""
    if isinstance(record, Mapping):
        lists = (_decoded(record.get(name)) for name in _LISTS)
        found: Any = next((value for value in lists if isinstance(value, list)), None)
        if found is None and isinstance(prompt := _decoded(record.get("prompt")), list):
            found = [*prompt, *_as_list(_decoded(record.get("completion")))]
        if found is None and isinstance(record.get("request"), Mapping):
            found = [*_as_list(record["request"].get("messages")), *_answers(record.get("response"))]
        record = found
    if not isinstance(record, list):
        raise Unusable("no list of messages")
    if not record:
        raise Unusable("an empty list of messages")
    return record


def _decoded(value: Any) -> Any:
    """The list that a text spells in JSON; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _answers(response: Any) -> list[Any]:
    """The message of a logged answer."""
    choices = _as_list(response.get("choices")) if isinstance(response, Mapping) else []
    return [
        choice["message"] for choice in choices[:1] if isinstance(choice, Mapping) and "message" in choice
    ]


class _Message:
    """One message: its role, its text, its thought, its calls as (id, action), the call that it answers."""

    def __init__(self, message: Any, mask: Callable[[str], str]) -> None:
        if not isinstance(message, Mapping):
            raise Unusable("a message that is no object", message)
        role = str(message.get("role", message.get("from", "")))
        self.role = _ROLES.get(role, role)
        if self.role not in ("system", "user", "assistant", "tool"):
            raise Unusable("an unknown role", role or message)
        content = message.get("content", message.get("value"))
        if self.role == "tool" and isinstance(content, Mapping | int | float):
            content = json.dumps(content, ensure_ascii=False)
        text = _text(content)
        thought = _text(message.get("reasoning_content", message.get("reasoning")))
        if self.role == "assistant" and (match := _THINK.match(text)):
            thought, text = thought or match[1], text[match.end() :]
        self.text = mask(text.strip())
        self.thought = mask(thought.strip())
        self.calls = [(call_id, mask(action)) for call_id, action in _calls(message)]
        self.answers = str(message.get("tool_call_id", ""))


def _text(content: Any) -> str:
    """The text of a message's content, which may be in parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Unusable("content that is not text", content)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise Unusable("content that is not text", kind)
    return "\n".join(parts)


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id, action) of each tool call."""
    calls = message.get("tool_calls") or []
    if message.get("function_call"):
        calls = [{"function": message["function_call"]}]
    if not isinstance(calls, list):
        raise Unusable("tool calls that are no list", calls)
    return [_call(call) for call in calls]


def _call(call: Any) -> tuple[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not _is_words(function.get("name")):
        raise Unusable("a tool call without a name", call)
    arguments = function.get("arguments", function.get("input", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError:  # what a model wrote need not be JSON; it was sent like this
            return str(call.get("id", "")), f"{function['name']}({arguments.strip()})"
    return str(call.get("id", "")), f"{function['name']}({json.dumps(arguments, ensure_ascii=False)})"


def _merged(messages: Sequence[_Message]) -> list[_Message]:
    """The messages with a reply's text and its calls in one, where a log has them one after the other."""
    merged: list[_Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last and last.role == message.role == "assistant" and message.calls and not last.calls:
            message.thought = "\n".join(filter(None, (last.thought, last.text, message.thought)))
            merged[-1] = message
        else:
            merged.append(message)
    return merged


def _step(reply: _Message, answers: Sequence[_Message]) -> LoggedStep:
    thought, action = reply.thought, reply.text
    if reply.calls:
        thought = "\n".join(filter(None, (reply.thought, reply.text)))
        action = "; ".join(action for _, action in reply.calls)
    elif match := _ACTION.match(reply.text):
        before = _THOUGHT_LABEL.sub("", match["thought"]).strip()
        thought, action = "\n".join(filter(None, (reply.thought, before))), match["action"].strip()
    if not action:
        raise Unusable("an empty reply")
    order = {call_id: number for number, (call_id, _) in enumerate(reply.calls)}
    answered = order.keys() & {answer.answers for answer in answers}
    if answered and (without := order.keys() - answered):
        raise Unusable(NO_RESULT, next(action for call_id, action in reply.calls if call_id in without))
    sorted_answers = sorted(answers, key=lambda answer: order.get(answer.answers, len(order)))
    return LoggedStep(thought, action, _joined(sorted_answers) if answers else None)


def _joined(messages: Sequence[_Message]) -> str:
    return "\n\n".join(message.text for message in messages if message.text)


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
