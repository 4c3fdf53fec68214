"""Reading a hand-written config: the file, the `key=value` overrides, and what to say about a key or value
that is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from components.config.reading.config_values import Plain
from components.config.reading.yaml_tree import YamlRefused, parse_yaml
from components.errors import ConfigError, DataError
from components.files import read_text


def read_values(path: Path) -> dict[str, Any]:
    """The mapping of a YAML or JSON file, its plain scalars as `Plain`.

    Raises:
        ConfigError: the file is missing, unreadable or no mapping, or a key stands twice.
    """
    if not path.is_file():
        near = sorted(str(other) for other in Path("configs").glob("*.yaml"))
        raise ConfigError(
            f"There is no config file {path}.",
            next_step=f"Name one that exists, for example: {', '.join(near) or 'none here'}.",
        )
    try:
        values = parse_yaml(read_text(path))
    except DataError as error:
        raise ConfigError(error.found, error.expected, error.next_step) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}.",
            next_step="Save it as UTF-8.",
        ) from None
    except YamlRefused as error:
        raise ConfigError(
            f"{path} is refused: {error}.", next_step="Correct the file and type the same again."
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else f"the text {str(values)[:60]!r}"
        raise ConfigError(
            f"{path} holds {kind}.",
            "Expected sections with keys below them.",
            "Start from configs/quick.yaml.",
        )
    return values


def set_values(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Put `key=value` overrides such as `synthetic_rl.group=4` into `values`; `cloning={epochs: 2}` sets that
    key of the section alone.

    Raises:
        ConfigError: one has no value, or is no YAML, or two of them give one key different values.
    """
    given: dict[str, Any] = {}
    for override in overrides:
        for key, value in _leaves(*_parsed(override)):
            before = given.setdefault(key, value)
            if before != value or type(before) is not type(
                value
            ):  # the values are not repeated: one may hold a password
                found = f"The command line gives {key} twice, with different values."
                raise ConfigError(found, "Expected one value.", "Leave one of them out.")
    for key, value in given.items():
        _set(values, key, value)


def _parsed(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"The override {override!r} has no value.",
            "Expected key=value.",
            "For example: synthetic_rl.iterations=10",
        )
    try:
        value = parse_yaml(text)
    except YamlRefused as error:
        found = f"The value of the override {key}=... is refused: {error}."
        raise ConfigError(
            found, next_step=f"If it is text, put it in quotes for the shell and for YAML: {key}='\"...\"'"
        ) from None
    if "#" in text and (value is None or (isinstance(value, Plain) and value != text.strip())):
        found = f"In the override {key}=... YAML takes what follows '#' for a comment and drops it."
        raise ConfigError(
            found,
            next_step="If it belongs to the text, put it in quotes for the shell and for YAML: "
            f"{key}='\"...\"'",
        )
    return key, Plain("") if value is None else value


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key, value


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, leaf = key.split(".")
    for parent in parents:
        if values.get(parent) in (None, ""):  # the file names the section and sets nothing in it
            values[parent] = {}
        values = values[parent]
        if not isinstance(values, dict):
            found = f"The override {key} sets a key below {parent}, which has a value of its own."
            raise ConfigError(found, next_step="See docs/configuration.md for the keys.")
    values[leaf] = value


def explained(error: ValidationError, path: Path | str | None, config: type[BaseModel]) -> ConfigError:
    """What to tell the user about values that `config` refuses: each key, its value, what was expected, and
    the nearest valid name.
    """
    said: dict[str, list[str]] = {}
    for problem in error.errors():
        head, words = _problem(problem, config)
        said.setdefault(head, []).append(words)
    sentences = [f"{head}{', or '.join(dict.fromkeys(words))}".rstrip(".") for head, words in said.items()]
    lines = " ".join(sentence if sentence.endswith("?") else f"{sentence}." for sentence in sentences)
    next_step = "See docs/configuration.md for all keys."
    return ConfigError(
        f"The configuration{f' {path}' if path else ''} is refused. {lines}", next_step=next_step
    )


def _problem(problem: Any, config: type[BaseModel]) -> tuple[str, str]:
    """The key with its value, and what was expected."""
    place = [part for part in problem["loc"] if not str(part).startswith(("list[", "literal["))]
    last = (
        place[:-1] if place and isinstance(place[-1], int) else place
    )  # "types has 5", but "phases.1.tokens is -1"
    key, value = ".".join(str(part) for part in last), problem["input"]
    if problem["type"] == "extra_forbidden":
        return _unknown([str(part) for part in place], config), ""
    words = _expected(problem, [part for part in place if isinstance(part, str)], config)
    if isinstance(value, dict | BaseModel):
        below = "" if problem["type"] == "value_error" else "; it has no keys below it"
        return f"{key}: " if key else "", words + below
    return f"{key} {'is' if isinstance(place[-1], str) else 'has'} {_shown(value)}: ", words


def _unknown(place: list[str], config: type[BaseModel]) -> str:
    parents, name = place[:-1], place[-1]
    key = ".".join(place)
    if "." in name and ".".join([*parents, name]) in _all_keys(config):
        section, _, leaf = name.rpartition(".")
        return (
            f"Unknown key {name} in a file: dots are for the command line. Expected {leaf} below the "
            f"section {section}"
        )
    known = _keys_at(parents, config)
    elsewhere = [other for other in _all_keys(config) if other.split(".")[-1] == name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    full = elsewhere or [".".join([*parents, guess]) for guess in near]
    return f"Unknown key {key}. " + (
        f"Did you mean {' or '.join(full)}?" if full else f"Valid here: {', '.join(known)}"
    )


def _shown(value: object) -> str:
    """A value as it was written: text in quotes only if it was in quotes."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = str(value) if isinstance(value, Plain) and value else repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... ({len(text):,} characters)"


_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("a number above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("a number below", "lt"),
}


def _expected(problem: Any, place: list[str], config: type[BaseModel]) -> str:
    """What pydantic expected, in the words of the other messages."""
    kind, context, spec = problem["type"], problem.get("ctx", {}), _spec_at(place, config)
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        both = [
            getattr(mark, end)
            for end in ("ge", "le")
            for mark in getattr(spec, "metadata", ())
            if hasattr(mark, end)
        ]
        return f"expected {both[0]} to {both[1]}" if len(both) == 2 else f"expected {words} {context[name]}"
    if kind == "literal_error":
        return f"expected {context['expected']}"
    if kind in ("int_from_float", "int_type"):
        return "expected an integer"
    if kind == "finite_number":
        return "expected a finite number"
    if kind == "list_type":
        return "expected a list, such as [a, b]"
    if kind == "string_type":
        return "expected text"
    if kind in ("model_type", "model_attributes_type"):
        return "expected a section with keys below it"
    if kind == "string_pattern_mismatch" and spec is not None:
        words = str(spec.description).rstrip(".")
        return f"expected {words[0].lower()}{words[1:]}"
    return str(problem["msg"])


def _spec_at(place: list[str], config: type[BaseModel]) -> Any:
    section: Any = config
    for part in place[:-1]:
        section = section.model_fields[part].annotation
        section = get_args(section)[0] if get_origin(section) is list else section
    return section.model_fields.get(place[-1]) if place else None


def _keys_at(place: list[str], config: type[BaseModel]) -> list[str]:
    section: Any = config
    for part in place:
        section = (
            get_args(section)[0] if get_origin(section) is list else section.model_fields[part].annotation
        )
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
