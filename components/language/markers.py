"""Reserved markers: special tokens that structure a prompt and can never come from an environment's text.

A piece of a prompt is either a `Marker` or a plain `str`. `Vocabulary.encode` gives a marker its special id and encodes plain
text as plain text, even where it spells a marker: a page that says "<success>" forges nothing.
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

MARKERS = [PAD, END, TASK, STATE, ACTION, THINK, DEMO, RECALL, TURN, CONTINUE, SUCCESS, FAILURE]
