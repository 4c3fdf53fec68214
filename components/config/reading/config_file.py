"""Read a config file and `key=value` overrides, and explain each key or value that is refused."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from components.config.reading.config_values import Plain
from components.config.reading.section import Section, variants
from components.config.reading.yaml_tree import YamlRefused, parse_yaml
from components.errors import ConfigError, DataError
from components.files import read_text


def read_values(path: Path) -> dict[str, Any]:
    """Return the mapping of a YAML or JSON file, with plain scalars as `Plain`.

    Raises:
        ConfigError: the file is missing, unreadable or not a mapping, or has a key twice.
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
    """Write `key=value` overrides such as `rl.dream.num_generations=4` into `values`, in place.

    `cloning={epochs: 2}` sets only that key of the section.

    Raises:
        ConfigError: an override has no value or is not YAML, or two of them set a key to different values.
    """
    values_by_key: dict[str, Any] = {}
    for override in overrides:
        for key, value in _leaves(*_parsed(override)):
            before = values_by_key.setdefault(key, value)
            if before != value or type(before) is not type(value):
                # The message does not repeat the values: one may be a password.
                problem = f"The command line gives {key} twice, with different values."
                raise ConfigError(problem, "Expected one value.", "Leave one of them out.")
    for key, value in values_by_key.items():
        _set(values, key, value)


def _parsed(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"The override {override!r} has no value.",
            "Expected key=value.",
            "For example: rl.dream.iterations=10",
        )
    try:
        value = parse_yaml(text)
    except YamlRefused as error:
        problem = f"The value of the override {key}=... is refused: {error}."
        raise ConfigError(
            problem, next_step=f"If it is text, put it in quotes for the shell and for YAML: {key}='\"...\"'"
        ) from None
    if "#" in text and (value is None or (isinstance(value, Plain) and value != text.strip())):
        problem = f"In the override {key}=... YAML reads the text after '#' as a comment and drops it."
        raise ConfigError(
            problem,
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
            problem = f"The override {key} sets a key below {parent}, which has a value of its own."
            raise ConfigError(problem, next_step="See docs/configuration.md for the keys.")
    values[leaf] = value


def explained(error: ValidationError, path: Path | str | None, config: type[Section]) -> ConfigError:
    """Return the error for values that `config` refuses, with the expected value and similar keys."""
    words_by_head: dict[str, list[str]] = {}
    for problem in _without_repetition(error.errors()):
        head, words = _problem(problem, config)
        words_by_head.setdefault(head, []).append(words)
    sentences = [
        f"{head}{', or '.join(dict.fromkeys(words))}".rstrip(".") for head, words in words_by_head.items()
    ]
    lines = " ".join(sentence if sentence.endswith("?") else f"{sentence}." for sentence in sentences)
    next_step = "See docs/configuration.md for all keys."
    return ConfigError(
        f"The configuration{f' {path}' if path else ''} is refused. {lines}", next_step=next_step
    )


def _without_repetition(problems: Sequence[Any]) -> list[Any]:
    """Return the problems, with one of a key for all RL stages only once, as `rl.KEY`."""
    stages: dict[str, list[Any]] = {}
    for problem in problems:
        if problem["loc"][:1] == ("rl",) and len(problem["loc"]) >= 2:
            stages.setdefault(str((problem["loc"][2:], problem["msg"])), []).append(problem)
    distinct: list[Any] = []
    for problem in problems:
        same = stages.get(str((problem["loc"][2:], problem["msg"])), [])
        if len(same) < RL_STAGES or problem["loc"][:1] != ("rl",):
            distinct.append(problem)
        elif problem is same[0]:
            distinct.append({**problem, "loc": ("rl", *problem["loc"][2:])})
    return distinct


def _problem(problem: Any, config: type[Section]) -> tuple[str, str]:
    """Return the key with its value, and what was expected."""
    place = _place(problem["loc"], config)
    last = (
        place[:-1] if place and isinstance(place[-1], int) else place
    )  # "types has 5", but "phases.1.tokens is -1"
    key, value = ".".join(str(part) for part in last), problem["input"]
    if problem["type"] == "extra_forbidden":
        tag = str(problem["loc"][-2]) if len(problem["loc"]) > 1 else ""
        return _unknown([str(part) for part in place], config, tag), ""
    words = _expected(problem, [part for part in place if isinstance(part, str)], config)
    if problem["type"] == "union_tag_invalid" and isinstance(value, dict):
        return f"{key}.type is {_shown(value.get('type'))}: ", words
    if isinstance(value, dict | Section):
        below = "" if problem["type"] == "value_error" else "; it has no keys below it"
        return f"{key}: " if key else "", words + below
    return f"{key} {'is' if isinstance(place[-1], str) else 'has'} {_shown(value)}: ", words


def _place(loc: Sequence[Any], config: type[Section]) -> list[Any]:
    """Return pydantic's location without the names of types in unions."""
    parts: list[Any] = []
    for part in loc:
        if str(part).startswith(("list[", "literal[")):
            continue
        spec = _spec_at([str(one) for one in parts], config) if parts else None
        if spec is not None and str(part) in variants(spec.annotation):
            continue
        parts.append(part)
    return parts


def _unknown(place: list[str], config: type[Section], tag: str) -> str:
    parents, name = place[:-1], place[-1]
    key = ".".join(place)
    spec = _spec_at(parents, config)
    if spec is not None and tag in variants(spec.annotation):
        options = variants(spec.annotation)[tag].input_fields()
        return f"{key} is no option of type {tag}. Its options: {', '.join(options)}"
    if "." in name and ".".join([*parents, name]) in all_keys(config):
        section, _, leaf = name.rpartition(".")
        return (
            f"Unknown key {name} in a file: dots are for the command line. Expected {leaf} below the "
            f"section {section}"
        )
    valid_keys = _keys_at(parents, config)
    elsewhere = [other for other in all_keys(config) if other.split(".")[-1] == name]
    near = difflib.get_close_matches(name, valid_keys, n=1, cutoff=0.4)
    full = elsewhere or [".".join([*parents, guess]) for guess in near]
    return f"Unknown key {key}. " + (
        f"Did you mean {' or '.join(full)}?" if full else f"Valid here: {', '.join(valid_keys)}"
    )


def _shown(value: object) -> str:
    """Return a value as it was written: in quotes only if it was in quotes."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = str(value) if isinstance(value, Plain) and value else repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... ({len(text):,} characters)"


RL_STAGES = 3
"""Stages that a key of `rl` holds for (`rl_config.py`)."""
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("a number above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("a number below", "lt"),
}


def _expected(problem: Any, place: list[str], config: type[Section]) -> str:
    """Return what pydantic expected, in the words of the other messages."""
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
    if kind == "union_tag_invalid":
        return f"expected {context['expected_tags']}"
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


def _spec_at(place: list[str], config: type[Section]) -> FieldInfo | None:
    """Return the field at a dotted place; None for the config itself."""
    section = _section_at(place[:-1], config)
    return section.input_fields().get(place[-1]) if place and section else None


def _section_at(place: Sequence[str], config: type[Section]) -> type[Section] | None:
    """Return the section at a dotted place; items of lists and types of tagged unions are places too."""
    kind: Any = config
    for part in place:
        if isinstance(kind, type) and issubclass(kind, Section):
            fields = kind.input_fields()
            kind = fields[part].annotation if part in fields else None
        elif get_origin(kind) is list:
            kind = get_args(kind)[0]
        else:
            kind = variants(kind).get(part)
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _keys_at(place: Sequence[str], config: type[Section]) -> list[str]:
    section = _section_at(place, config)
    return list(section.input_fields()) if section else []


def all_keys(section: type[Section], prefix: str = "") -> list[str]:
    """Return all dotted keys below a section; of a tagged union those of all types."""
    keys: list[str] = []
    for name, spec in section.input_fields().items():
        kinds: list[Any] = [*variants(spec.annotation).values()] or [spec.annotation]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Section):
                keys += all_keys(kind, f"{prefix}{name}.")
            else:
                keys.append(f"{prefix}{name}")
    return list(dict.fromkeys(keys))
