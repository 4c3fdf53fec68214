"""Format `chat` of the experience model: an episode is one conversation in a pretrained model's own template.

    system     what world this is, and how to answer
    user       Task: put a mug in desk
               State: In the room: desk 1, fridge 1.
               Action: go to desk 1
    assistant  Reasoning: works, new
               State: At desk 1: mug 1.
               Outcome: continue
    user       Task: put a mug in desk
               Action: take mug 1 from desk 1
    assistant  ...

Every user turn names the task, because the reward of a step depends on it, hundreds of tokens after the first
turn. The current user turn also holds the retrieved examples, in front of the action; earlier turns keep
neither their examples nor their reasoning. Every line of the form begins with its word at the start of a
line. Text of several lines is indented from its second line on, so that no text forges a line of the form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.experience.episodic_recall import recall
from components.experience.formats.world_format import Answer, recorded_answer
from components.language.vocabulary.chat_vocabulary import ChatVocabulary
from components.records import Task, Transition

INSTRUCTIONS = (
    "You simulate this world. The user gives a task, the first state, and one action after the other. Answer "
    "with the state after the action, and in a last line with the outcome of the task: continue, success or "
    "failure."
)
HIDDEN = "Hidden"
"""The word before a premise."""
PREMISE_REQUEST = "Which hidden facts of this world decide the task?"
VARIATION_REQUEST = "Which other task could be given in this world?"
REASON_REQUEST = (
    "Do not simulate. In one short sentence, which facts make this action lead to this next state?"
)
OUTCOMES = {"continue": (0.0, False), "success": (1.0, True), "failure": (0.0, True)}
"""Outcome -> (reward, done)."""
_ANSWER = re.compile(
    r"(?:Reasoning: (?P<reasoning>[^\n]*)\n)?State: (?P<state>.*)\nOutcome: (?P<outcome>\w+)", re.S
)
_INDENT = "\n "


def system_text(description: str) -> str:
    """The text of the system turn for a world with this description."""
    return f"{description}\n{INSTRUCTIONS}" if description else INSTRUCTIONS


class ChatWorld:
    """Prompts and answers of one experience model (`WorldFormat`).

    Args:
        reasoning: answers begin with a reasoning.
        recalled: most earlier states that a question repeats.
    """

    form = (
        "a conversation in the model's chat template. First user message: Task:, State:, [Hidden:], [Example "
        "state:, Example action:, Example next state:], [Earlier state:], Action: ; later ones: Task:, "
        "Action: ; the model writes: [Reasoning:], State:, Outcome: continue, success or failure"
    )

    def __init__(self, vocabulary: ChatVocabulary, *, reasoning: bool = True, recalled: int = 0) -> None:
        self.stop = vocabulary.stop_ids
        self.text_stop = vocabulary.stop_ids
        self._vocabulary = vocabulary
        self._reasoning = reasoning
        self._recalled = recalled

    def opening(self, task: Task, premise: str = "") -> list[int]:
        """See `WorldFormat`: nothing; the system turn comes with the first question."""
        return []

    def question(
        self,
        task: Task,
        states: Sequence[str],
        action: str,
        demonstrations: Sequence[Transition] = (),
        premise: str = "",
    ) -> list[int]:
        """See `WorldFormat`."""
        lines = [line for demo in reversed(demonstrations) for line in _example(demo)]
        lines += [_line("Earlier state", state) for state in recall(states, action, self._recalled)]
        return self._ask(task, states, [*lines, _line("Action", action)], premise)

    def growth(
        self, task: Task, states: Sequence[str], action: str, answer: Answer, premise: str = ""
    ) -> list[int]:
        """See `WorldFormat`."""
        asked = self._ask(task, states, [_line("Action", action)], premise)
        return asked + self._vocabulary.reply(_answer_text(answer, reasoning=False))

    def answer(self, answer: Answer) -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.reply(_answer_text(answer, reasoning=self._reasoning))

    def parse(self, tokens: Sequence[int]) -> Answer | None:
        """See `WorldFormat`."""
        text = self._vocabulary.reply_text(tokens) if self._is_finished(tokens) else None
        match = _ANSWER.fullmatch(text) if text else None
        if (
            match is None
            or match["outcome"] not in OUTCOMES
            or (match["reasoning"] is not None) != self._reasoning
        ):
            return None
        if not _is_indented(match["state"]):
            return None
        reward, done = OUTCOMES[match["outcome"]]
        return Answer(match["reasoning"] or "", _unindented(match["state"]), reward, done)

    def reasoning(self, tokens: Sequence[int]) -> str | None:
        """See `WorldFormat`."""
        text = self._vocabulary.decode(tokens)
        if not self._reasoning or not text.startswith("Reasoning: "):
            return None
        return text.removeprefix("Reasoning: ").partition("\n")[0]

    def reasoning_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`."""
        return self._tokens_before(tokens, "Reasoning:")

    def state_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`."""
        return self._tokens_before(tokens, "\nState:" if self._reasoning else "State:")

    def outcome_start(self, tokens: Sequence[int]) -> int:
        """See `WorldFormat`."""
        starts = range(len(tokens) - 1, 0, -1)
        return next((at for at in starts if "\nOutcome:" in self._vocabulary.decode(tokens[at:])), 0)

    def premise_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """See `WorldFormat`."""
        return [], self._request(task, PREMISE_REQUEST)

    def variation_prompt(self, task: Task) -> tuple[list[int], list[int]]:
        """See `WorldFormat`."""
        return [], self._request(task, VARIATION_REQUEST)

    def reason_prompt(self, task: Task, step: Transition) -> list[int]:
        """See `WorldFormat`."""
        lines = [
            *_task_lines(task.instruction, step.state),
            _line("Action", step.action),
            _line("Next state", step.next_state),
            _outcome_line(recorded_answer(step)),
            REASON_REQUEST,
        ]
        return self._vocabulary.begin("\n".join(lines)) + self._vocabulary.reply_start

    def text_answer(self, text: str) -> list[int]:
        """See `WorldFormat`."""
        return self._vocabulary.reply(_one_line(text))

    def parse_text(self, tokens: Sequence[int]) -> str:
        """See `WorldFormat`."""
        text = self._vocabulary.reply_text(tokens) if self._is_finished(tokens) else None
        return text.strip() if text and "\n" not in text else ""

    def _ask(self, task: Task, states: Sequence[str], lines: Sequence[str], premise: str) -> list[int]:
        """The user message of a step, and the start of the reply: the first one shows the state too."""
        if len(states) > 1:
            text = "\n".join([_line("Task", task.instruction), *lines])
            return self._vocabulary.user(text) + self._vocabulary.reply_start
        opening = [*_task_lines(task.instruction, states[-1]), *([_line(HIDDEN, premise)] if premise else [])]
        return self._vocabulary.begin("\n".join([*opening, *lines])) + self._vocabulary.reply_start

    def _request(self, task: Task, question: str) -> list[int]:
        lines = [*_task_lines(task.instruction, task.initial_state), question]
        return self._vocabulary.begin("\n".join(lines)) + self._vocabulary.reply_start

    def _is_finished(self, tokens: Sequence[int]) -> bool:
        return bool(tokens) and tokens[-1] in self.stop

    def _tokens_before(self, tokens: Sequence[int], word: str) -> int:
        """How many tokens spell the text up to and including `word`; at least 1."""
        return next(
            (end for end in range(1, len(tokens) + 1) if word in self._vocabulary.decode(tokens[:end])),
            len(tokens),
        )


def _task_lines(instruction: str, state: str) -> list[str]:
    return [_line("Task", instruction), _line("State", state)]


def _example(demo: Transition) -> list[str]:
    """A retrieved transition: state, action and next state of another episode."""
    return [
        _line("Example state", demo.state),
        _line("Example action", demo.action),
        _line("Example next state", demo.next_state),
    ]


def _answer_text(answer: Answer, *, reasoning: bool) -> str:
    first = [f"Reasoning: {_one_line(answer.reasoning)}"] if reasoning else []
    return "\n".join([*first, _line("State", answer.state), _outcome_line(answer)])


def _outcome_line(answer: Answer) -> str:
    outcome = "continue" if not answer.done else "success" if answer.reward > 0.5 else "failure"
    return f"Outcome: {outcome}"


def _line(word: str, text: str) -> str:
    """`text` behind its word; further lines are indented."""
    return f"{word}: {text.replace(chr(10), _INDENT)}"


def _is_indented(text: str) -> bool:
    return text.count("\n") == text.count(_INDENT)


def _unindented(text: str) -> str:
    return text.replace(_INDENT, "\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())
