"""The base class of all config sections: closed, immutable, and strict about options without effect."""

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
        """Return the keys that a file may set in this section."""
        return dict(cls.model_fields)

    @field_validator("*", mode="before")
    @classmethod
    def _read_as_written(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a scalar by the field's type; a section with nothing below it sets nothing."""
        spec = cls.model_fields[str(info.field_name)]
        if isinstance(spec.annotation, type) and issubclass(spec.annotation, Section):
            return {} if isinstance(value, Plain) and value in ("", "null", "~") else value
        return read_value(
            value, spec.annotation, any(isinstance(mark, DigitsAlone) for mark in spec.metadata)
        )

    def _changed(self, names: Sequence[str] = ()) -> list[str]:
        """Return those of `names` (default: all fields) whose value differs from the default."""
        fields = type(self).model_fields
        return [
            name
            for name in names or fields
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]

    def _refuse_without_effect(self, names: Sequence[str], mode: str, next_step: str) -> None:
        """Refuse options that were changed from their default although they have no effect with `mode`."""
        without_effect = self._changed(names)
        if without_effect:
            raise ValueError(
                f"{', '.join(without_effect)} has no effect with {mode}; remove it or set {next_step}"
            )


def variants(kind: Any) -> dict[str, type[Section]]:
    """Return tag -> section of a tagged union such as `rl.algorithm`; empty for other types."""
    sections: dict[str, type[Section]] = {}
    for member in get_args(kind) if get_origin(kind) in (Union, UnionType) else ():
        section, *marks = get_args(member) if get_origin(member) is Annotated else (member,)
        if isinstance(section, type) and issubclass(section, Section):
            sections |= {str(mark.tag): section for mark in marks if isinstance(mark, Tag)}
    return sections
