"""Which tasks are dreamed next, and which proposals are refused; the proposals are written by hand."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from builders import make_task

from components.config import CurriculumConfig
from components.experience.tasks import curriculum as module
from components.experience.tasks.curriculum import Curriculum, return_variance

MIXED, WON, LOST = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]


def numbered(tasks, seed):
    """A new instruction for every proposal."""
    return [f"put a mug in shelf {seed}-{number}" for number in range(len(tasks))]


def make_curriculum(count=20, *, vary=numbered, feasible=lambda task: "", **settings):
    tasks = [make_task(number, instruction=f"put a mug in desk {number}") for number in range(count)]
    return tasks, Curriculum(tasks, CurriculumConfig(**settings), vary, feasible)


def returns(tasks, values):
    return {task.id: (task, list(values)) for task in tasks}


@pytest.mark.parametrize(
    ("values", "variance"),
    [([1, 0], 0.25), ([1, 1, 1], 0), ([0], 0), ([1, 0, 0, 0], 0.1875), ([0.5, 1.0, 0.0, 0.5], 0.125)],
)
def test_the_value_is_the_population_variance_of_the_returns(values, variance):
    assert return_variance([float(v) for v in values]) == pytest.approx(variance)


def test_the_first_training_tasks_are_drawn_evenly():
    tasks, curriculum = make_curriculum(20)
    drawn = [curriculum.sample(8, seed) for seed in range(200)]
    assert all(len({t.id for t in batch}) == 8 for batch in drawn)
    counts = Counter(t.id for batch in drawn for t in batch)
    assert len(counts) == 20 and max(counts.values()) < 2 * min(counts.values())
    assert curriculum.sample(8, 3) == curriculum.sample(8, 3) != curriculum.sample(8, 4)


def test_unplayed_tasks_come_before_tasks_without_value():
    tasks, curriculum = make_curriculum(20, share=0.0, explore=1.0)
    curriculum.report(returns(tasks[:15], WON), 0)
    assert {t.id for t in curriculum.sample(5, 0)} == {t.id for t in tasks[15:]}


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("count", [4, 7, 8])
def test_at_most_the_share_of_a_batch_is_generated(share, count):
    tasks, curriculum = make_curriculum(share=share, explore=0.0, **({"candidates": 8} if share else {}))
    for step in range(3):
        curriculum.report(returns(tasks[:8], MIXED), step)
    assert len(curriculum.generated) == (24 if share else 0), (
        "tasks that would never be played are not generated"
    )
    for seed in range(20):
        batch = curriculum.sample(count, seed)
        assert len(batch) == len({t.id for t in batch}) == count
        assert sum(t.generated for t in batch) == int(share * count)


def test_a_share_of_every_batch_is_drawn_evenly():
    tasks, curriculum = make_curriculum(20, share=0.25, explore=0.5, candidates=1)
    curriculum.report(returns(tasks[:12], MIXED), 0)
    counts = Counter()
    for seed in range(60):
        batch = curriculum.sample(8, seed)
        unknown = [t for t in batch if not t.generated and t.id not in curriculum.task_values]
        assert sum(t.generated for t in batch) == 2
        assert len(unknown) == 4  # half of eight; valuable tasks fill the other two places
        counts.update(t.id for t in unknown)
    assert len(counts) == 8


def test_the_most_valuable_tasks_come_first():
    tasks, curriculum = make_curriculum(10, share=0.0, explore=0.0)
    curriculum.report(
        {**returns(tasks[:3], [1, 0, 0, 0]), **returns(tasks[3:6], MIXED), **returns(tasks[6:], WON)}, 0
    )
    assert {t.id for t in curriculum.sample(3, 1)} == {"t3", "t4", "t5"}
    assert {t.id for t in curriculum.sample(6, 1)} == {f"t{n}" for n in range(6)}
    curriculum.report(returns(tasks[3:6], WON), 1)  # solved now, so their value is zero
    assert {t.id for t in curriculum.sample(3, 1)} == {"t0", "t1", "t2"}


def test_the_most_valuable_tasks_are_varied_and_their_value_is_inherited():
    calls = []

    def vary(tasks, seed):
        calls.append(([t.id for t in tasks], seed))
        return numbered(tasks, seed)

    tasks, curriculum = make_curriculum(6, vary=vary, seeds=2, candidates=3)
    groups = {**returns(tasks[:1], WON), **returns(tasks[1:2], [1, 0, 0, 0]), **returns(tasks[2:4], MIXED)}
    figures = curriculum.report(groups, 7)
    assert calls == [(["t2"] * 3 + ["t3"] * 3, 7)]
    assert figures == {"tasks_accepted": 2, "tasks_proposed": 6, "tasks_pool": 2}
    generated = next(iter(curriculum.generated.values()))
    assert (generated.parent, generated.environment, generated.split, generated.initial_state) == (
        "t2",
        "alfworld",
        "train",
        tasks[2].initial_state,
    )
    assert (
        generated.generated
        and generated.id.startswith("t2/varied-")
        and curriculum.task_values[generated.id] == 0.25
    )
    second = curriculum.report(returns([generated], MIXED), 8)
    assert second == {"tasks_accepted": 1, "tasks_proposed": 3, "tasks_pool": 3}
    assert {t.parent for t in curriculum.generated.values()} == {
        "t2",
        "t3",
    }  # a variation of a variation has the same root


def test_tasks_without_value_are_not_varied():
    tasks, curriculum = make_curriculum(4, vary=lambda tasks, seed: numbered(tasks, seed) if tasks else [])
    assert (
        curriculum.report({**returns(tasks[:2], WON), **returns(tasks[2:], LOST)}, 0)["tasks_proposed"] == 0
    )


def test_proposals_are_refused_by_reason():
    def vary(tasks, seed):
        return [
            "",
            "put a mug in desk 0",
            "fly",
            "put a mug in fridge",
            "put a mug in fridge",
            "put a mug in desk 1",
        ]

    tasks, curriculum = make_curriculum(
        3,
        vary=vary,
        feasible=lambda t: "follows no template" if t.instruction == "fly" else "",
        seeds=1,
        candidates=6,
    )
    figures = curriculum.report(returns(tasks[:1], MIXED), 0)
    always = {"malformed": 1, "not new": 2, "follows no template": 1}
    assert curriculum.life[0]["refused"] == always | {module.OTHER_CANDIDATE_ACCEPTED: 1}  # the second fridge
    assert figures == {"tasks_accepted": 1, "tasks_proposed": 6, "tasks_pool": 1}
    assert curriculum.report(returns(tasks[:1], MIXED), 1)["tasks_accepted"] == 0
    assert curriculum.life[1]["refused"] == always | {"not new": 4}


def test_the_valid_candidate_with_the_rarest_instruction_is_accepted():
    def vary(tasks, seed):
        return ["put a pan in desk", "put a mug in desk 1", "put a cup in desk"]

    rooms = [
        make_task(number, instruction=text)
        for number, text in enumerate(["put a pan in desk", "put a mug in desk 1", "heat a pan"])
    ]
    other = replace(rooms[2], initial_state="another room")
    curriculum = Curriculum(
        [*rooms[:2], other], CurriculumConfig(seeds=1, candidates=3), vary, lambda task: ""
    )
    for expected in (
        "put a cup in desk",
        "put a pan in desk",
        "put a mug in desk 1",
    ):  # the new one; then the first of those that occurred once; then the last
        curriculum.report(returns([other], MIXED), 0)
        assert list(curriculum.generated.values())[-1].instruction == expected
    assert curriculum.life[0]["refused"] == {module.OTHER_CANDIDATE_ACCEPTED: 2}


def test_the_record_of_an_iteration_holds_the_difficulty_of_its_tasks():
    tasks, curriculum = make_curriculum(8, seeds=1, candidates=1)
    shares = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    curriculum.report({task.id: (task, values) for task, values in zip(tasks, shares, strict=False)}, 0)
    assert curriculum.life[0]["difficulty"] == {"training": [1, 2, 1, 1, 1], "generated": [0] * 5}
    generated = list(curriculum.generated.values())
    curriculum.report(returns(generated, MIXED), 1)
    assert curriculum.life[1]["difficulty"]["generated"] == [0, 0, 1, 0, 0]
    assert (curriculum.life[1]["played"], curriculum.life[1]["solved"]) == (1, 1)


def test_generated_tasks_without_value_are_removed():
    tasks, curriculum = make_curriculum(4, seeds=3, candidates=1)
    curriculum.report(returns(tasks[:3], MIXED), 0)
    worthless, *rest = curriculum.generated.values()
    curriculum.report(returns([worthless], LOST), 1)
    assert list(curriculum.generated.values()) == rest and len(rest) == 2
    assert curriculum.sample(4, 0)


def test_the_pool_is_bounded_and_the_least_valuable_tasks_are_removed_first(monkeypatch):
    monkeypatch.setattr(module, "MAX_GENERATED_TASKS", 5)
    tasks, curriculum = make_curriculum(8, seeds=8, candidates=1)
    curriculum.report({**returns(tasks[:4], [1, 0, 0, 0]), **returns(tasks[4:], MIXED)}, 0)
    assert len(curriculum.generated) == 5
    assert Counter(t.parent for t in curriculum.generated.values()) == {
        "t4": 1,
        "t5": 1,
        "t6": 1,
        "t7": 1,
        "t0": 1,
    }


def test_a_state_restored_from_json_gives_the_same_samples():
    tasks, curriculum = make_curriculum(20, candidates=2)
    for step in range(3):
        curriculum.report(
            {t.id: (t, MIXED if n % 2 else WON) for n, t in enumerate(curriculum.sample(8, step))}, step
        )
    state = json.loads(json.dumps(curriculum.state_dict()))
    _, restored = make_curriculum(20, candidates=2)
    restored.load_state_dict(state)
    assert restored.state_dict() == curriculum.state_dict()
    for seed in range(20):
        assert restored.sample(8, seed) == curriculum.sample(8, seed)
    groups = returns(tasks[:3], MIXED)
    (
        restored.report(groups, 2),
        curriculum.report(groups, 2),
    )  # an earlier seed repeats its proposals
    assert restored.life == curriculum.life and restored.life[-1]["refused"]["not new"]
    groups = returns(curriculum.sample(8, 99), MIXED)
    assert restored.report(groups, 5) == curriculum.report(groups, 5)
    assert restored.state_dict() == curriculum.state_dict()


def test_a_batch_larger_than_the_task_set_is_all_tasks():
    tasks, curriculum = make_curriculum(3)
    assert sorted(t.id for t in curriculum.sample(8, 0)) == ["t0", "t1", "t2"]
