"""The tasks that an adapter lists, held against what was asked for: adapters are also written by users."""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.protocol import Adapter
from components.environments.text_world.user_code import users_call
from components.errors import EnvironmentFailure
from components.records import Task, is_text

CURE = "Correct the adapter's tasks; dreamgym check-environment says what else it promises."


def listed_tasks(adapter: Adapter, environment: str, split: str, count: int, seed: int) -> list[Task]:
    """`count` tasks of `split` of the world that is called `environment`.

    Raises:
        EnvironmentFailure: the adapter gives no list of so many different tasks, or tasks of another split or
            world.
    """
    call = f"tasks({split!r}, {count}, {seed})"
    with users_call(f"The adapter's {call}"):
        answer = adapter.tasks(split, count, seed)
        tasks = answer if isinstance(answer, Sequence) else list(answer)
    fault = _fault(tasks, environment, split, count)
    if fault:
        raise EnvironmentFailure(f"The adapter's {call} gave {fault}", next_step=CURE)
    return list(tasks)


def _fault(tasks: Sequence[Task], environment: str, split: str, count: int) -> str:
    """What is wrong with the tasks, and what was expected; "" if nothing is."""
    strange = next((task for task in tasks if not isinstance(task, Task)), None)
    if strange is not None:
        return f"{strange!r:.100}. Expected tasks (components.records.Task)."
    texts = (
        (name, getattr(task, name))
        for task in tasks
        for name in ("id", "instruction", "initial_state", "spec")
    )
    empty = next(
        (
            f"a task whose {name} is {text!r:.100}. Expected text."
            for name, text in texts
            if not is_text(text)
        ),
        "",
    )
    if empty:
        return empty
    if len(tasks) != count or len({task.id for task in tasks}) != count:
        return f"{len(tasks)} tasks with {len({task.id for task in tasks})} different ids. Expected {count}."
    other = next((task for task in tasks if (task.environment, task.split) != (environment, split)), None)
    if other is not None:
        named = f"{other.id} of the environment {other.environment!r} and the split {other.split!r}"
        return f"{named}. Expected {environment!r} and {split!r}."
    return ""
