"""Reserved markers: special tokens that structure a prompt and can never come from an environment's text.

A piece of a prompt is either a `Marker` or a plain `str`. `Vocabulary.encode` gives a marker its special id
and encodes plain text as plain text, even where it spells a marker: a page that says "<success>" forges
nothing.

A `Frame` is a place where the chat template of a backbone speaks (`chat_completions.py`); without one nothing
stands there.
"""

from __future__ import annotations


class Marker(str):
    """A piece of a prompt that stands for one special token; equal to its letters, told apart by its type."""

    __slots__ = ()


PAD = Marker("<pad>")
END = Marker("<end>")
TASK = Marker("<task>")
STATE = Marker("<state>")
ACTION = Marker("<action>")
THINK = Marker("<think>")
DEMO = Marker("<demo>")
RECALL = Marker("<recall>")
TURN = Marker("<turn>")
CONTINUE = Marker("<continue>")
SUCCESS = Marker("<success>")
FAILURE = Marker("<failure>")


class Frame(str):
    """A piece of a prompt that stands for what a chat template writes between two messages: some tokens, or
    none.
    """

    __slots__ = ()


OPENING = Frame("opening")
"""Before the first user message."""
ANSWER = Frame("answer")
"""Between a user message and the assistant's reply."""
RESUME = Frame("resume")
"""Between a reply and the next user message."""

FRAMES = [OPENING, ANSWER, RESUME]

MARKERS = [PAD, END, TASK, STATE, ACTION, THINK, DEMO, RECALL, TURN, CONTINUE, SUCCESS, FAILURE]
