"""Parts of a stage's key, and the differences between the parts of two keys.

The parts are stored with the result (`key_parts` in stage.json). They explain later why a stage runs again:
because of an input, a config value, a module of code, a package or the seed. They are plain JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.files import read_text
from components.tracking.stage_store.hashes import module_hash, text_hash

INPUTS = "inputs"
CONFIG = "config"
CODE = "code"
PACKAGES = "packages"
SEED = "seed"
PARTS = (INPUTS, CONFIG, CODE, PACKAGES, SEED)
"""Kinds of parts, in the order in which their changes are reported."""


@dataclass(frozen=True)
class KeyChange:
    """One difference between two keys.

    `part` is one of PARTS and `name` the input, config key, module or package. `before` and `now` are the
    two values; None if the part is missing. Values of inputs and code are hashes.
    """

    part: str
    name: str
    before: Any
    now: Any


def key_parts(
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    code: Sequence[str],
    packages: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """The parts of a key: input hashes, config values, hashes of the modules of `code`, pins and the seed.

    Raises:
        TrackingError: `code` names a module that does not exist.
    """
    modules = {name: module_hash(name) for name in sorted(set(code))}
    return {
        INPUTS: dict(inputs),
        CONFIG: dict(config),
        CODE: modules,
        PACKAGES: dict(packages or {}),
        SEED: seed,
    }


def key_of(name: str, parts: Mapping[str, Any]) -> str:
    """sha256 (hex) of a stage's name and the parts of its key.

    Raises:
        TypeError, ValueError: a part is not a JSON value, or it is NaN.
    """
    return text_hash(json.dumps({"name": name, **parts}, sort_keys=True, allow_nan=False))


def read_pins(file: Path) -> dict[str, str]:
    """Package -> version, from a file of pins such as constraints.txt.

    A line of another form becomes a package with an empty version.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        lines = read_text(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} cannot be read: {error}.", next_step="Restore it: git checkout constraints.txt"
        ) from None
    pins = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        name, _, version = text.partition("==")
        if text:
            pins[name.strip()] = version.strip()
    return pins


def key_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[KeyChange]:
    """The parts that differ, in the order of PARTS, then of names. Config keys are dotted."""
    changes = []
    for part in PARTS:
        old = _flatten(before.get(part), part)
        new = _flatten(now.get(part), part)
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                changes.append(KeyChange(part, name, old.get(name), new.get(name)))
    return changes


def _flatten(value: Any, name: str) -> dict[str, Any]:
    return dict(_leaves(value, "")) if isinstance(value, Mapping) else {name: value}


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
