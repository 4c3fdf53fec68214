"""Wrong logs on purpose, for dreams of graded quality and as negative controls of a study.

    dreamgym study --methods flipped-dream,swapped-dream

A dream that learns from them must train a worse policy, or the study cannot tell a good dream from a bad one.
The real outcomes and states stay where policies are cloned and fidelity is measured.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from components.records import Trajectory


def corrupt_episodes(
    episodes: Sequence[Trajectory], *, flipped_outcomes: float, swapped_states: float, seed: int
) -> list[Trajectory]:
    """Return the episodes with wrong outcomes and states; recorded reasoning stays.

    What is derived from the episodes afterwards follows the wrong ones: premises, and copies in hindsight.

    Args:
        flipped_outcomes: share of the episodes whose end is reversed: a success ends as a failure, any
            other episode as a success.
        swapped_states: share of the steps whose next state is that of another such step. The step after it
            begins there.
    """
    corrupted = list(episodes)
    rng = random.Random(f"corruption/{seed}")
    for place in rng.sample(range(len(corrupted)), round(flipped_outcomes * len(corrupted))):
        corrupted[place] = _flip_outcome(corrupted[place])
    steps = [
        (place, number) for place, episode in enumerate(corrupted) for number in range(len(episode.steps))
    ]
    chosen = rng.sample(steps, round(swapped_states * len(steps)))
    others = [corrupted[place].steps[number].next_state for place, number in chosen[1:] + chosen[:1]]
    for (place, number), state in zip(chosen, others, strict=True):
        corrupted[place] = _with_state(corrupted[place], number, state)
    return corrupted


def _flip_outcome(episode: Trajectory) -> Trajectory:
    end = replace(episode.steps[-1], reward=0.0 if episode.success else 1.0, done=True)
    return replace(episode, steps=(*episode.steps[:-1], end))


def _with_state(episode: Trajectory, number: int, state: str) -> Trajectory:
    """Return the episode with another state after step `number`."""
    steps = list(episode.steps)
    steps[number] = replace(steps[number], next_state=state)
    if number + 1 < len(steps):
        steps[number + 1] = replace(steps[number + 1], state=state)
    return replace(episode, steps=tuple(steps))
