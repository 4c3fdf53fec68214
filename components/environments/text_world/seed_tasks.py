"""Tasks of a world that is begun from a seed and has no list of them.

Below two million even seeds train and odd ones are for the test; the next two million are for validation.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from components.records import TEST, VALIDATION

SEEDS = 1_000_000


def draw_seeds(split: str, count: int, rng: random.Random, solved: Iterable[str], prefix: str) -> list[int]:
    """`count` different seeds of `split`, those with a recorded solution first.

    Args: solved: ids of the tasks that have one; that of a seed is `prefix` and the number.
    """
    if split == VALIDATION:
        return _validation_seeds(count, rng, {name.removeprefix(prefix) for name in solved})
    odd = int(split == TEST)
    numbers = (name.removeprefix(prefix) for name in solved if name.startswith(prefix))
    known = sorted(int(number) for number in numbers if number.isdecimal() and int(number) % 2 == odd)
    chosen = dict.fromkeys(rng.sample(known, len(known))[:count])
    while len(chosen) < count:
        chosen.setdefault(2 * rng.randrange(SEEDS) + odd)
    return list(chosen)


def _validation_seeds(count: int, rng: random.Random, solved: set[str]) -> list[int]:
    """Seeds that no other split draws; one with a recorded solution may be another split's whatever its
    number is.
    """
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        number = 2 * SEEDS + rng.randrange(2 * SEEDS)
        if str(number) not in solved:
            chosen.setdefault(number)
    return list(chosen)
