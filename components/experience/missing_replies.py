"""Counts the dreamed steps to which an endpoint does not reply, and ends a stage if it fails too often."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from components.errors import EndpointError
from components.language.endpoint.chat_completions import NoReplyError, UnreachableError

_LOG = logging.getLogger(__name__)
MOST_FAILED = 10
"""Steps of a stage that may stay without a reply because the endpoint fails; more end the stage."""


@dataclass
class MissingReplies:
    """Steps to which the endpoint did not reply at all, because it refused them or failed.

    Attributes:
        count: of asked steps; a step that is asked twice counts twice.
        first: the first reason, in the endpoint's words.
        failed: of them, those to which it failed to reply in all tries.
    """

    count: int = 0
    first: str = ""
    failed: int = 0

    def add(self, error: NoReplyError) -> None:
        """Count one; log the first.

        Raises:
            EndpointError: it failed to reply to more than `MOST_FAILED`, which says nothing about its model.
        """
        self.count += 1
        self.failed += isinstance(error, UnreachableError)
        if self.failed > MOST_FAILED:
            raise EndpointError(
                f"The endpoint failed to reply to {self.failed} dreamed steps. The last: {error.found}",
                f"At most {MOST_FAILED} may stay without a reply.",
                f"{error.next_step} What was answered is kept: the same command asks only for the rest.",
            )
        if not self.first:
            self.first = error.found
            _LOG.warning("A dreamed step has no reply and counts as unparsable: %s", error)

    def __str__(self) -> str:
        return f"The endpoint did not reply to {self.count} dreamed steps. The first: {self.first}"
