"""Test the promises of an adapter on a few tasks of its own world.

    dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter

A promise that is not kept is `wrong`: a stage would fail on it, or learn from false data. `doubt` marks a
part that the world lacks, with what that costs and what to set. The tests of the shipped adapters test the
same promises, and more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from components.config import Config
from components.environments.capabilities import Adapter, members, own_members
from components.environments.contract.episode_promises import (
    behaviours_play,
    budget_is_kept,
    episodes_repeat,
    expert_wins,
    measure_pace,
    nonsense_is_answered,
    tasks_begin_the_same,
    texts_are_short,
)
from components.environments.contract.finding import Broken, Doubtful, Finding
from components.environments.contract.first_action_promise import first_steps_repeat
from components.environments.contract.knowledge_promises import (
    dreams_are_embodied,
    own_tasks_are_feasible,
    premises_are_accepted,
    progress_is_whole,
    real_steps_are_believed,
    steps_have_words,
    unseen_worlds_exist,
)
from components.environments.contract.subject import Subject, require
from components.environments.contract.task_promises import (
    tasks_are_listed,
    tasks_differ,
    validation_tasks_exist,
)
from components.environments.mixed.adapter import shared_capabilities
from components.environments.protocol import AdapterCore, Environment
from components.environments.text_world.user_code import place_of, users_call
from components.errors import DreamGymError, EnvironmentFailure
from components.records import TRAIN, Task

PLAYED_TASKS = 4
"""Training tasks that are played, at most."""
_COMPLETE_ADVICE = "Inherit PlainAdapter, RowsEnvironment, or write them."


def check(config: Config, adapter: Adapter, report: Callable[[Finding], None]) -> bool:
    """Test every promise and report each finding; return True if none is wrong.

    Raises:
        DreamGymError: there are no tasks, or no environment: nothing could be tested.
    """
    missing = _missing_from_adapter(adapter)
    if "tasks" in missing or "open" in missing:
        raise EnvironmentFailure(_lacks(adapter, missing), next_step=_COMPLETE_ADVICE)
    started = time.perf_counter()
    count = min(PLAYED_TASKS, config.data.train_tasks)
    with users_call(f"The adapter's tasks({TRAIN!r}, {count}, 5)"):
        tasks = list(adapter.tasks(TRAIN, count, 5))
    if not tasks or not all(isinstance(task, Task) for task in tasks):
        raise EnvironmentFailure(
            f"The adapter's tasks({TRAIN!r}, {count}, 5) gave {tasks!r:.200}.", "Expected a list of tasks."
        )
    with users_call("The adapter's open()"):
        world = adapter.open()
    subject = Subject(adapter, world, tasks, config, time.perf_counter() - started)
    is_kept = True
    try:
        for promise in PROMISES:
            finding = _test_promise(promise, subject)
            is_kept &= finding.state != "wrong"
            report(finding)
    finally:
        subject.world.close()
    return is_kept


def _test_promise(promise: Callable[[Subject], str], subject: Subject) -> Finding:
    name = (promise.__doc__ or "").strip().rstrip(".")
    try:
        return Finding(name, "ok", promise(subject))
    except Broken as broken:
        return Finding(name, "doubt" if isinstance(broken, Doubtful) else "wrong", *map(str, broken.args))
    except DreamGymError as error:
        return Finding(name, "wrong", str(error))
    except Exception as error:  # the check exists to show bugs in the adapter
        return Finding(name, "wrong", f"{type(error).__name__}: {error} ({place_of(error)})")


def _protocol_is_complete(it: Subject) -> str:
    """Adapter and environment have every method of the protocol."""
    _require_complete(it.adapter, _missing_from_adapter(it.adapter))
    is_complete = isinstance(it.world, Environment)
    _require_complete(it.world, [] if is_complete else _missing(it.world, members(Environment)))
    return f"{type(it.adapter).__name__}, {type(it.world).__name__}"


def _missing_from_adapter(adapter: object) -> list[str]:
    """Return what `adapter` lacks: of the core if it inherits the defaults, of all methods if it does not."""
    if Adapter in type(adapter).__mro__:
        own = own_members(adapter)
        return [name for name in members(AdapterCore) if name not in own]
    return [] if isinstance(adapter, Adapter) else _missing(adapter, [*members(AdapterCore), *dir(Adapter)])


def _missing(subject: object, names: Sequence[str]) -> list[str]:
    available = dir(subject)
    return [name for name in dict.fromkeys(names) if not name.startswith("_") and name not in available]


def _require_complete(subject: object, missing: Sequence[str]) -> None:
    require(not missing, _lacks(subject, missing), _COMPLETE_ADVICE)


def _lacks(subject: object, missing: Sequence[str]) -> str:
    return f"{type(subject).__name__} has no {', '.join(missing)}."


def _capabilities_are_listed(it: Subject) -> str:
    """Capabilities beyond the core, which the other worlds do without."""
    return ", ".join(shared_capabilities(it.adapter, it.world)) or "none"


PROMISES: Sequence[Callable[[Subject], str]] = (
    _protocol_is_complete,
    _capabilities_are_listed,
    tasks_are_listed,
    validation_tasks_exist,
    tasks_begin_the_same,
    behaviours_play,
    tasks_differ,
    expert_wins,
    episodes_repeat,
    first_steps_repeat,
    nonsense_is_answered,
    budget_is_kept,
    steps_have_words,
    real_steps_are_believed,
    dreams_are_embodied,
    own_tasks_are_feasible,
    premises_are_accepted,
    progress_is_whole,
    unseen_worlds_exist,
    texts_are_short,
    measure_pace,
)
