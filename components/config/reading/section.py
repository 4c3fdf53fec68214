"""The base of all config sections: closed, immutable, and without options that have no effect."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Tag, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from components.config.reading.config_values import DigitsAlone, Plain, read_value


class Section(BaseModel):
    """Base of all sections: closed, immutable, and every field described."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def input_fields(cls) -> dict[str, FieldInfo]:
        """The keys that a file may set in this section."""
        return dict(cls.model_fields)

    @field_validator("*", mode="before")
    @classmethod
    def _read_as_written(cls, value: Any, info: ValidationInfo) -> Any:
        """A scalar is what the field's type makes of its spelling; a section with nothing below it sets
        nothing.
        """
        spec = cls.model_fields[str(info.field_name)]
        if isinstance(spec.annotation, type) and issubclass(spec.annotation, Section):
            return {} if isinstance(value, Plain) and value in ("", "null", "~") else value
        return read_value(
            value, spec.annotation, any(isinstance(mark, DigitsAlone) for mark in spec.metadata)
        )

    def _changed(self, names: Sequence[str] = ()) -> list[str]:
        """Those of `names` (of all fields, if none are given) that differ from their default."""
        fields = type(self).model_fields
        return [
            name
            for name in names or fields
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]

    def _refuse_without_effect(self, names: Sequence[str], mode: str, cure: str) -> None:
        """Refuse options that were changed from their default although `mode` makes them idle."""
        dead = self._changed(names)
        if dead:
            raise ValueError(f"{', '.join(dead)} has no effect with {mode}; remove it or set {cure}")


def variants(kind: Any) -> dict[str, type[Section]]:
    """Tag -> section of a tagged union such as `rl.algorithm`; empty for other types."""
    found: dict[str, type[Section]] = {}
    for member in get_args(kind) if get_origin(kind) in (Union, UnionType) else ():
        section, *marks = get_args(member) if get_origin(member) is Annotated else (member,)
        if isinstance(section, type) and issubclass(section, Section):
            found |= {str(mark.tag): section for mark in marks if isinstance(mark, Tag)}
    return found
