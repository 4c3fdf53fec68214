"""One client's session in the dream, as an environment of OpenEnv: `reset`, `step`, `state`, and the tasks.

    client = GenericEnvClient(base_url="http://127.0.0.1:8000").sync()
    client.reset(seed=3).observation["state"], client.step({"action": "look"}).reward

An observation holds the text of the state, reward and done. Its metadata holds the dream's reasoning and
demonstrations, and `unparsable` where the dream had no answer, which ends the episode.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field

from components.environments.protocol import Step
from components.errors import ConfigError, DataError
from components.records import Task, Transition, is_storable
from components.serving.shared_dream import SharedDream
from components.serving.task_choice import Catalogue, ResetRequest


class DreamAction(Action):
    """One command of the agent, as text."""

    action: str = Field(description="What the agent does, such as `go to desk 1`.")


class DreamObservation(Observation):
    """What the agent sees, and its task."""

    state: str = Field(description="The state after the step: all that the agent sees.")
    instruction: str = Field("", description="The instruction of the task.")
    task_id: str = Field("", description="The task's id.")


@dataclass(frozen=True)
class Limits:
    """The limits of a session: steps of an episode, and characters of an action."""

    steps: int
    chars: int


class DreamSession(Environment[DreamAction, DreamObservation, State]):
    """A row of the shared dream, acquired at the first `reset` and released by `close`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, dream: SharedDream, catalogue: Catalogue, limits: Limits) -> None:
        super().__init__()
        self._dream = dream
        self._catalogue = catalogue
        self._limits = limits
        self._row: int | None = None
        self._task: Task | None = None
        self._state = State()
        self._is_over = False
        self._is_closed = False
        self._rng = random.Random()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> DreamObservation:
        """Begin an episode of the task that `ResetRequest` names, or of one that `seed` draws.

        The same seed gives the same task and premise. With `history` the episode goes on after its steps.

        Raises:
            ConfigError: the request is not valid, or its history too long; the current episode goes on.
        """
        request = ResetRequest.read({"seed": seed, "episode_id": episode_id, **options})
        self._require_open()
        if len(request.history) >= self._limits.steps:
            raise ConfigError(
                f"A history of {len(request.history)} steps.",
                f"Expected fewer than {self._limits.steps}, the length of an episode.",
            )
        for action, _ in request.history:
            self._require_valid(action)
        rng = self._rng if request.seed is None else random.Random(request.seed)
        task = self._catalogue.choose(request, rng)
        if self._row is None:
            self._row = self._dream.acquire_row()
        self._task = None
        self._is_over = False
        state = self._dream.begin(self._row, task, rng.getrandbits(31), request.history)
        self._task = task
        steps = len(request.history)
        self._state = State(episode_id=request.episode_id or str(uuid4()), step_count=steps)
        return self._observation(task, state, None, False, {"max_steps": self._limits.steps})

    def step(self, action: DreamAction, timeout_s: float | None = None, **kwargs: Any) -> DreamObservation:
        """Dream one step. An episode that has become too long for the model ends with `failed` in its
        metadata.

        Raises:
            ConfigError: there is no episode in progress, or the action is not valid; nothing happened.
            ExperienceModelError: the server is shutting down. This, and any bug, ends the episode.
        """
        self._require_open()
        if self._row is None or self._task is None or self._is_over:
            problem = "The episode is over." if self._is_over else "There is no episode."
            raise ConfigError(problem, "Expected reset before step.")
        self._require_valid(action.action)
        try:
            step = self._dream.step(self._row, action.action)
        except DataError as error:
            self._is_over = True
            return self._observation(self._task, "", 0.0, True, {"failed": str(error)})
        except Exception:
            self._is_over = True
            raise
        self._state.step_count += 1
        is_truncated = not step.done and self._state.step_count >= self._limits.steps
        self._is_over = step.done or is_truncated
        metadata = _step_metadata(step) | ({"truncated": True} if is_truncated else {})
        return self._observation(self._task, step.state, step.reward, self._is_over, metadata)

    def _require_valid(self, action: str) -> None:
        """Raise ConfigError if the action is too long or no valid text."""
        if len(action) > self._limits.chars:
            raise ConfigError(
                f"An action of {len(action):,} characters.", f"Expected at most {self._limits.chars:,}."
            )
        if not is_storable(action):
            raise ConfigError(
                "This action holds half of a surrogate pair.", "Expected text that can be written as UTF-8."
            )

    def _observation(
        self, task: Task, state: str, reward: float | None, done: bool, metadata: dict[str, Any]
    ) -> DreamObservation:
        return DreamObservation(
            state=state,
            reward=reward,
            done=done,
            metadata=metadata,
            instruction=task.instruction,
            task_id=task.id,
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise ConfigError("This session is closed.", next_step="Connect again.")

    @property
    def state(self) -> State:
        """The episode's id and its number of steps."""
        return self._state

    def close(self) -> None:
        """Release the row. A second call does nothing."""
        self._is_closed = True
        row = self._row
        self._row = None
        if row is not None:
            self._dream.release_row(row)

    def get_metadata(self) -> EnvironmentMetadata:
        """The server's name and description."""
        return EnvironmentMetadata(
            name="dream",
            description="A learned, retrieval-grounded dream of an environment.",
            version=self._dream.version,
        )

    def list_splits(self) -> list[str]:
        """The served split, the only one."""
        return [self._catalogue.split]

    def num_tasks(self, split: str) -> int:
        """Number of tasks in `split`."""
        return len(self._tasks_of(split))

    def list_tasks(self, split: str) -> list[dict[str, str]]:
        """All tasks of `split`, with only what an agent may see."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, str]:
        """The task of number `index`. Raises IndexError if there is none."""
        return _task_fields(self._tasks_of(split)[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, str]]:
        """The tasks of numbers `start` to below `stop`."""
        return [_task_fields(task) for task in self._tasks_of(split)[start:stop]]

    def _tasks_of(self, split: str) -> Sequence[Task]:
        return self._catalogue.tasks if split == self._catalogue.split else []


def _task_fields(task: Task) -> dict[str, str]:
    """The fields of a task that a client may see."""
    return {
        "id": task.id,
        "instruction": task.instruction,
        "initial_state": task.initial_state,
        "family": task.family,
    }


def _step_metadata(step: Step) -> dict[str, Any]:
    """The part of a step's info that a client gets."""
    transitions: Sequence[Transition] = step.info.get("demonstrations", ())
    demonstrations = [
        {"state": demo.state, "action": demo.action, "next_state": demo.next_state} for demo in transitions
    ]
    metadata = {"reasoning": step.info.get("reasoning", ""), "demonstrations": demonstrations}
    return metadata | ({"unparsable": True} if step.info.get("unparsable") else {})
