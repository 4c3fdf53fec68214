"""Markers of format `compact`: special tokens that structure a prompt and never come from a world's text.

A piece of a prompt is a `Marker` or a plain `str`. `CompactVocabulary.encode` gives a marker its special id.
It encodes plain text as plain text, even if the text spells a marker: a page that says "<success>" forges
nothing.
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


MARKERS = [PAD, END, TASK, STATE, ACTION, THINK, DEMO, RECALL, TURN, CONTINUE, SUCCESS, FAILURE]
