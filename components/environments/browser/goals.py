"""Read what an instruction asks for, from its text and from what the page shows.

The result is a list of subgoals that a solution fulfils one after another. Only the texts of the instruction
and of the states are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from components.environments.browser.goal_forms import FORMS
from components.environments.browser.states import View
from components.environments.browser.subgoals import Goal

_QUOTED = re.compile(r'"\s*([^"]*?)\s*"')


def read_goal(instruction: str, views: Sequence[View]) -> Goal | None:
    """Return the goal of an instruction of a known form; None for another form.

    Args:
        instruction: the task's.
        views: the states so far, at least the first.
    """
    for form, build_goal in FORMS:
        if match := re.fullmatch(form, join_quotes(instruction.strip())):
            return build_goal(*match.groups(), views=views)
    return None


def separate_quotes(instruction: str) -> str:
    """Return an instruction with spaces inside its quotation marks: `the username " kenda "`.

    A word then has the same tokens where it is asked for, on the page (`= kenda`) and in an action. Beside a
    mark it has other tokens, and a small model that copies it gets letters wrong (docs/experiments).
    """
    return _QUOTED.sub(r'" \1 "', instruction)


def join_quotes(instruction: str) -> str:
    """Return the instruction as the page gives it, without spaces inside its quotation marks."""
    return _QUOTED.sub(r'"\1"', instruction)
