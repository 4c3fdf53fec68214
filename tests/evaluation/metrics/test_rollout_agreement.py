"""The check of dreamed successes plays further batches only while its verdict is undecided."""

from dataclasses import dataclass

import pytest
from builders import make_episode, make_task

from components.config import FidelityConfig
from components.evaluation.metrics.rollout_agreement import (
    SEED_STRIDE,
    AgreementCheck,
    agreement_metrics,
    play_until_decided,
    split_into_batches,
    undecided_note,
)
from components.evaluation.metrics.sequential import ABOVE, BELOW, UNDECIDED
from components.experience.real_replay import Replay
from components.language.training.examples import Example
from components.policy.rollout import Rollout

SIZE = 20
STEPS = 3
TASKS = [make_task(id=f"t{number}") for number in range(4 * SIZE)]


@dataclass
class Dream:
    """A dream in which every episode is a success; the real engine confirms `shares[b]` of batch b.

    `calls` records the tasks and the seed of each batch.
    """

    shares: list[float]

    def __post_init__(self):
        self.calls = []

    def play(self, tasks, seed):
        self.calls.append(([task.id for task in tasks], seed))
        return [Rollout(make_episode(task, ("go", "s"), won=True), Example([])) for task in tasks]

    def replay(self, successes):
        confirmed = round(self.shares[len(self.calls) - 1] * len(successes))
        return [
            Replay(episode, number < confirmed, (True,)) for number, episode in enumerate(successes)
        ], STEPS * len(successes)


def run_check(shares, **changes):
    settings = FidelityConfig(policy_tasks=SIZE, **changes)
    dream, check = Dream(shares), AgreementCheck()
    check.add(dream.play(TASKS[:SIZE], 5), dream.replay)
    play_until_decided(
        check, split_into_batches(TASKS, len(TASKS), SIZE), settings, 5, dream.play, dream.replay
    )
    return check, dream, settings


@pytest.mark.parametrize(("share", "verdict"), [(1.0, ABOVE), (0.3, BELOW)])
def test_a_decided_first_batch_is_the_only_one(share, verdict):
    check, _, settings = run_check([share] * 4)
    assert (check.batches, len(check.rollouts), check.steps) == (1, SIZE, STEPS * SIZE)
    assert check.verdict(settings) == verdict and not undecided_note(check, settings, "cloned")


def test_near_the_floor_further_tasks_are_played_with_different_seeds():
    check, dream, settings = run_check([0.9, 1.0, 1.0, 1.0])
    assert check.verdict(settings) == ABOVE and check.batches == 2, "18 of 20 are undecided, 38 of 40 decide"
    assert check.steps == STEPS * 2 * SIZE, "the real steps of all batches are counted"
    tasks, seeds = zip(*dream.calls, strict=True)
    assert seeds == (5, 5 + SEED_STRIDE) and tasks == (
        [t.id for t in TASKS[:SIZE]],
        [t.id for t in TASKS[SIZE : 2 * SIZE]],
    )


def test_after_the_last_batch_the_note_says_that_the_share_itself_is_compared():
    check, _, settings = run_check([0.85] * 4)
    assert check.verdict(settings) == UNDECIDED and check.batches == 4
    note = undecided_note(check, settings, "cloned")
    assert (
        "undecided after 4 batches: 68 of 80" in note
        and "fidelity.max_batches" in note
        and "compares the share itself (0.850) with the floor" in note
    )
    metrics = agreement_metrics(check, settings, "cloned")
    bounds = metrics["fidelity/rollout_agreement_bounds/cloned"]
    assert (bounds.value, bounds.n) == (0.85, 80) and bounds.low < 0.8 < 0.85 < bounds.high
    assert metrics["fidelity/rollout_agreement_batches/cloned"].value == 4
    assert metrics["fidelity/rollout_agreement_decided/cloned"].value == 0


def test_one_batch_is_played_if_no_more_are_allowed_or_available():
    assert run_check([0.85], max_batches=1)[0].batches == 1
    assert [len(batch) for batch in split_into_batches(TASKS, 50, SIZE)] == [SIZE, SIZE], (
        "a third batch would repeat ten tasks"
    )
    assert len(split_into_batches(TASKS, 10, SIZE)) == 1, "the first batch is always played"


def test_without_dreamed_success_the_note_says_there_was_nothing_to_confirm():
    failures = [Rollout(make_episode(task, ("go", "s")), Example([])) for task in TASKS[:SIZE]]
    check, settings = AgreementCheck(), FidelityConfig(policy_tasks=SIZE)
    play_until_decided(check, [], settings, 0, lambda *_: failures, lambda _: ([], 0))
    check.add(failures, lambda successes: ([], 0))
    assert "nothing to confirm" in undecided_note(check, settings, "cloned")
