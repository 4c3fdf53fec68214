"""Read config values: the type of the field decides what a YAML scalar without quotes is.

YAML 1.1 reads `010` as 8, `1:30` as 90, `0x1F` as 31 and `no` as false in any field. The rules here are:

1. An integer is decimal, without leading zeros; groups of three digits may be separated by `_`; `2.0e6` is
   whole and counts too.
2. A number is decimal, with a fraction and an exponent if need be (`1e-3`).
3. A truth value is true, false, yes, no, on or off.
4. A text is the text as written: `off`, `010` and `2026-11-26` are words where a word is expected.
5. A value in quotes is text, never a number. `null` is only for fields that may be empty.
6. A seed is written in decimal digits alone, so that equal seeds look equal.

Every other spelling is refused with the value, in a file and on the command line alike.
"""

from __future__ import annotations

import re
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import Field

LARGEST_INTEGER = 2**63 - 1
"""The largest that Prefect's JSON and Arrow's int64 hold."""
_WHOLE = r"(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:_[0-9]{3})+)"
_INTEGER = re.compile(rf"[+-]?{_WHOLE}")
_NUMBER = re.compile(
    rf"[+-]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{{1,4}})?|[+-]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]*)")
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NULLS = ("~", "null", "Null", "NULL")


class Plain(str):
    """The text of a YAML scalar without quotes, before the field's type says what it is."""


class DigitsAlone:
    """Marks an integer field that is written in decimal digits and nothing else."""


Seed = Annotated[int, DigitsAlone(), Field(ge=0, le=LARGEST_INTEGER)]
"""A seed of random numbers."""


def read_value(value: object, kind: Any, digits_alone: bool = False) -> object:
    """Return `value` as the type `kind` of its field reads it.

    A value that another check reports better is returned unchanged.

    Args:
        digits_alone: an integer must be written in decimal digits, without sign, separator or fraction.

    Raises:
        ValueError: the spelling is none of those listed above.
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None or (isinstance(value, Plain) and NoneType in kinds and value in ("", *_NULLS)):
        return None
    if isinstance(value, list):
        item = next((get_args(one)[0] for one in kinds if get_origin(one) is list), None)
        return value if item is None else [read_value(entry, item) for entry in value]
    if int in kinds:
        return _integer(value, digits_alone)
    if float in kinds:
        return _number(value)
    if bool in kinds:
        words = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
        return str(value) if value in words else _truth(value)
    return _text(value)


def _integer(value: object, digits_alone: bool) -> object:
    what = (
        "an integer in decimal digits, without quotes, leading zeros, '_' or fraction"
        if digits_alone
        else "an integer"
    )
    if isinstance(value, bool) or (digits_alone and isinstance(value, float)):
        raise ValueError(f"expected {what}")
    if not isinstance(value, str):
        return value if digits_alone else _in_range(value)
    if not isinstance(value, Plain):
        raise ValueError(f"expected {what}; this is text in quotes")
    if digits_alone and _DIGITS.fullmatch(value):
        return int(value[:60])  # the field has limits of its own
    if not digits_alone and _INTEGER.fullmatch(value):
        return _in_range(int(value.replace("_", "")) if len(value) < 60 else LARGEST_INTEGER + 1)
    if digits_alone or not _NUMBER.fullmatch(value) or value.lower().lstrip("+-") in (".inf", ".nan"):
        raise ValueError(f"expected {what}{_as_yaml_reads(value)}")
    whole = Decimal(value.replace("_", ""))
    if abs(whole) <= LARGEST_INTEGER and whole != whole.to_integral_value():
        raise ValueError(f"expected {what}")
    return _in_range(int(whole) if abs(whole) <= LARGEST_INTEGER else LARGEST_INTEGER + 1)


def _in_range(value: object) -> object:
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"expected an integer from -{LARGEST_INTEGER} to {LARGEST_INTEGER}")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    if not isinstance(value, str):
        return value
    if not isinstance(value, Plain):
        raise ValueError("expected a number; this is text in quotes")
    if not _NUMBER.fullmatch(value):
        raise ValueError(f"expected a number{_as_yaml_reads(value)}")
    return float(re.sub(r"\.(?=[iInN])", "", value.replace("_", "")))


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    quoted = "; this is text in quotes" if isinstance(value, str) and not isinstance(value, Plain) else ""
    raise ValueError(f"expected true or false{quoted}")


def _text(value: object) -> object:
    if isinstance(value, Plain) and value in _NULLS:
        raise ValueError("expected text; leave the key out for its default, or put the word in quotes")
    return str(value) if isinstance(value, Plain) else value


def _as_yaml_reads(text: str) -> str:
    """Return how YAML 1.1 reads a spelling that is refused here; empty if it reads no other number."""
    try:
        value = yaml.safe_load(text) if len(text) < 60 else text
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and str(value) != text
    return f" (YAML 1.1 reads this as {value})" if is_number else ""
