"""Check a world's validation games, which decide on promotions.

dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter
"""

from __future__ import annotations

from collections.abc import Sequence

from components.config import Config
from components.environments.capabilities import Adapter
from components.environments.validation_split import batch_seed, draw_validation_tasks, splits_of
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

COMPARED_TASKS = 24
"""Training tasks that the validation tasks are compared with, at most: a slow world is asked for few."""
OWN_SPLIT_ADVICE = (
    "To keep them apart by construction, set splits = ('train', 'validation', 'test') in the adapter. Let "
    "tasks('validation', count, seed) give tasks that no other split lists (docs/guides/add-a-world.md)."
)


def examine_validation(adapter: Adapter, config: Config) -> tuple[str, str]:
    """Return (what was found, what to do); the second is empty where nothing has to be done.

    Raises:
        EnvironmentFailure: validation tasks are too few, taken from another split, or others when drawn
            again.
    """
    count = config.evaluation.tasks
    seed = config.data.seed
    training = adapter.tasks(TRAIN, min(COMPARED_TASKS, config.data.train_tasks), seed)
    recorded = [*training, *adapter.tasks(TEST, count, seed)]
    has_own_split = VALIDATION in splits_of(adapter)
    if has_own_split:
        _require_other_tasks(adapter, count, recorded)
    first = draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded)
    if first != draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded):
        raise EnvironmentFailure(
            f"The {count} validation tasks are others when they are drawn again with the same seed.",
            "Two runs would be decided on different games.",
            "Draw them by random.Random of the split, the environment's seed and the seed of tasks().",
        )
    result = f"{count} of a split of their own"
    if not has_own_split:
        result = f"{count} further tasks of the test split, as the adapter lists no validation split"
    if config.promotion.max_batches > 1 and not _has_second_batch(adapter, count, [*recorded, *first]):
        next_step = "Set promotion.max_batches=1, lower evaluation.tasks, or give the world more tasks."
        return f"{result}; the promotion gate has no second batch of {count} to play", next_step
    return result, "" if has_own_split else OWN_SPLIT_ADVICE


def _require_other_tasks(adapter: Adapter, count: int, recorded: Sequence[Task]) -> None:
    """Raise EnvironmentFailure if a validation task is named wrongly, or is a training or test task."""
    listed = adapter.tasks(VALIDATION, count, batch_seed(0, 0))
    wrong_names = {(task.environment, task.split) for task in listed} - {(adapter.name, VALIDATION)}
    if wrong_names:
        raise EnvironmentFailure(
            f"Validation tasks have the environment and the split {sorted(wrong_names)[0]}.",
            f"Expected {(adapter.name, VALIDATION)}.",
        )
    ids = {task.id for task in recorded}
    specs = {task.spec for task in recorded} - {"{}"}
    shared = [task.id for task in listed if task.id in ids or task.spec in specs]
    if shared:
        raise EnvironmentFailure(
            f"{len(shared)} of {len(listed)} validation tasks are training or test tasks: "
            f"{', '.join(shared[:3])}.",
            "A policy would be promoted on tasks that it learned from, or that the test plays.",
            "Draw each split from seeds, or a list, of its own.",
        )


def _has_second_batch(adapter: Adapter, count: int, recorded: Sequence[Task]) -> bool:
    try:
        return len(draw_validation_tasks(adapter, count, batch_seed(0, 1), recorded)) == count
    except EnvironmentFailure:
        return False
