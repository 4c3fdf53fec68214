"""Format `chat` of the policy: an episode is one conversation in a pretrained model's own template.

    system     what world this is, which actions it has, and how to reply
    user       Task: put a mug in desk
               Observation: In the room: desk 1, fridge 1.
    assistant  Thought: find a mug
               Action: go to desk 1
    user       Observation: At desk 1: mug 1.
    assistant  ...

The action is everything behind the last `Action:` that begins a line, so code and tool calls of several lines
are one action. Everything before it is the thought, a block of thinking included. A line of an action that
looks like a line of the form (`Task:`, `Observation:`, `Thought:`, `Action:`) gets a space in front; one
without it behind the action is a turn that the model made up, and the reply has no action. Observations of
several lines are indented from their second line on.

Differs from the paper: its agent prompt (verl-agent's template) also lists the admissible actions. A dream
has no such list, so a policy that is trained here never sees one. A model at an endpoint may
(`endpoint.admissible`); the list is then the last line of a user message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.records import Task

INSTRUCTIONS = (
    "You act in this world to complete the user's task. Reply to each observation with one action, in a last "
    "line that begins with Action:. You may think first, in a line that begins with Thought:."
)
_ACTION = "Action: "
_THOUGHT = "Thought: "
_LINE_OF_FORM = re.compile(r"(?P<spaces> *)(?:Task|Observation|Thought|Action):")


def system_text(description: str, actions: str = "") -> str:
    """The text of the system turn.

    Args:
        description: of the world.
        actions: which actions there are.
    """
    return "\n".join(text for text in (description, actions, INSTRUCTIONS) if text)


class ChatAgent:
    """Prompts and replies of one policy (`AgentFormat`)."""

    form = (
        "a conversation in the model's chat template. First user message: Task:, Observation: ; later ones: "
        "Observation: ; the model writes: Thought:, Action:"
    )

    def __init__(self, vocabulary: ChatVocabulary) -> None:
        self.stop = vocabulary.stop_ids
        self._vocabulary = vocabulary

    def opening(self, task: Task) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.begin(first_message(task.instruction, task.initial_state))

    def ask(self, task: Task) -> list[int]:
        """See `AgentFormat`."""
        return list(self._vocabulary.reply_start)

    def reply(self, thought: str, action: str) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.reply(reply_text(thought, action))

    def close(self, reply: Sequence[int]) -> list[int]:
        """See `AgentFormat`: the token that ends a reply, unless it is there."""
        end = self._vocabulary.end_id
        return [] if reply and reply[-1] == end else [end]

    def observation(self, state: str) -> list[int]:
        """See `AgentFormat`."""
        return self._vocabulary.user(observation_message(state))

    def observation_parts(self, state: str) -> tuple[list[int], list[int]]:
        """See `AgentFormat`."""
        head = len(self._vocabulary.user("Observation:"))
        tokens = self.observation(state)
        return tokens[:head], tokens[head:]

    def question(self, text: str) -> list[int] | None:
        """See `AgentFormat`."""
        return self._vocabulary.begin(text) + list(self._vocabulary.reply_start)

    def answer(self, text: str) -> list[int] | None:
        """See `AgentFormat`."""
        return self._vocabulary.reply(text)

    def parse(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See `AgentFormat`."""
        text = self._vocabulary.reply_text(tokens)
        return parse_reply(text) if text is not None else (self._vocabulary.decode(tokens), "")


def reply_text(thought: str, action: str) -> str:
    """The reply with a thought in one line, and an action with its own lines, without blanks at its ends."""
    lines = [_THOUGHT + " ".join(thought.split())] if thought else []
    first, *further = action.strip().split("\n")
    further = [f" {line}" if _LINE_OF_FORM.match(line) else line for line in further]
    return "\n".join([*lines, _ACTION + first, *further])


def parse_reply(text: str) -> tuple[str, str]:
    """(thought, action) of a reply; see `AgentFormat.parse`."""
    lines = text.strip().split("\n")
    starts = [place for place, line in enumerate(lines) if f"{line} ".startswith(_ACTION)]
    if not starts:
        return text.strip(), ""
    first, *further = lines[starts[-1] :]
    forms = [_LINE_OF_FORM.match(line) for line in further]
    further = [line[1:] if form else line for line, form in zip(further, forms, strict=True)]
    action = "\n".join([first.removeprefix(_ACTION.strip()), *further]).strip()
    if not action or any(form and not form["spaces"] for form in forms):
        return text.strip(), ""
    return "\n".join(lines[: starts[-1]]).strip().removeprefix(_THOUGHT).strip(), action


def first_message(instruction: str, state: str, admissible: Sequence[str] = ()) -> str:
    """The text of the first user message: task and initial state."""
    return "\n".join([_line("Task: ", instruction), observation_message(state, admissible)])


def observation_message(state: str, admissible: Sequence[str] = ()) -> str:
    """The text of a user message that shows a state, and the admissible actions if there are any."""
    lines = [_line("Observation: ", state)]
    lines += [_line("Admissible actions: ", "; ".join(admissible))] if admissible else []
    return "\n".join(lines)


def _line(word: str, text: str) -> str:
    return word + text.replace("\n", "\n ")
