"""The real world in which a dreamed browser episode is replayed: its task's own page.

A page is given by task and seed, and none can be built for a dream. What a dream rightly invented, behind a
tab that no one had opened, then differs from the real page. The replay says nothing fair from that step on. A
generated task has no page that would judge it: MiniWoB's pages know their own goal alone.
"""

from __future__ import annotations

from components.errors import EnvironmentFailure
from components.records import Task, Trajectory


def embody(dreamed: Trajectory) -> Task:
    """Return the task of the dreamed episode itself.

    Raises:
        EnvironmentFailure: the task was generated, so no page judges it.
    """
    if dreamed.task.generated:
        raise EnvironmentFailure(
            f"The dreamed task {dreamed.task.instruction!r} was generated: no page judges it.",
            "A browser's pages know their own goals alone.",
        )
    return dreamed.task
