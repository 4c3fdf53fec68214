"""Which rows of a session take tokens, and the refusals that every engine shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from components.errors import DataError
from components.language.sequence_limits import longest_sequence, shorter_or_longer


class ActiveRows:
    """The active rows of a session; at first all of them.

    Args:
        rows: how many rows.
        config: the model's config, which bounds the length of a row.
    """

    def __init__(self, rows: int, config: Any) -> None:
        if rows < 1:
            raise ValueError(f"a session of {rows} rows; expected at least one")
        self.longest = longest_sequence(config)
        self._config = config
        self._active = set(range(rows))

    def drop(self, rows: Iterable[int]) -> None:
        """Refuse tokens for these rows from now on."""
        self._active -= set(rows)

    def revive(self, row: int) -> None:
        """Accept tokens for this row again."""
        self._active.add(row)

    def require_copyable(self, sources: Mapping[int, int]) -> None:
        """Raise ValueError if a row was dropped, never opened, or is both a source and a target."""
        ambiguous_rows = set(sources) & set(sources.values())
        inactive_rows = (set(sources) | set(sources.values())) - self._active
        if ambiguous_rows or inactive_rows:
            raise ValueError(
                f"rows {sorted(ambiguous_rows | inactive_rows)} cannot be copied: dropped, never opened, or "
                "both source and target"
            )

    def require_fit(
        self, tokens: Mapping[int, list[int]], room: Callable[[int], int], extra_tokens: int = 0
    ) -> None:
        """Raise if a row is not active, or has no room for its tokens and `extra_tokens` more.

        Raises:
            DataError: no room.
            ValueError: not active.
        """
        inactive_rows = [row for row in tokens if row not in self._active]
        if inactive_rows:
            raise ValueError(f"rows {inactive_rows} were dropped or never opened")
        for row, row_tokens in tokens.items():
            if len(row_tokens) + extra_tokens > room(row):
                token_count = self.longest - room(row) + len(row_tokens) + extra_tokens
                raise DataError(
                    f"Row {row} would have {token_count} tokens.",
                    f"The model takes {self.longest}.",
                    shorter_or_longer(self._config),
                )


def require_start(empty_rows: list[int]) -> None:
    """Raise ValueError if a row has neither a prompt nor a token to go on from."""
    if empty_rows:
        raise ValueError(
            f"rows {empty_rows} have an empty prompt and nothing pending; expected at least one token to go "
            "on from"
        )
