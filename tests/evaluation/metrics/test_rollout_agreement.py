"""A check of dreamed successes plays on while its interval holds the floor, and not longer."""

from dataclasses import dataclass

import pytest
from builders import make_episode, make_task

from components.config import FidelityConfig
from components.evaluation.metrics.rollout_agreement import (
    SEED_STRIDE,
    AgreementCheck,
    agreement_metrics,
    batches_of,
    play_until_decided,
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
    """Wins every dream; the real engine confirms `shares[b]` of batch b. Notes which tasks were dreamed with
    which seed.
    """

    shares: list[float]

    def __post_init__(self):
        self.asked = []

    def play(self, tasks, seed):
        self.asked.append(([task.id for task in tasks], seed))
        return [Rollout(make_episode(task, ("go", "s"), won=True), Example([])) for task in tasks]

    def replay(self, won):
        right = round(self.shares[len(self.asked) - 1] * len(won))
        return [Replay(episode, number < right, (True,)) for number, episode in enumerate(won)], STEPS * len(
            won
        )


def checked(shares, **changes):
    settings = FidelityConfig(policy_tasks=SIZE, **changes)
    dream, check = Dream(shares), AgreementCheck()
    check.add(dream.play(TASKS[:SIZE], 5), dream.replay)
    play_until_decided(check, batches_of(TASKS, len(TASKS), SIZE), settings, 5, dream.play, dream.replay)
    return check, dream, settings


@pytest.mark.parametrize(("share", "verdict"), [(1.0, ABOVE), (0.3, BELOW)])
def test_a_clear_first_batch_is_all_that_is_played(share, verdict):
    check, _, settings = checked([share] * 4)
    assert (check.batches, len(check.dreamed), check.steps) == (1, SIZE, STEPS * SIZE)
    assert check.verdict(settings) == verdict and not undecided_note(check, settings, "cloned")


def test_near_the_floor_it_plays_further_tasks_with_other_random_numbers():
    check, dream, settings = checked([0.9, 1.0, 1.0, 1.0])
    assert check.verdict(settings) == ABOVE and check.batches == 2, "18 of 20 decide nothing, 38 of 40 do"
    assert check.steps == STEPS * 2 * SIZE, "the real steps of all batches are counted"
    tasks, seeds = zip(*dream.asked, strict=True)
    assert seeds == (5, 5 + SEED_STRIDE) and tasks == (
        [t.id for t in TASKS[:SIZE]],
        [t.id for t in TASKS[SIZE : 2 * SIZE]],
    )


def test_at_the_maximum_it_stops_and_says_that_the_share_itself_decides():
    check, _, settings = checked([0.85] * 4)
    assert check.verdict(settings) == UNDECIDED and check.batches == 4
    note = undecided_note(check, settings, "cloned")
    assert (
        "undecided after 4 batches: 68 of 80" in note
        and "fidelity.max_batches" in note
        and "share itself (0.850) decides" in note
    )
    metrics = agreement_metrics(check, settings, "cloned")
    bounds = metrics["fidelity/rollout_agreement_bounds/cloned"]
    assert (bounds.value, bounds.n) == (0.85, 80) and bounds.low < 0.8 < 0.85 < bounds.high
    assert metrics["fidelity/rollout_agreement_batches/cloned"].value == 4
    assert metrics["fidelity/rollout_agreement_decided/cloned"].value == 0


def test_one_batch_is_all_where_no_more_is_allowed_or_the_training_tasks_run_out():
    assert checked([0.85], max_batches=1)[0].batches == 1
    assert [len(batch) for batch in batches_of(TASKS, 50, SIZE)] == [SIZE, SIZE], (
        "a third would dream ten tasks again"
    )
    assert len(batches_of(TASKS, 10, SIZE)) == 1, "the first always"


def test_a_dream_that_wins_nothing_is_said_to_have_nothing_to_confirm():
    lost = [Rollout(make_episode(task, ("go", "s")), Example([])) for task in TASKS[:SIZE]]
    check, settings = AgreementCheck(), FidelityConfig(policy_tasks=SIZE)
    play_until_decided(check, [], settings, 0, lambda *_: lost, lambda _: ([], 0))
    check.add(lost, lambda won: ([], 0))
    assert "nothing to confirm" in undecided_note(check, settings, "cloned")
