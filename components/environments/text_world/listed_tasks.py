"""Check the tasks that an adapter lists against what was asked for: users write adapters as well."""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.capabilities import Adapter
from components.environments.text_world.user_code import users_call
from components.errors import EnvironmentFailure
from components.records import Task, is_text

NEXT_STEP = "Correct the adapter's tasks; dreamgym check-environment says what else it promises."


def listed_tasks(adapter: Adapter, environment: str, split: str, count: int, seed: int) -> list[Task]:
    """Return `count` tasks of `split` of the world that is called `environment`.

    Raises:
        EnvironmentFailure: the adapter gives no list of so many different tasks, or tasks of another split or
            world.
    """
    call = f"tasks({split!r}, {count}, {seed})"
    with users_call(f"The adapter's {call}"):
        answer = adapter.tasks(split, count, seed)
        tasks = answer if isinstance(answer, Sequence) else list(answer)
    problem = _problem(tasks, environment, split, count)
    if problem:
        raise EnvironmentFailure(f"The adapter's {call} gave {problem}", next_step=NEXT_STEP)
    return list(tasks)


def _problem(tasks: Sequence[Task], environment: str, split: str, count: int) -> str:
    """Return what is wrong with the tasks, and what was expected; "" if nothing is."""
    for task in tasks:
        if not isinstance(task, Task):
            return f"{task!r:.100}. Expected tasks (components.records.Task)."
    for task in tasks:
        texts = {
            "id": task.id,
            "instruction": task.instruction,
            "initial_state": task.initial_state,
            "spec": task.spec,
        }
        for name, text in texts.items():
            if not is_text(text):
                return f"a task whose {name} is {text!r:.100}. Expected text."
    ids = {task.id for task in tasks}
    if len(tasks) != count or len(ids) != count:
        return f"{len(tasks)} tasks with {len(ids)} different ids. Expected {count}."
    for task in tasks:
        if (task.environment, task.split) != (environment, split):
            return (
                f"{task.id} of the environment {task.environment!r} and the split {task.split!r}. "
                f"Expected {environment!r} and {split!r}."
            )
    return ""
