"""Real worlds behind one protocol; `make_adapter` is the only place that maps a name to an adapter."""

from __future__ import annotations

from importlib import import_module

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.capabilities import Adapter
from components.environments.text_world.import_path import load_named
from components.environments.text_world.without_knowledge import WithoutKnowledge
from components.errors import EnvironmentFailure

ADAPTERS = {
    "alfworld": "components.environments.alfworld.adapter:AlfworldAdapter",
    "webshop": "components.environments.webshop.adapter:WebshopAdapter",
    "browser": "components.environments.browser.adapter:BrowserAdapter",
    "gymnasium": "components.environments.gymnasium.adapter:GymnasiumAdapter",
    "openenv": "components.environments.openenv.adapter:OpenEnvAdapter",
    "recorded": "components.environments.recorded.adapter:RecordedAdapter",
    "mixed": "components.environments.mixed.adapter:MixedAdapter",
}
"""Value of `environment.name` -> module and class.

They are text, so that the key of a stage depends on the code of the selected adapter alone.
"""
INSTALLATION = {
    "alfworld": "pip install -c constraints.txt -e '.[alfworld]' (needs gcc, g++, make, cmake).",
    "webshop": "pip install -c constraints.txt -e '.[webshop]'",
}
"""Value of `environment.name` -> what to type where its packages are missing."""


def make_adapter(config: EnvironmentConfig) -> Adapter:
    """Return the adapter that `config.name` selects, without its knowledge if `config.knowledge` is false.

    Raises:
        EnvironmentFailure: the packages it needs are not installed.
        ConfigError: code that the config names does not exist.
    """
    adapter = _named_adapter(config)
    return adapter if config.knowledge else WithoutKnowledge(adapter)


def _named_adapter(config: EnvironmentConfig) -> Adapter:
    adapter: Adapter
    if config.name == "own":
        adapter = load_named(config.own.adapter, "environment.own.adapter")(config)
        return adapter
    if config.name == "mixed":
        from components.environments.mixed.adapter import MixedAdapter

        return MixedAdapter({world.name: _named_adapter(world) for world in config.each_world})
    module, _, name = ADAPTERS[config.name].partition(":")
    try:
        adapter_class = getattr(import_module(module), name)
    except ImportError as error:
        if config.name not in INSTALLATION:
            raise
        raise EnvironmentFailure(
            f"A package that the environment {config.name} needs is not installed ({error}).",
            next_step=INSTALLATION[config.name],
        ) from None
    adapter = adapter_class(config)
    return adapter


def adapter_modules(config: EnvironmentConfig) -> list[str]:
    """Return the modules whose code decides what the selected world is like, a user's own included."""
    names = dict.fromkeys([config.name, *(world.name for world in config.each_world)])
    modules = [ADAPTERS[name].partition(":")[0] for name in names if name in ADAPTERS]
    return modules + [world.own_module for world in config.each_world if world.own_module]
