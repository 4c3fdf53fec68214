"""Which configs `dreamgym transfer` takes: one of each world, whose models read and write the same form of
prompt.
"""

from __future__ import annotations

import pytest

from components.config import load_config
from components.errors import ConfigError
from flows.jobs.transfer import by_world

WORLDS = ("alfworld", "webshop")


def test_each_world_stands_once_and_there_are_two():
    one, other = (load_config(None, [f"environment.name={name}"]) for name in WORLDS)
    assert list(by_world([one, other])) == list(WORLDS)
    for configs in ([one], [one, one]):
        with pytest.raises(ConfigError, match="needs at least two environments, each once"):
            by_world(configs)


@pytest.mark.parametrize("option", ["reasoning", "history"])
def test_models_of_two_forms_are_refused_before_anything_is_trained(option):
    one = load_config(None, [f"environment.name={WORLDS[0]}"])
    other = load_config(None, [f"environment.name={WORLDS[1]}", f"experience_model.{option}=false"])
    with pytest.raises(
        ConfigError, match="reasoning and .history differ: alfworld True and True, webshop .*False"
    ):
        by_world([one, other])
