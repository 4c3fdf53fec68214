"""Reads prefect.yaml as strictly as a config, before Prefect does.

Prefect itself keeps the last of two equal keys, and reads `010` as 8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from components.config.reading.config_values import LARGEST_INTEGER, read_value
from components.config.reading.yaml_tree import YamlRefused, parse_yaml
from components.errors import ConfigError
from components.files import read_text

_NEXT_STEP = "Correct the file, then type `dreamgym deploy` again."


def read_deployments(path: Path) -> list[dict[str, Any]]:
    """Return the deployments of a prefect.yaml, as Prefect reads them.

    Raises:
        ConfigError: the file is missing or no YAML, a key is repeated, there is no deployment, or a seed is
            no decimal integer.
    """
    if not path.is_file():
        raise ConfigError(
            f"There is no {path}.", "Expected the deployments.", f"Type: git checkout {path.name}"
        )
    text = read_text(path)
    try:
        written = parse_yaml(text)
    except YamlRefused as error:
        raise ConfigError(
            f"{path} is refused: {error}.", "Expected YAML without repeated keys.", _NEXT_STEP
        ) from None
    listed = written.get("deployments") if isinstance(written, dict) else None
    if not isinstance(listed, list) or not all(
        isinstance(entry, dict) and "name" in entry for entry in listed
    ):
        raise ConfigError(
            f"{path} names no deployments.", "Expected a list `deployments`, each with a name.", _NEXT_STEP
        )
    for entry in listed:
        parameters = entry.get("parameters") or {}
        seeds = parameters.get("seeds") if isinstance(parameters, dict) else None
        if seeds not in (None, "", "null", "~"):
            _require_seeds(path, str(entry["name"]), seeds)
    deployments: list[dict[str, Any]] = yaml.safe_load(text)["deployments"]
    return deployments


def _require_seeds(path: Path, deployment: str, written: object) -> None:
    name = f"{path}: the seeds of the deployment {deployment}"
    expected = (
        f"Expected a list of integers from 0 to {LARGEST_INTEGER} in decimal digits, such as [0, 1, 2]."
    )
    if not isinstance(written, list):
        raise ConfigError(f"{name} are {written!s}.", expected, _NEXT_STEP)
    for value in written:
        try:
            seed = read_value(value, int, digits_alone=True)
        except ValueError as error:
            raise ConfigError(f"{name} contain {value!s}: {error}.", expected, _NEXT_STEP) from None
        if not isinstance(seed, int) or not 0 <= seed <= LARGEST_INTEGER:
            raise ConfigError(f"{name} contain {value!s}.", expected, _NEXT_STEP)
    require_each_once(written, name)


def require_each_once(seeds: list[Any], name: str = "seeds") -> None:
    """Raise ConfigError if a seed is repeated."""
    repeated = [seed for number, seed in enumerate(seeds) if seed in seeds[:number]]
    if repeated:
        raise ConfigError(
            f"{name} contain {repeated[0]!s} twice.", "Expected each seed once.", "Leave one of them out."
        )
