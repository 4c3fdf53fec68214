"""Import code that the user names in a config as `module:name`; nothing else is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.errors import ConfigError


def look_here() -> str:
    """Add the current directory to the places where modules are looked for, and return it."""
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.append(directory)
    return directory


def load_named(path: str, option: str) -> Callable[..., Any]:
    """Return what `path` names. A module that is not installed is looked for under the current directory.

    Args:
        option: the config option that holds `path`, for messages.

    Raises:
        ConfigError: there is no such module, or it has nothing of that name that can be called. What the
            module itself raises propagates.
    """
    module_name, _, name = path.partition(":")
    directory = look_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, and needs another one
        raise ConfigError(
            f"{option} is {path!r}: there is no module {error.name}.",
            f"It was looked for among the installed packages and under {directory}.",
        ) from None
    target: Callable[..., Any] | None = getattr(module, name, None)
    if target is None or not callable(target):
        raise ConfigError(
            f"{option} is {path!r}: {module.__name__} has nothing of that name that can be called."
        )
    return target
