"""Real worlds behind one protocol; `make_adapter` is the only place that maps a name to an adapter."""

from __future__ import annotations

from components.environment_config import EnvironmentConfig
from components.environments.protocol import Adapter
from components.errors import EnvironmentFailure


def make_adapter(config: EnvironmentConfig) -> Adapter:
    """The adapter that `config.name` asks for.

    Raises:
        EnvironmentFailure: the packages it needs are not installed.
        ConfigError: code that the config names is not there.
    """
    makers = {
        "alfworld": _alfworld,
        "webshop": _webshop,
        "browser": _browser,
        "gymnasium": _gymnasium,
        "openenv": _openenv,
        "own": _own,
    }
    return makers[config.name](config)


def _alfworld(config: EnvironmentConfig) -> Adapter:
    try:
        from components.environments.alfworld.adapter import AlfworldAdapter
    except ImportError as error:
        raise EnvironmentFailure(
            f"ALFWorld's engine is not installed ({error}).",
            next_step="pip install -c constraints.txt -e '.[alfworld]' (needs gcc, g++, make, cmake).",
        ) from None
    return AlfworldAdapter(config)


def _webshop(config: EnvironmentConfig) -> Adapter:
    try:
        from components.environments.webshop.adapter import WebshopAdapter
    except ImportError as error:
        raise EnvironmentFailure(
            f"What WebShop's search and reward need is not installed ({error}).",
            next_step="pip install -c constraints.txt -e '.[webshop]'",
        ) from None
    return WebshopAdapter(config)


def _browser(config: EnvironmentConfig) -> Adapter:
    from components.environments.browser.adapter import BrowserAdapter

    return BrowserAdapter(config)


def _gymnasium(config: EnvironmentConfig) -> Adapter:
    from components.environments.gymnasium.adapter import GymnasiumAdapter

    return GymnasiumAdapter(config)


def _openenv(config: EnvironmentConfig) -> Adapter:
    from components.environments.openenv.adapter import OpenEnvAdapter

    return OpenEnvAdapter(config)


def _own(config: EnvironmentConfig) -> Adapter:
    from components.environments.named import load_named

    adapter: Adapter = load_named(config.own.adapter, "environment.own.adapter")(config)
    return adapter
