"""Where a dreamed episode can be replayed: in its task's own world, since a page is given by task and seed
and none can be built.

What a dream rightly invented, behind a tab that no one had opened, then disagrees with what is there, and the
replay says nothing fair from that step on. A task that the curriculum made up has no page that would judge
it: MiniWoB's pages know their own goal alone.
"""

from __future__ import annotations

from components.errors import EnvironmentFailure
from components.records import Task, Trajectory


def embody(dreamed: Trajectory) -> Task:
    """The task itself.

    Raises:
        EnvironmentFailure: it was generated, so no page judges it.
    """
    if dreamed.task.generated:
        found = f"The dreamed task {dreamed.task.instruction!r} was made up: no page judges it."
        raise EnvironmentFailure(found, "A browser's pages know their own goals alone.")
    return dreamed.task
