"""`dreamgym transfer` accepts one config for each environment, with models of the same form of prompt."""

from __future__ import annotations

import pytest

from components.config import load_config
from components.errors import ConfigError
from flows.jobs.studies.transfer import by_environment

WORLDS = ("alfworld", "webshop")


def test_transfer_needs_two_environments_each_once():
    one, other = (load_config(None, [f"environment.name={name}"]) for name in WORLDS)
    assert list(by_environment([one, other])) == list(WORLDS)
    for configs in ([one], [one, one]):
        with pytest.raises(ConfigError, match="needs at least two environments, each once"):
            by_environment(configs)


@pytest.mark.parametrize("option", ["reasoning", "history"])
def test_models_of_two_forms_are_refused_before_anything_is_trained(option):
    one = load_config(None, [f"environment.name={WORLDS[0]}"])
    other = load_config(None, [f"environment.name={WORLDS[1]}", f"experience_model.{option}=false"])
    with pytest.raises(
        ConfigError, match="reasoning and .history differ: alfworld True and True, webshop .*False"
    ):
        by_environment([one, other])
