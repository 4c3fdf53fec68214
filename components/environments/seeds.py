"""Tasks of a world that is begun from a seed and has no list of them: even seeds train, odd ones are held out."""

from __future__ import annotations

import random
from collections.abc import Iterable

from components.records import TEST

SEEDS = 1_000_000


def draw_seeds(split: str, count: int, rng: random.Random, solved: Iterable[str], prefix: str) -> list[int]:
    """`count` different seeds of `split`, those with a recorded solution first.

    Args: solved: ids of the tasks that have one; that of a seed is `prefix` and the number.
    """
    odd = int(split == TEST)
    numbers = (name.removeprefix(prefix) for name in solved if name.startswith(prefix))
    known = sorted(int(number) for number in numbers if number.isdecimal() and int(number) % 2 == odd)
    chosen = dict.fromkeys(rng.sample(known, len(known))[:count])
    while len(chosen) < count:
        chosen.setdefault(2 * rng.randrange(SEEDS) + odd)
    return list(chosen)
