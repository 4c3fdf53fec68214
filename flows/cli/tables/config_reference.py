"""docs/configuration.md, made from the config's own descriptions so that the two cannot differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from components.config import Config, Section
from components.config.reading.section import variants
from components.config.rl_config import STAGES, RLConfig

_HEAD = """# Configuration

Made by `dreamgym config --docs > docs/configuration.md` (a test keeps it up to date); the source is
`components/config/`.

A config file is a sparse YAML over these defaults: write only what differs. On the command line `key=value`
is applied to it, such as `dreamgym retrain rl.dream.iterations=10`. An unknown key is refused with the
nearest valid one, and so is an option that would have no effect. `dreamgym config` prints the resolved
config; every run saves its own as `runs/<id>/config.json`, which `--config` reads back.

The key's type decides how a value is read:

- An integer is decimal, without leading zeros. Groups of three digits may be separated (`8_000_000`), and a
  whole `2.0e6` is one too.
- A number may have a fraction and an exponent (`1e-3`). YAML's other spellings are refused: `010`, `0x1F`,
  `1:30`.
- A seed has decimal digits alone: no quotes, separator, sign or fraction.
- A truth value is true, false, yes, no, on or off.
- A text is the text as written: `off`, `010`, `2026-11-26`. Text in quotes is always text.
- A key occurs once in its section. On the command line a key is given once, or each time with the same value.

## The twenty that people set first

"""
FIRST_KEYS = (
    "seed",
    "threads",
    "device",
    "environment.name",
    "environment.max_steps",
    "environment.receptacles",
    "data.train_tasks",
    "backbone.path",
    "experience_model.epochs",
    "experience_model.teacher",
    "retrieval.k",
    "fidelity.min_rollout_agreement",
    "cloning.demonstrations",
    "rl.algorithm",
    "rl.num_generations",
    "rl.learning_rate",
    "rl.dream.iterations",
    "rl.real.budget",
    "evaluation.tasks",
    "promotion.threshold",
)
_ADVANCED = "\n# Advanced: all keys\n"
_COLUMNS = ("| key | default | values | meaning |", "|---|---|---|---|")


def describe_keys() -> str:
    """The page: the keys that people set first, then a table for each section, in the order of the config."""
    rows = {key: row for _, _, section_rows in _sections(Config, "") for key, row in section_rows.items()}
    first = "\n".join([*_COLUMNS, *(rows[key] for key in FIRST_KEYS), ""])
    parts = [_HEAD + first + _ADVANCED]
    for title, words, section_rows in _sections(Config, ""):
        if section_rows:
            heading = [f"## {title or 'Top level'}", "", words, "", *_COLUMNS]
            parts.append("\n".join([*heading, *section_rows.values(), ""]))
    return "\n".join(parts)


def _sections(section: type[Section], title: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """(title, description, key -> table row) of a section and of all below it."""
    if title == "rl":
        yield from _rl_sections()
        return
    yield title, _description(section), _rows(title, section.model_fields)
    for name, spec in section.model_fields.items():
        key = f"{title}.{name}".removeprefix(".")
        if (inner := _inner(spec)) is not None:
            yield from _sections(inner, key)
        elif (entry := _entry(spec)) is not None:
            yield f"An entry of {key}", _description(entry), _rows("", entry.model_fields)


def _rl_sections() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """The section `rl`: keys for all stages, what each stage has of its own, and the types of algorithms."""
    about = (
        "Keys for all three stages: `rl.dream` (RL in the dream), `rl.real` (afterwards, in the real "
        "environment) and `rl.baseline` (studies: the real environment alone). Each stage may override any "
        "of them, such as `rl.dream.tasks`. Defaults that differ by stage stand below."
    )
    yield "rl", about, _rows("rl", RLConfig.model_fields)
    for stage, config in STAGES.items():
        own = {
            name: spec
            for name, spec in config.model_fields.items()
            if name not in RLConfig.model_fields or _default(spec) != _default(RLConfig.model_fields[name])
        }
        yield f"rl.{stage}", _description(config), _rows(f"rl.{stage}", own)
    for tag, algorithm in variants(RLConfig.model_fields["algorithm"].annotation).items():
        options = {name: spec for name, spec in algorithm.model_fields.items() if name != "type"}
        title = f"rl.algorithm of type {tag}"
        yield title, _description(algorithm), _rows("rl.algorithm", options)


def _description(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").strip().split("\n\n")[0].split())


def _rows(title: str, fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    rows = {}
    for name, spec in fields.items():
        if _inner(spec) is None:
            key = f"{title}.{name}".removeprefix(".")
            meaning = (spec.description or "").replace("|", "/")
            rows[key] = f"| `{key}` | `{_default(spec)}` | {_values(spec)} | {meaning} |"
    return rows


def _inner(spec: FieldInfo) -> type[Section] | None:
    kind = spec.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _entry(spec: FieldInfo) -> type[Section] | None:
    """The section that the entries of a list are."""
    kind: Any = spec.annotation
    entry = get_args(kind)[0] if get_origin(kind) is list else None
    return entry if isinstance(entry, type) and issubclass(entry, Section) else None


def _default(spec: FieldInfo) -> str:
    value = spec.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return str(value.model_dump()["type"])
    if isinstance(value, list) and value and isinstance(value[0], Section):
        return json.dumps([{}] * len(value))
    return json.dumps(value)


_SCALARS = {int: "integer", float: "number", bool: "true, false", str: "text"}


def _type_in_words(kind: Any) -> str:
    """Return a type, such as `int | None` or `list[str]`, in words."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = []
    for one in kinds:
        if get_origin(one) is list:
            item = get_args(one)[0]
            words.append(f"list of {'integers' if item is int else 'text'}")
        elif get_origin(one) is Literal:
            words += [f"`{value}`" for value in get_args(one)]
        elif one is not NoneType:
            words.append(_SCALARS[one])
    return " or ".join(words)


def _values(spec: FieldInfo) -> str:
    kind: Any = spec.annotation
    if tags := variants(kind):
        return f"a type ({', '.join(tags)}), or a mapping with `type` and its options"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if _entry(spec) is not None:
        return "list of mappings, see below"
    words = _type_in_words(kind)
    phrases: dict[type, str] = {Ge: "at least {}", Gt: "above {}", Le: "at most {}", Lt: "below {}"}
    marks = [mark for mark in spec.metadata if type(mark) in phrases]
    limits = [phrases[type(mark)].format(getattr(mark, type(mark).__name__.lower())) for mark in marks]
    empty = "or empty" if NoneType in get_args(kind) else ""
    return " ".join(part for part in (words, " and ".join(limits), empty) if part)
