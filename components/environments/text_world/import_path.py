"""Code that the user names in a config, as `module:name`; nothing else is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.errors import ConfigError


def look_here() -> str:
    """Have modules that are not installed be looked for under the current directory; that directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return here


def load_named(path: str, option: str) -> Callable[..., Any]:
    """What `path` names. A module that is not installed is looked for under the current directory.

    Raises:
        ConfigError: there is no such module, or it has nothing of that name that can be called. What the
            module itself raises propagates.
    """
    module, _, name = path.partition(":")
    here = look_here()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and needs another one
        expected = f"It was looked for among the installed packages and under {here}."
        raise ConfigError(f"{option} is {path!r}: there is no module {error.name}.", expected) from None
    made = getattr(found, name, None)
    if not callable(made):
        raise ConfigError(
            f"{option} is {path!r}: {found.__name__} has nothing of that name that can be called."
        )
    return made  # type: ignore[no-any-return]
