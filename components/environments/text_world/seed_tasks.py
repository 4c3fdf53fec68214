"""Draw tasks of a world that is started from a seed and has no list of tasks.

Below two million even seeds are for training and odd ones for the test; the next two million are for
validation.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from components.records import TEST, VALIDATION

SEEDS = 1_000_000
"""Seeds of the training split, and of the test split."""


def draw_seeds(split: str, count: int, rng: random.Random, solved: Iterable[str], prefix: str) -> list[int]:
    """Return `count` different seeds of `split`, those with a recorded solution first.

    Args:
        solved: ids of the tasks that have a recorded solution.
        prefix: the id of a seed's task is `prefix` and the number.
    """
    if split == VALIDATION:
        return _validation_seeds(count, rng, {name.removeprefix(prefix) for name in solved})
    remainder = int(split == TEST)
    numbers = (name.removeprefix(prefix) for name in solved if name.startswith(prefix))
    solved_seeds = sorted(
        int(number) for number in numbers if number.isdecimal() and int(number) % 2 == remainder
    )
    seeds = dict.fromkeys(rng.sample(solved_seeds, len(solved_seeds))[:count])
    while len(seeds) < count:
        seeds.setdefault(2 * rng.randrange(SEEDS) + remainder)
    return list(seeds)


def _validation_seeds(count: int, rng: random.Random, solved: set[str]) -> list[int]:
    """Return seeds that no other split draws.

    A seed with a recorded solution is left out: it may belong to another split, whatever its number is.
    """
    seeds: dict[int, None] = {}
    while len(seeds) < count:
        number = 2 * SEEDS + rng.randrange(2 * SEEDS)
        if str(number) not in solved:
            seeds.setdefault(number)
    return list(seeds)
