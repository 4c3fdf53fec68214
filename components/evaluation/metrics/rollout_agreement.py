"""Play dreamed episodes and replay them in batches until `rollout_agreement` is decided against its floor.

The first batch has `fidelity.policy_tasks` training tasks. While the floor lies inside the interval, the same
policy plays further training tasks in the dream, one batch at a time, up to `fidelity.max_batches`. The real
engine replays the dreamed successes of each batch. The order of tasks and the random numbers of each batch
follow from the run's seed, so a repeated run plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from components.config import FidelityConfig
from components.evaluation.metrics.intervals import Estimate, exact_value
from components.evaluation.metrics.sequential import UNDECIDED, Verdict, repeated_bounds, verdict_against
from components.experience.real_replay import Replay
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

SEED_STRIDE = 7919
"""Added to the seed for each further batch, so that no two batches use the same random numbers."""

PlayBatch = Callable[[Sequence[Task], int], list[Rollout]]
"""Takes the tasks of a batch and its seed; returns one dreamed rollout per task."""
ReplayBatch = Callable[[list[Trajectory]], tuple[list[Replay], int]]
"""Takes dreamed successes; returns their replays in the real engine and the number of real steps."""


@dataclass
class AgreementCheck:
    """Dreamed rollouts of all batches so far, the replays of their successes, and the replays' real steps."""

    rollouts: list[Rollout] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    steps: int = 0
    batches: int = 0

    def verdict(self, settings: FidelityConfig) -> Verdict:
        """Return the verdict on the agreement against its floor, valid for `settings.max_batches` looks."""
        return verdict_against(
            settings.min_rollout_agreement, self.confirmed, len(self.replays), looks=settings.max_batches
        )

    def bounds(self, settings: FidelityConfig) -> tuple[float, float]:
        """Return the lower and upper bound of the agreement that the verdict uses."""
        return repeated_bounds(self.confirmed, len(self.replays), looks=settings.max_batches)

    @property
    def confirmed(self) -> int:
        """Number of dreamed successes that the real engine confirmed."""
        return sum(replay.confirmed for replay in self.replays)

    def add(self, rollouts: list[Rollout], replay_batch: ReplayBatch) -> None:
        """Replay the successes of one batch and add the batch to the counts."""
        replays, steps = replay_batch(
            [rollout.trajectory for rollout in rollouts if rollout.trajectory.success]
        )
        self.rollouts += rollouts
        self.replays += replays
        self.steps += steps
        self.batches += 1


def split_into_batches(tasks: Sequence[Task], different: int, size: int) -> list[Sequence[Task]]:
    """Return `tasks` in whole batches of `size`, without batches that would repeat a task.

    The first batch is always returned.

    Args:
        tasks: tasks in playing order; they repeat after `different` tasks.
        different: number of different tasks.
        size: tasks per batch.
    """
    count = max(1, min(len(tasks), different) // size)
    return [tasks[number * size : (number + 1) * size] for number in range(count)]


def play_until_decided(
    check: AgreementCheck,
    batches: Sequence[Sequence[Task]],
    settings: FidelityConfig,
    seed: int,
    play_batch: PlayBatch,
    replay_batch: ReplayBatch,
) -> None:
    """Add batches to `check` until its verdict is decided or no batch is left.

    Args:
        check: already contains the first batch.
        batches: all batches, including the first.
        settings: floor and maximum number of batches.
        seed: seed of the first batch.
        play_batch: plays the tasks of a batch in the dream.
        replay_batch: replays dreamed successes in the real engine.
    """
    max_batches = min(len(batches), settings.max_batches)
    while check.verdict(settings) == UNDECIDED and check.batches < max_batches:
        rollouts = play_batch(batches[check.batches], seed + SEED_STRIDE * check.batches)
        check.add(rollouts, replay_batch)


def agreement_metrics(check: AgreementCheck, settings: FidelityConfig, suffix: str) -> dict[str, Estimate]:
    """Return the bounds that the gate uses, the number of batches, and whether they decided (1, else 0)."""
    total = len(check.replays)
    low, high = check.bounds(settings)
    share = check.confirmed / total if total else 0.0
    return {
        f"fidelity/rollout_agreement_bounds/{suffix}": Estimate(share, total, low, high),
        f"fidelity/rollout_agreement_batches/{suffix}": exact_value(check.batches),
        f"fidelity/rollout_agreement_decided/{suffix}": exact_value(check.verdict(settings) != UNDECIDED),
    }


def undecided_note(check: AgreementCheck, settings: FidelityConfig, suffix: str) -> str:
    """Return a note for the report if the batches ran out before a decision; "" if they decided."""
    if check.verdict(settings) != UNDECIDED:
        return ""
    if not check.replays:
        return (
            f"The {suffix} policy had no dreamed success in {len(check.rollouts)} episodes: "
            "there was nothing to confirm, which closes the gate unless fidelity.min_rollout_agreement is 0."
        )
    total = len(check.replays)
    low, high = check.bounds(settings)
    return (
        f"rollout_agreement of the {suffix} policy is undecided after {check.batches} batches: "
        f"{check.confirmed} of {total} dreamed "
        f"successes confirmed, interval {low:.3f} to {high:.3f}, floor "
        f"{settings.min_rollout_agreement:.3f}. The gate therefore compares the share itself "
        f"({check.confirmed / total:.3f}) with the floor. Raise fidelity.max_batches to play more batches."
    )
