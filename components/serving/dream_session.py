"""One client's session in the dream, as OpenEnv wants an environment: `reset`, `step`, `state`, and the list
of tasks.

    client = GenericEnvClient(base_url="http://127.0.0.1:8000").sync()
    client.reset(seed=3).observation["state"], client.step({"action": "look"}).reward

Observations hold the state's text, reward and done; their metadata what the dream says beside it: its
reasoning, the demonstrations that it was shown, and `unparsable` where it had no answer, which ends the
episode.
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
from components.serving.task_choice import Catalogue, Wish


class DreamAction(Action):
    """One command of the agent, in words."""

    action: str = Field(description="What the agent does, such as `go to desk 1`.")


class DreamObservation(Observation):
    """What the agent sees, and which task it is about."""

    state: str = Field(description="The state after the step: all that the agent sees.")
    instruction: str = Field("", description="What is to be done.")
    task_id: str = Field("", description="The task's id.")


@dataclass(frozen=True)
class Limits:
    """What one session may ask for: steps an episode, and characters an action."""

    steps: int
    chars: int


class DreamSession(Environment[DreamAction, DreamObservation, State]):
    """A row of the shared dream, taken at the first `reset` and given back by `close`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, dream: SharedDream, catalogue: Catalogue, limits: Limits) -> None:
        super().__init__()
        self._dream, self._catalogue, self._limits = dream, catalogue, limits
        self._row: int | None = None
        self._task: Task | None = None
        self._state = State()
        self._over = False
        self._closed = False
        self._rng = random.Random()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **wishes: Any
    ) -> DreamObservation:
        """Begin an episode: of the task named by `task_id` or `index`, of the one that says `instruction`, or
        of one that `seed` draws.

        The same seed gives the same task and premise. Raises ConfigError for what cannot be had; the episode
        under way goes on then.
        """
        wish = Wish.read({"seed": seed, "episode_id": episode_id, **wishes})
        self._refuse_closed()
        rng = self._rng if wish.seed is None else random.Random(wish.seed)
        task = self._catalogue.choose(wish, rng)
        if self._row is None:
            self._row = self._dream.take()
        self._task, self._over = None, False
        state = self._dream.begin(self._row, task, rng.getrandbits(31))
        self._task, self._state = task, State(episode_id=wish.episode_id or str(uuid4()), step_count=0)
        return self._observed(state, None, False, {"max_steps": self._limits.steps})

    def step(self, action: DreamAction, timeout_s: float | None = None, **kwargs: Any) -> DreamObservation:
        """Dream one step. An episode that has become too long for the model ends with `failed` in its
        metadata.

        Raises:
            ConfigError: there is no episode under way, or the action is longer than `limits.chars`; nothing
                has happened then.
            ExperienceModelError: the server is shutting down. This, and any bug, ends the episode.
        """
        self._refuse_closed()
        if self._row is None or self._task is None or self._over:
            raise ConfigError(
                "The episode is over." if self._over else "There is no episode.",
                "Expected reset before step.",
            )
        if len(action.action) > self._limits.chars:
            raise ConfigError(
                f"An action of {len(action.action):,} characters.",
                f"Expected at most {self._limits.chars:,}.",
            )
        if not is_storable(action.action):
            raise ConfigError(
                "This action holds half of a surrogate pair.", "Expected text that can be written as UTF-8."
            )
        try:
            answer = self._dream.step(self._row, action.action)
        except DataError as error:
            self._over = True
            return self._observed("", 0.0, True, {"failed": str(error)})
        except Exception:
            self._over = True
            raise
        self._state.step_count += 1
        cut = not answer.done and self._state.step_count >= self._limits.steps
        self._over = answer.done or cut
        return self._observed(
            answer.state, answer.reward, self._over, _told(answer) | ({"truncated": True} if cut else {})
        )

    def _observed(
        self, state: str, reward: float | None, done: bool, metadata: dict[str, Any]
    ) -> DreamObservation:
        assert self._task is not None
        task = {"instruction": self._task.instruction, "task_id": self._task.id}
        return DreamObservation(state=state, reward=reward, done=done, metadata=metadata, **task)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigError("This session is closed.", next_step="Connect again.")

    @property
    def state(self) -> State:
        """The episode's name and how many steps it has taken."""
        return self._state

    def close(self) -> None:
        """Give the row back. May be called twice."""
        self._closed = True
        row, self._row = self._row, None
        if row is not None:
            self._dream.give_back(row)

    def get_metadata(self) -> EnvironmentMetadata:
        """What a client is told of the server."""
        return EnvironmentMetadata(
            name="dream", description="A learned, retrieval-grounded dream of an environment."
        )

    def list_splits(self) -> list[str]:
        """The one split that is served."""
        return [self._catalogue.split]

    def num_tasks(self, split: str) -> int:
        """How many tasks there are."""
        return len(self._of(split))

    def list_tasks(self, split: str) -> list[dict[str, str]]:
        """All tasks; nothing of them that an agent would not see."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, str]:
        """One task. Raises IndexError if there is none of that number."""
        return _described(self._of(split)[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, str]]:
        """Tasks `start` to `stop`."""
        return [_described(task) for task in self._of(split)[start:stop]]

    def _of(self, split: str) -> Sequence[Task]:
        return self._catalogue.tasks if split == self._catalogue.split else []


def _described(task: Task) -> dict[str, str]:
    return {
        "id": task.id,
        "instruction": task.instruction,
        "initial_state": task.initial_state,
        "family": task.family,
    }


def _told(answer: Step) -> dict[str, Any]:
    """What of a step's info a client is told."""
    shown: Sequence[Transition] = answer.info.get("demonstrations", ())
    demonstrations = [
        {"state": demo.state, "action": demo.action, "next_state": demo.next_state} for demo in shown
    ]
    told = {"reasoning": answer.info.get("reasoning", ""), "demonstrations": demonstrations}
    return told | ({"unparsable": True} if answer.info.get("unparsable") else {})
