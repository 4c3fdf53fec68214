"""A loss that jumps is noted; one that does not come back ends the training with the reason."""

from __future__ import annotations

import random
import statistics

import pytest
from builders import make_model

from components.errors import TrainingError
from components.language.training import sharding
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.loss_watch import is_jump, require_recovered
from components.language.training.token_scores import TokenScores


def test_a_loss_above_three_running_medians_is_a_jump():
    assert is_jump([1.0] * 20 + [3.01, 3.01])
    assert not is_jump([1.0] * 20 + [9.0, 2.99])
    assert not is_jump([1.0] * 20 + [9.0]), "a single batch of another kind"
    assert not is_jump([1.0] * 19 + [9.0, 9.0]), "too few updates to know the median"


def test_a_falling_loss_never_jumps():
    losses = [8.0 * 0.95**step for step in range(200)]
    assert not any(is_jump(losses[: step + 1]) for step in range(200))


def test_a_loss_that_came_back_is_accepted():
    require_recovered([1.0] * 60 + [9.0] * 10 + [1.0] * 30)
    require_recovered([1.0] * 30)


def test_batches_of_two_kinds_are_no_jump():
    """Half of the batches are easy: the median of a window is the loss of either kind."""
    for seed in range(50):
        rng = random.Random(seed)
        losses = [rng.choice([0.1, 1.0]) for _ in range(1300)]
        windows = [statistics.median(losses[at : at + 50]) for at in range(0, 1300, 50)]
        assert max(windows) > 3 * min(windows)
        require_recovered(losses)


def test_a_loss_that_stays_up_is_refused_with_both_values():
    with pytest.raises(
        TrainingError, match=r"is 5 nats a token at the end, and was 1 around update 25.*Lower"
    ):
        require_recovered([1.0] * 60 + [5.0] * 40)


def test_a_training_records_where_its_loss_jumped(monkeypatch):
    class Scripted:
        """Log-probabilities whose loss jumps at update 30."""

        def __init__(self):
            self.calls = 0

        def __call__(self, model, batch, **options):
            self.calls += 1
            weight = next(model.parameters()).flatten()[:1]
            loss = 9.0 if self.calls in (30, 31) else 1.0
            scores = weight * 0 - loss
            return TokenScores(scores.expand(len(batch.rows)), batch.rows, batch.columns)

    monkeypatch.setattr(sharding, "token_logprobs", Scripted())
    example = Example([Segment([1, 2, 3], [False, True, True])])
    record = supervised_finetune(
        make_model(), [example], epochs=60, learning_rate=1e-3, batch_tokens=3, seed=0
    )
    assert record.jumps == [30] and len(record.losses) == 60


def test_only_the_first_jumps_are_printed(monkeypatch, caplog):
    class Scripted:
        """Log-probabilities whose loss jumps ten times."""

        def __init__(self):
            self.calls = 0

        def __call__(self, model, batch, **options):
            self.calls += 1
            weight = next(model.parameters()).flatten()[:1]
            scores = weight * 0 - (9.0 if self.calls > 25 and self.calls % 25 < 2 else 1.0)
            return TokenScores(scores.expand(len(batch.rows)), batch.rows, batch.columns)

    monkeypatch.setattr(sharding, "token_logprobs", Scripted())
    example = Example([Segment([1, 2, 3], [False, True, True])])
    record = supervised_finetune(
        make_model(), [example], epochs=290, learning_rate=1e-3, batch_tokens=3, seed=0
    )
    printed = [entry.getMessage() for entry in caplog.records if "jumped" in entry.getMessage()]
    assert len(record.jumps) == 10 and len(printed) == 3
    assert printed[-1].endswith("; later jumps are not printed.")
