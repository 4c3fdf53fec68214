"""What `check-environment` reports of validation games: too few, shared, not repeatable, or no split."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count as counter

import pytest

from components.config import Config
from components.environments import make_adapter
from components.environments.contract.validation_check import examine_validation
from components.environments.template import TemplateAdapter
from components.errors import EnvironmentFailure
from components.records import VALIDATION


def config(**more):
    own = {"name": "own", "own": {"adapter": "components.environments.template:TemplateAdapter"}}
    return Config.model_validate({"environment": own, "evaluation": {"tasks": 20}, **more})


def found_in(kind, **more):
    settings = config(**more)
    return examine_validation(kind(settings.environment), settings)


class Unseeded(TemplateAdapter):
    """Validation tasks of another random stream at each call."""

    def tasks(self, split, count, seed, calls=counter()):  # noqa: B008
        return super().tasks(split, count, next(calls) if split == VALIDATION else seed)


class Copied(TemplateAdapter):
    """Validation tasks are those of the test split, with another split's name."""

    def tasks(self, split, count, seed):
        if split != VALIDATION:
            return super().tasks(split, count, 0)
        return [replace(task, split=VALIDATION) for task in super().tasks("test", count, 0)]


class Unnamed(TemplateAdapter):
    """Validation tasks say that they are test tasks."""

    def tasks(self, split, count, seed):
        made = super().tasks(split, count, seed)
        return [replace(task, split="test") for task in made] if split == VALIDATION else made


class WithoutSplit(TemplateAdapter):
    """An adapter with two splits."""

    splits = ("train", "test")


class Few(WithoutSplit):
    """As many test tasks as an evaluation plays, or `size`."""

    size = 20

    def tasks(self, split, count, seed):
        if split == "test" and count > self.size:
            raise EnvironmentFailure(f"This world has {self.size} tasks of test.")
        listed = super().tasks(split, self.size if split == "test" else count, 0)
        random.Random(seed).shuffle(listed)
        return listed[:count]


class Fixed(TemplateAdapter):
    """The same validation tasks whatever the seed is."""

    def tasks(self, split, count, seed):
        return super().tasks(split, 30, 7) if split == VALIDATION else super().tasks(split, count, seed)


def test_an_own_validation_split_is_accepted():
    assert found_in(TemplateAdapter) == ("20 of a split of their own", "")
    alfworld = Config.model_validate({"evaluation": {"tasks": 6}})
    assert examine_validation(make_adapter(alfworld.environment), alfworld)[1] == ""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Unseeded,
            "The 20 validation tasks are others when they are drawn again.*Draw them by random.Random",
        ),
        (Copied, "20 of 20 validation tasks are training or test tasks: own/.*Draw each split from seeds"),
        (Unnamed, r"Validation tasks have the environment and the split \('own', 'test'\)"),
        (
            Few,
            "The world has 0 validation tasks beside the 44 recorded.*has 20 tasks of test.*Lower eval",
        ),
    ],
)
def test_wrong_validation_tasks_are_an_error_with_the_next_step(kind, words):
    with pytest.raises(EnvironmentFailure, match=words):
        found_in(kind)


def test_a_world_without_a_validation_split_learns_how_to_add_one():
    found, next_step = found_in(WithoutSplit)
    assert found == "20 further tasks of the test split, as the adapter lists no validation split"
    assert "set splits = ('train', 'validation', 'test')" in next_step and "add-a-world.md" in next_step


def test_a_missing_second_batch_is_reported_if_the_config_asks_for_one():
    found, next_step = found_in(Fixed)
    assert "no second batch of 20" in found and "promotion.max_batches=1" in next_step
    assert found_in(Fixed, promotion={"max_batches": 1}) == ("20 of a split of their own", "")


def test_the_splits_of_the_template_share_no_task():
    adapter = make_adapter(config().environment)
    sizes = {"train": 800, "validation": 400, "test": 500}
    specs = [{task.spec for task in adapter.tasks(split, size, 0)} for split, size in sizes.items()]
    assert [len(listed) for listed in specs] == list(sizes.values()) and len(set.union(*specs)) == 1700
