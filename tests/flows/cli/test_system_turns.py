"""The system turn of a run's chat models: the world's description, the agent's actions, and how to reply."""

from __future__ import annotations

import pytest

from components.config import load_config
from components.experience.formats import chat_world
from components.policy.formats import chat_agent
from flows.run.training.system_turns import experience_model_system, policy_system


def test_the_adapter_says_what_world_it_is_and_which_actions_there_are():
    config = load_config(None, ["environment.name=alfworld"])
    simulating, acting = experience_model_system(config), policy_system(config)
    assert simulating.startswith("A household in text") and simulating.endswith(chat_world.INSTRUCTIONS)
    assert acting.startswith("A household in text") and acting.endswith(chat_agent.INSTRUCTIONS)
    assert "heat O with R" in acting and "heat O with R" not in simulating


@pytest.mark.parametrize("system", [experience_model_system, policy_system])
def test_a_description_in_the_config_replaces_that_of_the_adapter(system):
    mine = system(load_config(None, ["environment.description=A house of mine."]))
    assert mine.startswith("A house of mine.\n") and "household" not in mine


def test_a_world_without_a_description_has_the_instructions_alone():
    assert chat_world.system_text("") == chat_world.INSTRUCTIONS
    assert chat_agent.system_text("") == chat_agent.INSTRUCTIONS
