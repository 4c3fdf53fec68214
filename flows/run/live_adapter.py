"""The adapter of the configured world; its environments run on the configured cluster, if there is one."""

from __future__ import annotations

from components.config import Config
from components.environments import make_adapter
from components.environments.capabilities import Adapter


def live_adapter(config: Config) -> Adapter:
    """Return the adapter that `config.environment` selects.

    Raises:
        EnvironmentFailure: the packages it needs are not installed.
        ConfigError: code that the config names does not exist.
    """
    adapter = make_adapter(config.environment)
    if not config.cluster:
        return adapter
    from components.environments.ray_environment import spread_over_cluster

    return spread_over_cluster(adapter, config.environment, config.cluster)
