"""The text of the system turn of a run's chat models: what world this is, and how to answer in it."""

from __future__ import annotations

from components.config import Config
from components.environments import make_adapter
from components.experience.formats import chat_world
from components.policy.formats import chat_agent


def experience_model_system(config: Config) -> str:
    """Return the system turn of the experience model."""
    return chat_world.system_text(world_description(config))


def policy_system(config: Config) -> str:
    """Return the system turn of the policy."""
    return chat_agent.system_text(
        world_description(config), make_adapter(config.environment).describe_actions()
    )


def world_description(config: Config) -> str:
    """Return what world this is: the config's description, else the adapter's own."""
    return config.environment.description or make_adapter(config.environment).describe_world()
