"""Probes of generated tasks: who is probed and how often, who passes, and what the curriculum then plays."""

from __future__ import annotations

import json
import math
import random
from collections import Counter

import pytest
from builders import make_task

from components.config import CurriculumConfig
from components.experience.tasks.curriculum import Curriculum
from components.experience.tasks.task_probes import TaskProbes, rollouts_with_variance

SUCCESS = {"hard": 0.02, "fair": 0.5, "easy": 0.98}
LOST, WON, MIXED = [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]


def named(*texts):
    return [make_task(number, instruction=text) for number, text in enumerate(texts)]


def probes_of(tasks):
    probes = TaskProbes()
    for task in tasks:
        probes.add(task)
    return probes


def counts(rows):
    return Counter(task.instruction for task in rows)


@pytest.mark.parametrize(
    ("waiting", "count", "sizes"),
    [(9, 8, [2, 2, 2, 2]), (3, 8, [3, 3, 2]), (1, 8, [8]), (9, 5, [3, 2]), (9, 1, [1]), (0, 8, [])],
)
def test_the_probes_share_the_rollouts_of_one_place(waiting, count, sizes):
    tasks = named(*(f"do {number}" for number in range(waiting)))
    rows = probes_of(tasks).rows(tasks, count, lambda task: 0.1)
    assert list(Counter(task.id for task in rows).values()) == sizes
    assert rows == sorted(rows, key=lambda task: task.id), "the rollouts of a task follow each other"


def test_begun_probes_come_first_then_the_largest_draws():
    tasks = named("a", "b", "c", "d")
    probes = probes_of(tasks)
    probes.record([(tasks[0], LOST)])
    draws = {"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.15}
    rows = probes.rows(tasks, 6, lambda task: draws[task.instruction])
    assert [task.instruction for task in rows[::2]] == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("batches", "passes", "is_rejected"),
    [
        ([MIXED], True, False),
        ([LOST], False, False),
        ([WON], False, False),
        ([LOST, LOST], False, True),
        ([WON, WON], False, True),
        ([LOST, WON], True, False),
        ([WON, [1.0], [0.0]], True, False),
        ([LOST * 4], False, True),
    ],
)
def test_a_task_passes_once_its_probes_differ_and_is_rejected_after_four_alike(batches, passes, is_rejected):
    (task,) = tasks = named("a")
    probes = probes_of(tasks)
    rejected = []
    for values in batches:
        probed, rejected = probes.record([(task, values)])
        assert probed == 1
    assert probes.is_waiting(task) != passes and bool(rejected) == is_rejected
    assert not passes or probes.record([(task, LOST * 2)]) == (0, []), "it is no longer a probe"


def test_the_share_of_rollouts_with_variance_weights_groups_by_their_rollouts():
    assert rollouts_with_variance([MIXED * 4, WON, LOST]) == pytest.approx(8 / 12)
    assert math.isnan(rollouts_with_variance([]))


def make_curriculum(count=12, **settings):
    """Variations are never won, won half of the time or always, in turn; each has its own instruction."""

    def vary(parents, seed):
        return [f"do {list(SUCCESS)[number % 3]} {seed}-{number}" for number in range(len(parents))]

    tasks = named(*(f"do fair {number}" for number in range(count)))
    config = CurriculumConfig(selection="posterior", candidates=1, **settings)
    return Curriculum(tasks, config, vary, lambda task: "")


def play(rows, rng):
    """Returns of each task in `rows`, by the word of its instruction."""
    returns = {}
    for task in rows:
        success = SUCCESS[task.instruction.split()[1]]
        returns.setdefault(task.id, (task, []))[1].append(float(rng.random() < success))
    return returns


def full_groups_of_generated_tasks(curriculum, seed):
    """Instruction words of the generated tasks that got a full group in twelve iterations."""
    rng = random.Random(seed)
    words = Counter()
    for iteration in range(12):
        rows = curriculum.sample_rows(8, 8, iteration)
        assert len(rows) == 64, "as many rollouts as without probes"
        assert sum(task.generated for task in rows) <= 8 * int(curriculum.config.share * 8)
        returns = play(rows, rng)
        full = [task for task, values in returns.values() if task.generated and len(values) == 8]
        words.update(task.instruction.split()[1] for task in full)
        curriculum.report(returns, iteration)
    return words


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5])
def test_only_tasks_whose_probes_differ_get_full_groups(share):
    """Two thirds of the new tasks are never or always won; without probes they get as many full groups."""
    words, sources = Counter(), []
    for seed in range(12):
        sources.append(make_curriculum(share=share, seeds=8))
        words += full_groups_of_generated_tasks(sources[-1], seed)
    assert words["fair"] > 0.7 * words.total() > 0
    assert all(sum(entry["rejected"] for entry in source.life) > 0 for source in sources)


def test_a_rejected_task_leaves_the_pool_and_is_counted():
    curriculum = make_curriculum(seeds=2)
    curriculum.report({task.id: (task, MIXED) for task in curriculum.originals[:2]}, 0)
    first, second = curriculum.generated.values()
    figures = curriculum.report({first.id: (first, LOST), second.id: (second, MIXED)}, 1)
    assert (figures["tasks_probed"], figures["tasks_rejected"], figures["rollouts_with_variance"]) == (
        2,
        0,
        0.5,
    )
    figures = curriculum.report({first.id: (first, LOST), second.id: (second, LOST)}, 2)
    assert (figures["tasks_probed"], figures["tasks_rejected"]) == (1, 1)
    assert first.id not in curriculum.generated and second.id in curriculum.generated
    assert (curriculum.life[-1]["probed"], curriculum.life[-1]["rejected"]) == (1, 1)


def test_a_task_that_waits_competes_for_no_full_group_and_its_probes_enter_the_posterior():
    curriculum = make_curriculum(count=2, seeds=2, share=1.0)
    curriculum.report({task.id: (task, MIXED) for task in curriculum.originals}, 0)
    first, second = curriculum.generated.values()
    assert not any(task.generated for seed in range(20) for task in curriculum.sample(4, seed))
    before = curriculum._posterior.mean(first)
    curriculum.report({first.id: (first, [1.0, 1.0, 0.0])}, 1)
    assert curriculum._posterior.mean(first) > before
    drawn = {task.id for seed in range(20) for task in curriculum.sample(4, seed)}
    assert first.id in drawn and second.id not in drawn


def test_probes_take_an_only_generated_place_in_half_of_the_iterations_once_a_task_has_passed():
    curriculum = make_curriculum(seeds=8, share=0.125)
    curriculum.report({task.id: (task, MIXED) for task in curriculum.originals[:8]}, 0)
    first, *_ = curriculum.generated.values()

    def probing():
        return sum(curriculum.sample_rows(8, 8, seed)[-1].generated for seed in range(40))

    assert probing() == 40
    curriculum.report({first.id: (first, MIXED)}, 1)
    batches = [curriculum.sample_rows(8, 8, seed) for seed in range(40)]
    probed = [rows for rows in batches if rows.count(rows[-1]) < 8]
    assert 10 <= len(probed) <= 30 and all(first not in rows for rows in probed)


def test_a_resumed_curriculum_probes_the_same_tasks():
    one, other = make_curriculum(), make_curriculum()
    rng = random.Random(0)
    for iteration in range(4):
        one.report(play(one.sample_rows(8, 8, iteration), rng), iteration)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.state_dict() == one.state_dict() and one.state_dict()["probes"]
    assert [other.sample_rows(8, 8, seed) for seed in range(9)] == [
        one.sample_rows(8, 8, seed) for seed in range(9)
    ]


def test_the_default_selection_probes_nothing():
    tasks = named(*(f"do fair {number}" for number in range(12)))
    curriculum = Curriculum(
        tasks, CurriculumConfig(seeds=2, candidates=1), lambda t, s: ["a", "b"], lambda t: ""
    )
    figures = curriculum.report({task.id: (task, MIXED) for task in tasks[:2]}, 0)
    assert set(figures) == {"tasks_proposed", "tasks_accepted", "tasks_pool"}
    assert curriculum.sample_rows(8, 4, 0) == [task for task in curriculum.sample(8, 0) for _ in range(4)]
    assert len(curriculum.generated) == 2 and set(curriculum.generated) <= {
        task.id for task in curriculum.sample(8, 0)
    }
