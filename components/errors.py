"""The expected failures, one type for each boundary that can fail.

Every message says what was found, what was expected, and what to do next. A failed rollout is data: it is
recorded, counted and capped. A failed stage is one of these exceptions, and a non-zero exit code of the
`dreamgym` command. Bugs are not wrapped: they propagate with their traceback.

Three normal outcomes have exit codes of their own: a refused promotion (`PROMOTION_REFUSED`), a reproduced
run with other numbers (`NOT_REPRODUCED`), and data of which rows were set aside (`ROWS_SET_ASIDE`).
"""

from __future__ import annotations

PROMOTION_REFUSED = 4
NOT_REPRODUCED = 5
ROWS_SET_ASIDE = 6


class DreamGymError(Exception):
    """Base of all expected failures.

    Args:
        found: what was found, with the offending value.
        expected: what was expected instead; may be empty if `found` says it.
        next_step: what the user should type or change.
    """

    exit_code = 1

    def __init__(self, found: str, expected: str = "", next_step: str = "") -> None:
        self.found = found
        self.expected = expected
        self.next_step = next_step
        super().__init__(" ".join(part for part in (found, expected, next_step) if part))

    def __reduce__(self) -> tuple[type[DreamGymError], tuple[str, str, str]]:
        """Keep all three parts when the error is pickled between processes."""
        return type(self), (self.found, self.expected, self.next_step)


class ConfigError(DreamGymError):
    """A config names an unknown key, an impossible value, or an option without effect."""

    exit_code = 2


class DataError(DreamGymError):
    """Trajectories, snapshots or artifacts are missing, damaged, empty or invalid."""


class EnvironmentFailure(DreamGymError):
    """A real environment cannot be built, loaded or stepped, or its budget of interactions is spent."""


class ExperienceModelError(DreamGymError):
    """The experience model or its replay buffer cannot be used."""


class FidelityGateClosed(ExperienceModelError):
    """The experience model agrees too little with the real environment to start RL on it."""

    exit_code = 3


class TrainingError(DreamGymError):
    """Training cannot continue: NaN, nothing to learn from, or a state that does not fit the model."""


class EndpointError(DreamGymError):
    """A language-model endpoint has no key, refuses requests, or leaves too many questions unanswered."""


class ClusterError(DreamGymError):
    """A Ray cluster cannot be used, or one of its workers computes with something else than this process."""


class TrackingError(DreamGymError):
    """MLflow, Prefect or the stage store cannot be used."""


class StageTimeout(DreamGymError):
    """A stage, or a DVC command, took longer than allowed."""


class ServiceUnreachable(TrackingError):
    """A server that a run writes to does not answer; the only failure that a scheduled run retries itself."""
