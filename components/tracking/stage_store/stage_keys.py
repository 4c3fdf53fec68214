"""What a stage's key is made of, part by part, and which parts differ between two keys.

The parts are kept with the result (`key_parts` in stage.json), so that it can be said later why a stage runs
again: another input, config value, module of code, package or seed. They are plain JSON values.
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

INPUTS, CONFIG, CODE, PACKAGES, SEED = "inputs", "config", "code", "packages", "seed"
PARTS = (INPUTS, CONFIG, CODE, PACKAGES, SEED)
"""Kinds of parts, in the order in which their changes are told."""


@dataclass(frozen=True)
class KeyChange:
    """One difference: the kind of part, its name (input, config key, module, package), values before and now.

    None stands for a part that there is not on that side. Inputs and code have hashes as values.
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
    """The parts of a key: input hashes, config values, the hash of each module of `code`, pins, the seed.

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
    """sha256 (hex) of a stage's name and the parts.

    Raises:
        TypeError, ValueError: a part is not JSON, or a NaN.
    """
    return text_hash(json.dumps({"name": name, **parts}, sort_keys=True, allow_nan=False))


def read_pins(file: Path) -> dict[str, str]:
    """Package -> version of a file of pins such as constraints.txt; a line of another form counts as a whole.

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
    """The parts that differ, in the order of PARTS and then of names; config keys are dotted."""
    found = []
    for part in PARTS:
        old, new = _flat(before.get(part), part), _flat(now.get(part), part)
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found.append(KeyChange(part, name, old.get(name), new.get(name)))
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    return dict(_leaves(value, "")) if isinstance(value, Mapping) else {name: value}


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
