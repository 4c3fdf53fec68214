"""Which task an episode is about: one that was named, one in a room that was named, or one that the seed
draws.

What a client may ask for at `reset` is one closed form; a name that it does not know is refused, since an
option without effect would silently train on another task.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from components.errors import ConfigError
from components.records import Task, is_storable


class Wish(BaseModel):
    """What a client asks for at `reset`; nothing of it is required."""

    model_config = ConfigDict(extra="forbid")

    seed: int | None = Field(
        None, ge=0, description="Draws the task if none is named, and decides what the dream presumes."
    )
    episode_id: str | None = Field(None, max_length=255, description="The client's own name of the episode.")
    task_id: str = Field("", max_length=500, description="The id of a task.")
    index: int | None = Field(None, description="The place of a task in the split, from 0.")
    split: str = Field("", max_length=100, description="The split that is served; any other is refused.")
    instruction: str = Field(
        "",
        max_length=1000,
        description="A task by its words; with task_id or index: other words for its room.",
    )

    @classmethod
    def read(cls, values: dict[str, Any]) -> Wish:
        """The wish in what a client sent. Raises ConfigError naming each key that is unknown or has an
        impossible value.
        """
        garbled = [
            name for name, value in values.items() if isinstance(value, str) and not is_storable(value)
        ]
        if garbled:
            found = f"This reset is refused: {', '.join(garbled)} with half of a surrogate pair."
            raise ConfigError(found, "Expected text that can be written as UTF-8.")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
            )
            raise ConfigError(
                f"This reset is refused: {wrong}.", f"It takes {', '.join(cls.model_fields)}."
            ) from None


@dataclass(frozen=True)
class Catalogue:
    """The tasks of one split. `feasible` says why a task that a client made up cannot be done, "" if it
    can.
    """

    split: str
    tasks: Sequence[Task]
    feasible: Callable[[Task], str]

    def choose(self, wish: Wish, rng: random.Random) -> Task:
        """The task of an episode. Raises ConfigError if there is none such, or if a made-up one cannot be
        done.
        """
        if wish.split not in ("", self.split):
            raise ConfigError(
                f"The split {wish.split!r} is not served here.", f"Expected {self.split!r}, or none."
            )
        named = self._named(wish)
        if named is None:
            return self._worded(wish.instruction) if wish.instruction else rng.choice(self.tasks)
        return (
            self._varied(named, wish.instruction)
            if wish.instruction not in ("", named.instruction)
            else named
        )

    def _named(self, wish: Wish) -> Task | None:
        if wish.index is not None:
            if not 0 <= wish.index < len(self.tasks):
                raise ConfigError(
                    f"There is no task number {wish.index}.", f"Expected 0 to {len(self.tasks) - 1}."
                )
            found = self.tasks[wish.index]
            if wish.task_id not in ("", found.id):
                raise ConfigError(
                    f"Task number {wish.index} is {found.id}, not {wish.task_id}.", "Name one of the two."
                )
            return found
        if not wish.task_id:
            return None
        for task in self.tasks:
            if task.id == wish.task_id:
                return task
        near = difflib.get_close_matches(wish.task_id, [task.id for task in self.tasks], n=3, cutoff=0.3)
        raise ConfigError(
            f"There is no task {wish.task_id!r} in {self.split}.",
            f"Near it: {', '.join(near)}." if near else "",
        )

    def _worded(self, instruction: str) -> Task:
        for task in self.tasks:
            if task.instruction == instruction:
                return task
        near = difflib.get_close_matches(
            instruction, sorted({task.instruction for task in self.tasks}), n=3, cutoff=0.3
        )
        raise ConfigError(
            f"No task of {self.split} says {instruction!r}.",
            f"Near it: {'; '.join(near)}." if near else "",
            "Add task_id to have these words in the room of that task.",
        )

    def _varied(self, room: Task, instruction: str) -> Task:
        task = replace(
            room, id=f"{room.id}/asked", instruction=instruction, parent=room.parent or room.id, family=""
        )
        if reason := self.feasible(task):
            raise ConfigError(f"{instruction!r} cannot be done in the room of {room.id}: {reason}.")
        return task
