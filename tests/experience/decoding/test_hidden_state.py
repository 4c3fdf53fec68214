"""Sampling of the hidden state: until there is no objection, at most `HIDDEN_STATE_TRIES` times."""

from __future__ import annotations

from builders import make_task

from components.experience.decoding.hidden_state import HIDDEN_STATE_TRIES, sample_accepted_premises

TASKS = [make_task(number) for number in range(3)]


def test_only_tasks_with_an_objection_are_sampled_again():
    calls = []

    def sample(tasks, seed):
        calls.append(([task.id for task in tasks], seed))
        return [f"{task.id} in try {len(calls)}" for task in tasks]

    def objection(task, premise):
        return "" if task.id == "t0" or premise == "t2 in try 3" else "impossible"

    premises = sample_accepted_premises(sample, TASKS, objection, seed=5)
    assert premises == ["t0 in try 1", "", "t2 in try 3"]
    first_seed = 5 * HIDDEN_STATE_TRIES
    assert calls[:3] == [(["t0", "t1", "t2"], first_seed), *((["t1", "t2"], first_seed + n) for n in (1, 2))]
    assert calls[3:] == [(["t1"], first_seed + n) for n in range(3, HIDDEN_STATE_TRIES)]


def test_an_empty_sample_is_sampled_again():
    samples = iter(["", "mug 1 shelf 1"])
    premises = sample_accepted_premises(
        lambda tasks, seed: [next(samples)] if tasks else [], TASKS[:1], lambda task, premise: "", seed=0
    )
    assert premises == ["mug 1 shelf 1"]
