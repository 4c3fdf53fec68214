"""The base of all sections of the configuration (`components/config/run_config.py`): closed, immutable, no
option without effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from components.config.reading.config_values import DigitsAlone, Plain, read_value


class Section(BaseModel):
    """Base of all sections: closed, immutable, and every field described."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

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

    def _refuse_dead(self, names: Sequence[str], mode: str, cure: str) -> None:
        """Refuse options that were changed from their default although `mode` makes them idle."""
        dead = self._changed(names)
        if dead:
            raise ValueError(f"{', '.join(dead)} has no effect with {mode}; remove it or set {cure}")
