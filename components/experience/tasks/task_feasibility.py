"""Which made-up tasks may be dreamed, in a world whose adapter cannot tell.

The rule is learnt from the recorded tasks, not written for a world. A made-up task may use only words that
recorded instructions use. And a word that recorded tasks show in their first state whenever they use it (an
object that is there to be seen) must be shown there by the made-up task too. Whether the task can be done is
not known: one that is never won in the dream loses its place in the curriculum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from components.environments.capabilities import Adapter, own_members
from components.environments.mixed.adapter import MixedAdapter
from components.environments.mixed.tasks import own_task
from components.records import Task

ALWAYS_SHOWN = 0.95
"""From this share on of the recorded tasks with a word in their instruction, the first state must show it."""


class LearntFeasibility:
    """Task -> why it may not be played; "" if it may.

    Args:
        tasks: the recorded ones.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        used, shown = Counter[str](), Counter[str]()
        for task in tasks:
            words = _words(task.instruction)
            used.update(words)
            shown.update(words & _words(task.initial_state))
        self._known = frozenset(used)
        self._visible = frozenset(word for word in used if shown[word] >= ALWAYS_SHOWN * used[word])

    def __call__(self, task: Task) -> str:
        """Why the task may not be played; "" if it may."""
        words = _words(task.instruction)
        if not words <= self._known:
            return "has a word that no recorded task has"
        if not (words & self._visible) <= _words(task.initial_state):
            return "asks for what its first state does not show"
        return ""


def task_feasibility(adapter: Adapter, tasks: Sequence[Task]) -> Callable[[Task], str]:
    """The adapter's own knowledge of what can be done, or what the recorded `tasks` teach in its place.

    In a mixture of worlds, each world's own.
    """
    if isinstance(adapter, MixedAdapter):
        own_tasks = [own_task(task) for task in tasks]
        of_world = {
            name: task_feasibility(own, [task for task in own_tasks if task.environment == name])
            for name, own in adapter.adapters.items()
        }
        return lambda task: of_world[own_task(task).environment](own_task(task))
    return adapter.feasible if "feasible" in own_members(adapter) else LearntFeasibility(tasks)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))
