"""What `dreamgym check-environment` finds of a world's validation games, which decide on promotions.

dreamgym check-environment environment.name=own environment.own.adapter=my_world:MyAdapter
"""

from __future__ import annotations

from collections.abc import Sequence

from components.config import Config
from components.environments.protocol import Adapter
from components.environments.validation_split import batch_seed, draw_validation_tasks, splits_of
from components.errors import EnvironmentFailure
from components.records import TEST, TRAIN, VALIDATION, Task

COMPARED = 24
"""Training tasks that the validation tasks are compared with, so that a slow world is asked for few."""
OWN_SPLIT = (
    "To keep them apart by construction, set splits = ('train', 'validation', 'test') in the adapter. Let "
    "tasks('validation', count, seed) give tasks that no other split lists (docs/guides/add-a-world.md)."
)


def examine_validation(adapter: Adapter, config: Config) -> tuple[str, str]:
    """(What was found, what to do); the second is empty where nothing has to be done.

    Raises:
        EnvironmentFailure: validation tasks are too few, taken from another split, or others when drawn
            again.
    """
    count, seed = config.evaluation.tasks, config.data.seed
    training = adapter.tasks(TRAIN, min(COMPARED, config.data.train_tasks), seed)
    recorded = [*training, *adapter.tasks(TEST, count, seed)]
    has_own_split = VALIDATION in splits_of(adapter)
    if has_own_split:
        _require_other_tasks(adapter, count, recorded)
    first = draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded)
    if first != draw_validation_tasks(adapter, count, batch_seed(0, 0), recorded):
        found = f"The {count} validation tasks are others when they are drawn again with the same seed."
        next_step = "Draw them by random.Random of the split, the environment's seed and the seed of tasks()."
        raise EnvironmentFailure(found, "Two runs would be decided on different games.", next_step)
    found = f"{count} of a split of their own"
    if not has_own_split:
        found = f"{count} further tasks of the test split, as the adapter lists no validation split"
    if config.promotion.max_batches > 1 and not _has_second_batch(adapter, count, [*recorded, *first]):
        next_step = "Set promotion.max_batches=1, lower evaluation.tasks, or give the world more tasks."
        return f"{found}; the promotion gate has no second batch of {count} to play", next_step
    return found, "" if has_own_split else OWN_SPLIT


def _require_other_tasks(adapter: Adapter, count: int, recorded: Sequence[Task]) -> None:
    """Raises EnvironmentFailure if a validation task is named otherwise, or is a training or test task."""
    listed = adapter.tasks(VALIDATION, count, batch_seed(0, 0))
    named = {(task.environment, task.split) for task in listed} - {(adapter.name, VALIDATION)}
    if named:
        found = f"Validation tasks have the environment and the split {sorted(named)[0]}."
        raise EnvironmentFailure(found, f"Expected {(adapter.name, VALIDATION)}.")
    ids = {task.id for task in recorded}
    specs = {task.spec for task in recorded} - {"{}"}
    shared = [task.id for task in listed if task.id in ids or task.spec in specs]
    if shared:
        shares = f"{len(shared)} of {len(listed)} validation tasks"
        found = f"{shares} are training or test tasks: {', '.join(shared[:3])}."
        expected = "A policy would be promoted on tasks that it learned from, or that the test plays."
        raise EnvironmentFailure(found, expected, "Draw each split from seeds, or a list, of its own.")


def _has_second_batch(adapter: Adapter, count: int, recorded: Sequence[Task]) -> bool:
    try:
        return len(draw_validation_tasks(adapter, count, batch_seed(0, 1), recorded)) == count
    except EnvironmentFailure:
        return False
