"""The posterior over success, and the curriculum that chooses tasks by its draws."""

from __future__ import annotations

import random

import pytest

from components.config import CurriculumConfig, load_config
from components.errors import ConfigError
from components.experience.tasks.curriculum import Curriculum
from components.experience.tasks.success_posterior import SuccessPosterior
from components.policy.rl.task_source import EvenTasks
from components.records import Task

SUCCESS = {"hard": 0.02, "fair": 0.5, "easy": 0.98}


def task(number, family="fair", instruction="", parent=""):
    name = f"{family}-{number}"
    return Task(name, "own", "train", instruction or f"do {name}", f"room {name}", family, parent=parent)


TASKS = [task(number, family) for family in SUCCESS for number in range(40)]


def play(batch, rng):
    """Returns of eight rollouts of each task."""
    return {one.id: (one, [float(rng.random() < SUCCESS[one.family]) for _ in range(8)]) for one in batch}


def test_a_task_that_was_never_played_has_the_mean_of_its_instruction_family_and_all():
    posterior = SuccessPosterior()
    assert posterior.mean(task(0)) == 0.5
    posterior.update([(task(0, instruction="clean"), [1.0, 1.0, 1.0, 0.0])])
    once = (3 + 4 * 0.5) / 8
    for near in (task(9, "other"), task(1), task(1, instruction="clean"), task(0, instruction="clean")):
        assert posterior.mean(near) == pytest.approx(once), "the same evidence, on another level"
    posterior.update([])
    fresh = [(task(2), [0.0] * 4), (task(3, "other"), [0.0] * 2)]
    posterior.update(fresh)
    wins, losses = 3 * 0.8**2, 1 * 0.8**2
    of_all = (0 + 4 * 0.5) / (2 + 4)  # without the family's own
    family = (0 + 4 * of_all) / (4 + 4)  # without the instruction's own
    assert posterior.mean(task(0, instruction="clean")) == pytest.approx(
        (wins + 4 * family) / (wins + losses + 4)
    )


def test_a_draw_counts_a_tasks_own_rollouts_once():
    """Among tasks that are won half of the time its draws are those of a single Beta distribution."""
    posterior = SuccessPosterior()
    others = [(task(number, "other"), [1.0, 0.0] * 4) for number in range(40)]
    posterior.update([(task(0), [0.0] * 8), *others])
    draws = [posterior.draw_variance(task(0), random.Random(seed)) for seed in range(2000)]
    single = [random.Random(seed).betavariate(2, 2 + 8) for seed in range(2000)]
    assert sum(draws) == pytest.approx(sum(p * (1 - p) for p in single))


def test_tasks_without_a_family_share_nothing_but_the_mean_of_all():
    """Two generated tasks of different instructions: the losses of one say little of the other."""
    posterior = SuccessPosterior()
    lost, other = (task(number, "", instruction=f"do {number}") for number in (1, 2))
    posterior.update([(task(3, "easy"), [1.0] * 40), (lost, [0.0] * 8)])
    of_all = (40 + 2) / (48 + 4)
    assert posterior.mean(other) == pytest.approx(of_all)


def test_old_counts_fade():
    posterior = SuccessPosterior()
    posterior.update([(task(0), [0.0] * 8)])
    low = posterior.mean(task(0))
    for _ in range(30):
        posterior.update([])
    assert low == pytest.approx(2 / (8 + 4)) and posterior.mean(task(0)) == pytest.approx(0.5, abs=0.01)


def test_the_state_continues():
    posterior, other = SuccessPosterior(), SuccessPosterior()
    posterior.update([(task(0), [1.0, 0.0, 0.0])])
    other.load_state_dict(posterior.state_dict())
    draws = [one.draw_variance(task(0), random.Random(3)) for one in (posterior, other)]
    assert draws[0] == draws[1] and 0 <= draws[0] <= 0.25


def curriculum(tasks, **options):
    config = CurriculumConfig(selection="posterior", **options)

    def vary(parents, seed):
        texts = ("do hard", "do fair", "do easy")
        return [texts[(seed + number) % 3] for number in range(len(parents))]

    return Curriculum(tasks, config, vary, lambda _task: "")


def telling_share(source, seed):
    """Share of groups with different returns in the last ten of fifteen iterations."""
    rng = random.Random(seed)
    shares = []
    for iteration in range(15):
        returns = play(source.sample(8, iteration), rng)
        shares.append(sum(len(set(values)) > 1 for _, values in returns.values()) / len(returns))
        source.report(returns, iteration)
    return sum(shares[5:]) / 10


def test_it_finds_the_tasks_that_are_won_half_of_the_time():
    shares = [telling_share(curriculum(TASKS, share=0.0), seed) for seed in range(4)]
    even = [telling_share(EvenTasks(TASKS), seed) for seed in range(4)]
    assert min(shares) > max(even) and sum(shares) / 4 > 0.85


@pytest.mark.parametrize("family", SUCCESS)
def test_of_several_variations_the_one_won_half_of_the_time_is_chosen(family):
    """An easy parent gets a harder variation, a hard one an easier one."""
    source = curriculum(TASKS, candidates=3)
    parent = next(one for one in TASKS if one.family == family)
    known = [task(99, family, instruction=f"do {family}") for family in SUCCESS]
    for _ in range(6):
        played = [(one, [float(SUCCESS[one.family] > limit) for limit in (0.9, 0.1)] * 4) for one in known]
        source._posterior.update(played)
    candidates = [source._candidate(parent, one.instruction) for one in known]
    chosen = [source._choose(candidates, parent, random.Random(seed)).instruction for seed in range(20)]
    assert chosen.count("do fair") >= 15


@pytest.mark.parametrize(("outcome", "easier", "harder"), [(1.0, 0, 20), (0.0, 20, 0)])
def test_a_task_always_or_never_won_is_varied_towards_one_half(outcome, easier, harder):
    """Candidates whose variance is the same: the one on the other side of the parent is taken."""
    source = curriculum(TASKS, candidates=2, seeds=1)
    parent = task(0, "hard" if not outcome else "easy")
    known = {"do rather hard": [0.0, 0.0, 0.0, 1.0] * 4, "do rather easy": [1.0, 1.0, 1.0, 0.0] * 4}
    played = {
        one.id: (one, values)
        for number, (text, values) in enumerate(known.items())
        for one in [task(90 + number, "", instruction=text)]
    }
    for _ in range(6):
        source._posterior.update([*played.values(), (parent, [outcome] * 16)])
    candidates = [source._candidate(parent, text) for text in known]
    assert source._parents([parent]) == [parent], "its returns are all alike"
    extreme = source._posterior.mean(parent)
    assert extreme > 0.9 if outcome else extreme < 0.1
    chosen = [source._choose(candidates, parent, random.Random(seed)) for seed in range(20)]
    means = [source._posterior.mean(one) for one in chosen]
    assert all((mean < extreme) == (outcome == 1.0) for mean in means)


def test_at_most_a_share_is_generated_and_nothing_is_inherited():
    source = curriculum(TASKS[40:80], share=0.25)
    rng = random.Random(0)
    for iteration in range(6):
        rows = source.sample_rows(8, 8, iteration)
        assert len(rows) == 64 and sum(one.generated for one in rows) <= 16
        returns = {one.id: (one, [float(rng.random() < 0.5) for _ in range(rows.count(one))]) for one in rows}
        source.report(returns, iteration)
    assert any(entry["played"] for entry in source.life)


def test_a_resumed_curriculum_draws_the_same_tasks():
    one, other = curriculum(TASKS), curriculum(TASKS)
    rng = random.Random(1)
    for iteration in range(3):
        one.report(play([t for t in one.sample(8, iteration) if t.family], rng), iteration)
    other.load_state_dict(one.state_dict())
    assert [t.id for t in one.sample(8, 3)] == [t.id for t in other.sample(8, 3)]


def test_a_share_to_explore_means_nothing_to_it():
    with pytest.raises(ConfigError, match="explore"):
        load_config(None, ["curriculum.selection=posterior", "curriculum.explore=0.5"])
