"""Reading a hand-written config: the file, the `key=value` overrides, and what to say about a key or value that is refused."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from components.bounded import read_text
from components.errors import ConfigError, DataError


def read_values(path: Path) -> dict[str, Any]:
    """The mapping of a YAML or JSON file. Raises ConfigError if the file is missing, unreadable or no mapping."""
    if not path.is_file():
        near = sorted(str(other) for other in Path("configs").glob("*.yaml"))
        raise ConfigError(
            f"There is no config file {path}.", next_step=f"Name one that exists, for example: {', '.join(near) or 'none here'}."
        )
    try:
        values = yaml.safe_load(read_text(path))
    except DataError as error:
        raise ConfigError(error.found, error.expected, error.next_step) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not readable YAML: {error}", next_step="Mend the line named above.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}.", "Expected a mapping of sections.", "Start from configs/quick.yaml.")
    return values


def set_value(values: dict[str, Any], override: str) -> None:
    """Put a `key=value` override such as `synthetic_rl.group=4` into `values`. Raises ConfigError if it is none."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"The override {override!r} has no value.", "Expected key=value.", "For example: synthetic_rl.iterations=10")
    *parents, leaf = key.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(
                f"In the override {override!r}, {parent} is a value, not a section.", next_step="See docs/configuration.md for the keys."
            )
    try:
        values[leaf] = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"The value of the override {override!r} is not YAML: {error}", next_step="Quote it, or mend it.") from None


def explained(error: ValidationError, path: Path | str | None, config: type[BaseModel]) -> ConfigError:
    """What to tell the user about values that `config` refuses: each key, what is wrong with it, and the nearest valid name."""
    lines = []
    for problem in error.errors():
        place = [str(part) for part in problem["loc"]]
        key = ".".join(place)
        if problem["type"] == "extra_forbidden":
            known = _keys_at(place[:-1], config)
            near = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.4)
            elsewhere = [k for k in _all_keys(config) if k.split(".")[-1] == place[-1]]
            full = elsewhere or [".".join([*place[:-1], guess]) for guess in near]
            lines.append(f"Unknown key {key}." + (f" Did you mean {' or '.join(full)}?" if full else f" Valid here: {', '.join(known)}."))
        else:
            shown = "" if isinstance(problem["input"], dict) else f" (found {problem['input']!r})"
            lines.append(f"{key}: {problem['msg']}{shown}.")
    return ConfigError(
        f"The configuration {path or ''} is refused. ".replace("  ", " ") + " ".join(lines),
        next_step="See docs/configuration.md for all keys.",
    )


def _keys_at(place: list[str], config: type[BaseModel]) -> list[str]:
    section: Any = config
    for part in place:
        section = get_args(section)[0] if get_origin(section) is list else section.model_fields[part].annotation
    return list(section.model_fields)


def _all_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, spec in section.model_fields.items():
        inner = spec.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _all_keys(inner, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys
