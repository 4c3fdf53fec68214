"""The error design: every message says what was found, what was expected, and what to do next.

One type for each boundary that can fail. A failed rollout is data (recorded, counted, capped); a failed stage
is one of these exceptions and a non-zero exit code of the `dreamgym` command. Real bugs are not wrapped: they
propagate with their traceback. A refused promotion is a normal outcome, not an error, and has the exit code
`PROMOTION_REFUSED`; so is a run whose numbers did not come back (`NOT_REPRODUCED`), and data of which rows
were set aside (`ROWS_SET_ASIDE`).
"""

from __future__ import annotations

PROMOTION_REFUSED, NOT_REPRODUCED, ROWS_SET_ASIDE = 4, 5, 6


class DreamGymError(Exception):
    """Base of all expected failures.

    Args:
        found: what was found, with the offending value.
        expected: what was expected instead (may be empty when `found` says it).
        next_step: what the user should type or change.
    """

    exit_code = 1

    def __init__(self, found: str, expected: str = "", next_step: str = "") -> None:
        self.found, self.expected, self.next_step = found, expected, next_step
        super().__init__(" ".join(part for part in (found, expected, next_step) if part))

    def __reduce__(self) -> tuple[type[DreamGymError], tuple[str, str, str]]:
        """Survive pickling between processes with all three parts."""
        return type(self), (self.found, self.expected, self.next_step)


class ConfigError(DreamGymError):
    """A config names an unknown key, an impossible value, or an option without effect."""

    exit_code = 2


class DataError(DreamGymError):
    """Trajectories, snapshots or artifacts are missing, damaged, empty or invalid."""


class EnvironmentFailure(DreamGymError):
    """A real environment cannot be built, loaded, stepped, or its budget of interactions is spent."""


class ExperienceModelError(DreamGymError):
    """The experience model or its replay buffer cannot be used."""


class FidelityGateClosed(ExperienceModelError):
    """The dream does not agree with the real environment well enough for RL to be started on it."""

    exit_code = 3


class TrainingError(DreamGymError):
    """A training loop cannot go on: NaN, nothing to learn from, a state that does not fit the model."""


class EndpointError(DreamGymError):
    """A language-model endpoint has no key, refuses what it is asked, or leaves too many questions without a
    usable answer.
    """


class TrackingError(DreamGymError):
    """MLflow, Prefect or the stage store cannot be used."""


class StageTimeout(DreamGymError):
    """A stage, or a DVC command, took longer than it may."""


class ServiceUnreachable(TrackingError):
    """A server that a run writes to does not answer now: the one failure that a scheduled run tries again by
    itself.
    """
