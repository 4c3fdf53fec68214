"""Dream and replay in batches until the interval of `rollout_agreement` lies on one side of its floor, or the
batches run out.

The first batch is `fidelity.policy_tasks` training tasks. Where its interval holds the floor, the same policy
dreams further training tasks, and their successes are replayed in the real engine, a batch at a time. The
order of tasks and the random numbers of each batch follow from the run's seed, so a run that is made again
plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from components.config import FidelityConfig
from components.evaluation.metrics.intervals import Estimate, exact
from components.evaluation.metrics.sequential import UNDECIDED, Verdict, repeated_bounds, verdict_against
from components.experience.real_replay import Replay
from components.policy.rollout import Rollout
from components.records import Task, Trajectory

SEED_STRIDE = 7919
"""Added to the seed for each further batch, so that no two batches sample with the same random numbers."""

PlayBatch = Callable[[Sequence[Task], int], list[Rollout]]
"""Called with the tasks of a batch and its seed; dreams each task once."""
ReplayBatch = Callable[[list[Trajectory]], tuple[list[Replay], int]]
"""Called with dreamed successes; the replays in the real engine, and the real steps spent."""


@dataclass
class AgreementCheck:
    """The dreamed episodes of all batches so far, the replays of their successes, and the real steps of
    these.
    """

    dreamed: list[Rollout] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    steps: int = 0
    batches: int = 0

    def verdict(self, settings: FidelityConfig) -> Verdict:
        """Where the agreement lies beside its floor, as sure as `settings.max_batches` looks allow."""
        return verdict_against(
            settings.min_rollout_agreement, self.confirmed, len(self.replays), looks=settings.max_batches
        )

    def bounds(self, settings: FidelityConfig) -> tuple[float, float]:
        """Lower and upper bound of the agreement that the verdict follows from."""
        return repeated_bounds(self.confirmed, len(self.replays), looks=settings.max_batches)

    @property
    def confirmed(self) -> int:
        """Dreamed successes that the real engine confirmed."""
        return sum(replay.confirmed for replay in self.replays)

    def add(self, rollouts: list[Rollout], replay_batch: ReplayBatch) -> None:
        """Count a batch in, its successes replayed."""
        replays, steps = replay_batch(
            [rollout.trajectory for rollout in rollouts if rollout.trajectory.success]
        )
        self.dreamed += rollouts
        self.replays += replays
        self.steps += steps
        self.batches += 1


def batches_of(tasks: Sequence[Task], different: int, size: int) -> list[Sequence[Task]]:
    """`tasks` in whole batches of `size`, without those that would dream a task twice; the first batch
    always.

    Args: different: how many different tasks there are; `tasks` repeats them once they run out.
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
    """Add batches to `check`, which holds the first already, while its verdict is open and there are further
    ones.
    """
    most = min(len(batches), settings.max_batches)
    while check.verdict(settings) == UNDECIDED and check.batches < most:
        rollouts = play_batch(batches[check.batches], seed + SEED_STRIDE * check.batches)
        check.add(rollouts, replay_batch)


def agreement_metrics(check: AgreementCheck, settings: FidelityConfig, suffix: str) -> dict[str, Estimate]:
    """The bounds that the gate reads, how many batches they took, and whether they decided (1) or not (0)."""
    total, (low, high) = len(check.replays), check.bounds(settings)
    share = check.confirmed / total if total else 0.0
    return {
        f"fidelity/rollout_agreement_bounds/{suffix}": Estimate(share, total, low, high),
        f"fidelity/rollout_agreement_batches/{suffix}": exact(check.batches),
        f"fidelity/rollout_agreement_decided/{suffix}": exact(check.verdict(settings) != UNDECIDED),
    }


def undecided_note(check: AgreementCheck, settings: FidelityConfig, suffix: str) -> str:
    """What to tell where the batches ran out before the interval decided; "" where it decided."""
    if check.verdict(settings) != UNDECIDED:
        return ""
    if not check.replays:
        return (
            f"The {suffix} policy dreamed no success in {len(check.dreamed)} episodes: there was nothing "
            "to confirm."
        )
    total, (low, high) = len(check.replays), check.bounds(settings)
    return (
        f"rollout_agreement of the {suffix} policy is undecided after {check.batches} batches: "
        f"{check.confirmed} of {total} dreamed "
        f"successes confirmed, interval {low:.3f} to {high:.3f}, floor "
        f"{settings.min_rollout_agreement:.3f}. The share itself "
        f"({check.confirmed / total:.3f}) decides. Raise fidelity.max_batches to play on."
    )
