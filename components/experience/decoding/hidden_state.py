"""The hidden state of an episode, sampled once before step 0: where the objects are that decide its task.

The text that states it is the episode's premise. Every later step is conditioned on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.records import Task

HIDDEN_STATE_TRIES = 8
"""Samples of a premise before an episode begins without one."""

SamplePremises = Callable[[Sequence[Task], int], list[str]]
"""(tasks, seed) -> one sampled premise a task; "" where the generation did not end."""


def sample_accepted_premises(
    sample: SamplePremises, tasks: Sequence[Task], objection: Callable[[Task, str], str], *, seed: int
) -> list[str]:
    """One premise a task, sampled until the adapter has no objection.

    Args:
        objection: (task, premise) -> why the premise cannot be; "" if it can.

    Returns:
        "" for a task whose `HIDDEN_STATE_TRIES` samples all met an objection.
    """
    premises = [""] * len(tasks)
    for attempt in range(HIDDEN_STATE_TRIES):
        missing_rows = [row for row, premise in enumerate(premises) if not premise]
        samples = sample([tasks[row] for row in missing_rows], seed * HIDDEN_STATE_TRIES + attempt)
        for row, premise in zip(missing_rows, samples, strict=True):
            premises[row] = "" if objection(tasks[row], premise) else premise
    return premises
