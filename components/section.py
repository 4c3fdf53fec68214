"""The base of all sections of the configuration (`components/config.py`): closed, immutable, no option without effect."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: closed, immutable, and every field described."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def _changed(self, names: Sequence[str] = ()) -> list[str]:
        """Those of `names` (of all fields, if none are given) that differ from their default."""
        fields = type(self).model_fields
        return [name for name in names or fields if getattr(self, name) != fields[name].get_default(call_default_factory=True)]

    def _refuse_dead(self, names: Sequence[str], mode: str, cure: str) -> None:
        """Refuse options that were changed from their default although `mode` makes them idle."""
        dead = self._changed(names)
        if dead:
            raise ValueError(f"{', '.join(dead)} has no effect with {mode}; remove it or set {cure}")
