"""docs/configuration.md, made from the config's own descriptions so that the two cannot differ.

dreamgym config --docs > docs/configuration.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from components.config import Config, Section

_HEAD = """# Configuration

Made by `dreamgym config --docs > docs/configuration.md` (a test keeps it up to date); the
source is `components/config/run_config.py`.

A config file is a sparse YAML over these defaults: write only what differs. On the command line
`key=value` comes on top, such as `dreamgym retrain synthetic_rl.iterations=10`. An unknown key is refused
with the nearest valid one, and so is an option that would have no effect in the chosen mode.
`dreamgym config` prints the resolved config; every run saves its own as `runs/<id>/config.json`,
which `--config` takes back.

A value means what a reader sees, and the key's type decides what that is:

- An integer is decimal, without leading zeros. Groups of three digits may be separated (`8_000_000`), and a
  whole `2.0e6` is one too.
- A number may have a fraction and an exponent (`1e-3`). YAML's other spellings are refused:
  `010`, `0x1F`, `1:30`.
- A seed has decimal digits alone: no quotes, separator, sign or fraction.
- A truth value is true, false, yes, no, on or off.
- A text is the text as written: `off`, `010`, `2026-11-26`. What stands in quotes is always text.
- A key stands once in its section. On the command line a key is given once, or each time with the same value.
"""


def describe_keys() -> str:
    """The page: a table for each section, in the order of the config."""
    parts = [_HEAD]
    for title, section in _sections(Config, ""):
        rows = [
            _row(title, name, spec) for name, spec in section.model_fields.items() if _inner(spec) is None
        ]
        if rows:
            words = (section.__doc__ or "").strip().splitlines()[0]
            head = [
                f"## {title or 'Top level'}",
                "",
                words,
                "",
                "| key | default | values | meaning |",
                "|---|---|---|---|",
            ]
            parts.append("\n".join([*head, *rows, ""]))
    return "\n".join(parts)


def _sections(section: type[Section], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    yield prefix, section
    for name, spec in section.model_fields.items():
        if (inner := _inner(spec)) is not None:
            yield from _sections(inner, f"{prefix}.{name}".removeprefix("."))


def _inner(spec: FieldInfo) -> type[Section] | None:
    kind = spec.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _row(title: str, name: str, spec: FieldInfo) -> str:
    key = f"{title}.{name}".removeprefix(".")
    default = json.dumps(spec.get_default(call_default_factory=True))
    return f"| `{key}` | `{default}` | {_values(spec)} | {(spec.description or '').replace('|', '/')} |"


def _values(spec: FieldInfo) -> str:
    kind: Any = spec.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    entry = get_args(kind)[0] if get_origin(kind) is list else None
    if isinstance(entry, type) and issubclass(entry, Section):
        return f"list of mappings with any of {', '.join(entry.model_fields)}"
    words = {int: "integer", float: "number", bool: "true, false", str: "text"}.get(kind, "list of text")
    phrases: dict[type, str] = {Ge: "at least {}", Gt: "above {}", Le: "at most {}", Lt: "below {}"}
    marks = [mark for mark in spec.metadata if type(mark) in phrases]
    limits = [phrases[type(mark)].format(getattr(mark, type(mark).__name__.lower())) for mark in marks]
    return " ".join([words, " and ".join(limits)]).strip()
