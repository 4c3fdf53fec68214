"""The interface of what a dream asks: a trained model, or a prompted one behind an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from components.config import ExperienceModelConfig
from components.experience.decoding.answer_checks import DecodingCounts, GroundingCheck, RowCheck
from components.experience.decoding.prediction_batch import Query
from components.experience.formats.world_format import Answer
from components.language.engines.engine_protocol import Generation
from components.records import Task


class EpisodeBatch(Protocol):
    """Episodes in progress, one a row. `PredictionBatch` says what each method does."""

    greedy: dict[int, Generation]
    unchecked: dict[int, Answer | None]

    def begin_episode(self, row: int, task: Task, premise: str = "") -> None:
        """Begin an episode in a row."""

    def predict(
        self,
        queries: Mapping[int, Query],
        is_coherent: RowCheck | None = None,
        is_undetermined: RowCheck | None = None,
    ) -> dict[int, Answer | None]:
        """The answer of each queried row; None where no try passed the checks."""

    def advance(self, steps: Mapping[int, tuple[str, str]]) -> None:
        """Add (action, next state) to the history of each named row."""

    def finish(self, rows: Sequence[int]) -> None:
        """Forget rows whose episodes are over."""


class DreamingModel(Protocol):
    """A model that predicts next states and rewards. `ExperienceModel` says what each part does."""

    config: ExperienceModelConfig
    counts: DecodingCounts
    grounded: GroundingCheck | None

    @property
    def is_concurrent(self) -> bool:
        """Whether threads may predict at the same time."""

    @property
    def tokens(self) -> int:
        """Tokens that this machine generated so far."""

    @property
    def incoherent_answers(self) -> int:
        """Answers so far that contradict their episode."""

    @property
    def ungrounded_answers(self) -> int:
        """Answers so far that quote wrongly."""

    @property
    def unanswered_steps(self) -> int:
        """Steps so far without any accepted answer."""

    @property
    def endpoint_costs(self) -> dict[str, int]:
        """What an endpoint was asked so far; empty without one."""

    def sharing_weights(self) -> Self:
        """The same model with counts of its own."""

    def sharing_engine(self, count: int) -> Sequence[Self]:
        """`count` times the same model for threads of their own."""

    def begin(self, tasks: Sequence[Task], premises: Sequence[str] = (), *, seed: int = 0) -> EpisodeBatch:
        """Begin one episode a task."""

    def empty_batch(self, rows: int, *, seed: int = 0) -> EpisodeBatch:
        """A batch without episodes."""

    def sample_hidden_state(
        self, tasks: Sequence[Task], objection: Callable[[Task, str], str], *, seed: int
    ) -> list[str]:
        """For each task, a premise without objection."""

    def vary(self, tasks: Sequence[Task], *, seed: int, temperature: float = 1.0) -> list[str]:
        """For each task, the instruction of another task of its room."""
