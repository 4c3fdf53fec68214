"""Reserved markers: special tokens that structure a prompt and never come from an environment's text.

A piece of a prompt is a `Marker`, a `Frame` or a plain `str`. `Vocabulary.encode` gives a marker its special
id. It encodes plain text as plain text, even if the text spells a marker: a page that says "<success>" forges
nothing. A `Frame` is a place where the chat template of a backbone inserts tokens (`chat_template.py`);
without a template nothing is inserted.
"""

from __future__ import annotations


class Marker(str):
    """A piece of a prompt that stands for one special token.

    It equals its letters as a string; only its type tells it from plain text.
    """

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
    """A piece of a prompt that stands for the tokens of a chat template between two messages."""

    __slots__ = ()


OPENING = Frame("opening")
"""Before the first user message."""
ANSWER = Frame("answer")
"""Between a user message and the assistant's reply."""
RESUME = Frame("resume")
"""Between a reply and the next user message."""

FRAMES = [OPENING, ANSWER, RESUME]

MARKERS = [PAD, END, TASK, STATE, ACTION, THINK, DEMO, RECALL, TURN, CONTINUE, SUCCESS, FAILURE]
