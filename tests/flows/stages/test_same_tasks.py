"""Kindness compares the dream with reality on tasks that both answered."""

from types import SimpleNamespace

from flows.stages.check_dream import _same_tasks


def rollout(won, unparsable=False, broken=False):
    return SimpleNamespace(trajectory=SimpleNamespace(success=won), unparsable=unparsable, broken=broken)


def test_further_dreamed_batches_and_tasks_without_an_answer_do_not_count():
    dreamed = [rollout(True), rollout(True), rollout(False, unparsable=True), rollout(False)]
    further_batch = [rollout(True)] * 4
    real = [rollout(True), rollout(False), rollout(True), rollout(False, broken=True)]
    assert _same_tasks(dreamed + further_batch, real) == [(True, True), (True, False)]
