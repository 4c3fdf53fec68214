"""Validation games: what is left out, worlds without a split of their own, worlds with too few tasks."""

import random
from dataclasses import replace

import pytest
from builders import make_task

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments import make_adapter
from components.environments.text_world.seed_tasks import SEEDS, draw_seeds
from components.environments.validation_split import (
    MOST_BATCHES,
    apart_from,
    batch_seed,
    draw_validation_tasks,
    opening,
    require_split,
    tells_apart,
)
from components.errors import EnvironmentFailure

TEMPLATE = EnvironmentConfig(name="own", own={"adapter": "components.environments.template:TemplateAdapter"})


class Finite:
    """A world with two lists of tasks and no validation split."""

    def __init__(self, test):
        self.lists = {"test": test}

    def tasks(self, split, count, seed):
        if len(self.lists[split]) < count:
            raise EnvironmentFailure(f"This world has {len(self.lists[split])} tasks of {split}.")
        return random.Random(seed).sample(self.lists[split], count)


def numbered(count, start=0):
    return [
        make_task(n, initial_state=f"Room {n}.", spec=f'{{"n": {n}}}', split="test")
        for n in range(start, start + count)
    ]


def test_tasks_with_a_recorded_id_spec_or_opening_are_left_out():
    recorded = [replace(task, split="train") for task in numbered(20)]
    same_id = make_task(3, initial_state="Room 90.", spec='{"n": 90}')
    same_spec = make_task(91, initial_state="Room 91.", spec='{"n": 3}')
    same_opening = make_task(92, initial_state="Room 3.", spec='{"n": 92}')
    varied = make_task(94, initial_state="Room 3.", spec='{"n": 94}', instruction="heat a mug")
    fresh = make_task(93, initial_state="Room 93.", spec='{"n": 93}')
    assert apart_from([same_id, same_spec, same_opening, varied, fresh], recorded) == [fresh]


def test_equal_openings_are_ignored_where_all_tasks_share_them():
    alike = [make_task(n, spec=f'{{"n": {n}}}') for n in range(20)]
    fresh = make_task(93, spec='{"n": 93}')
    assert not tells_apart(alike, opening, 0.9) and apart_from([fresh, alike[0]], alike) == [fresh]


def test_without_a_validation_split_further_test_games_are_drawn():
    recorded = numbered(30)
    games = draw_validation_tasks(Finite(numbered(60)), 20, 1, recorded)
    assert len({game.id for game in games}) == 20 and {game.split for game in games} == {"validation"}
    assert not {game.id for game in games} & {task.id for task in recorded}


def test_too_few_tasks_are_an_error_with_the_next_step():
    words = "validation tasks beside the 50 recorded.*has 60 tasks.*Expected 20.*Lower evaluation.tasks"
    with pytest.raises(EnvironmentFailure, match=words):
        draw_validation_tasks(Finite(numbered(60)), 20, 1, numbered(50))
    with pytest.raises(EnvironmentFailure, match="0 validation tasks beside the 60 recorded"):
        draw_validation_tasks(Finite(numbered(60)), 20, 1, numbered(60))


def test_the_template_world_has_validation_games():
    adapter = make_adapter(TEMPLATE)
    recorded = [*adapter.tasks("train", 40, 0), *adapter.tasks("test", 64, 0)]
    games = draw_validation_tasks(adapter, 64, batch_seed(0, 0), recorded)
    assert not {game.id for game in games} & {task.id for task in recorded}
    assert adapter.open().reset(games[:3]) == [game.initial_state for game in games[:3]]


def test_validation_seeds_belong_to_no_other_split():
    solved = [f"w/{2 * SEEDS + 1}", "w/7", "w/8"]
    seeds = {
        split: draw_seeds(split, 300, random.Random(1), solved, "w/")
        for split in ("train", "validation", "test")
    }
    assert (
        all(2 * SEEDS <= seed < 4 * SEEDS for seed in seeds["validation"])
        and len(set(seeds["validation"])) == 300
    )
    assert not set(seeds["validation"]) & {*seeds["train"], *seeds["test"], 2 * SEEDS + 1}
    assert all(seed % 2 == 0 for seed in seeds["train"]) and all(seed % 2 for seed in seeds["test"])


def test_batches_and_draws_have_seeds_of_their_own():
    seeds = [batch_seed(draw, number) for draw in range(3) for number in (0, 1, MOST_BATCHES - 1)]
    assert len(set(seeds)) == 9
    with pytest.raises(ValueError, match="expected 0 to 999"):
        batch_seed(0, MOST_BATCHES)


def test_an_unknown_split_is_named_with_the_known_ones():
    with pytest.raises(EnvironmentFailure, match="no split 'x'.*Expected train, validation or test"):
        require_split("x", ("train", "validation", "test"))
