"""Check of the reward before anything is trained: `reward: hero` needs a world that measures progress."""

from __future__ import annotations

from collections.abc import Sequence

from components.config import Config
from components.config.algorithm_config import GRPOConfig
from components.environments import make_adapter
from components.environments.capabilities import Progress
from components.environments.mixed.adapter import shared_capabilities
from components.errors import ConfigError


def has_progress(config: Config) -> bool:
    """Return True if the configured world, or each world of a mixed one, measures progress itself.

    The default of `Progress` is the outcome, which ranks no episodes of the same outcome.
    """
    return Progress.__name__ in shared_capabilities(make_adapter(config.environment), None)


def require_progress(config: Config, stages: Sequence[str] = ("dream", "real")) -> None:
    """Raise ConfigError if HERO would rank episodes by a progress that the world does not measure.

    Args:
        stages: sections of `rl` that are used.
    """
    keys = [f"rl.{name}.algorithm.reward" for name in stages if _ranks_by_progress(config, name)]
    if not keys or has_progress(config):
        return
    environment = config.environment
    name = f"{environment.name} with environment.knowledge=false" if not environment.knowledge else ""
    raise ConfigError(
        f"{' and '.join(keys)} is hero; the environment {name or environment.name} measures no progress: "
        "episodes of one outcome would all have one score.",
        "Expected an adapter that defines `progress` (docs/guides/add-a-world.md).",
        f"Set {' '.join(f'{key}=hero_learnt' for key in keys)}, whose score is learnt from the logs, or "
        "=outcome.",
    )


def _ranks_by_progress(config: Config, stage: str) -> bool:
    settings = getattr(config.rl, stage)
    options = settings.algorithm
    return bool(settings.iterations) and isinstance(options, GRPOConfig) and options.reward == "hero"
