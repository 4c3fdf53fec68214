"""Choice of an episode's task: one that the client names, one in a named room, or one that the seed draws.

What a client may request at `reset` is one closed form. An unknown name is refused: an option without effect
would train on another task unnoticed.
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


class ResetRequest(BaseModel):
    """What a client requests at `reset`; every field is optional."""

    model_config = ConfigDict(extra="forbid")

    seed: int | None = Field(
        None, ge=0, description="Draws the task if none is named, and the hidden state of the episode."
    )
    episode_id: str | None = Field(None, max_length=255, description="The client's own id of the episode.")
    task_id: str = Field("", max_length=500, description="The id of a task.")
    index: int | None = Field(None, description="The number of a task in the split, from 0.")
    split: str = Field("", max_length=100, description="The served split; any other is refused.")
    history: list[tuple[str, str]] = Field(
        default_factory=list,
        max_length=10_000,
        description="Actions and next states of an episode in progress: this one goes on after them.",
    )
    instruction: str = Field(
        "",
        max_length=1000,
        description="The instruction of a task; with task_id or index: another instruction in its room.",
    )

    @classmethod
    def read(cls, values: dict[str, Any]) -> ResetRequest:
        """The request in the values that a client sent.

        Raises:
            ConfigError: names each key that is unknown or has an invalid value.
        """
        texts = {name: [value] for name, value in values.items() if isinstance(value, str)}
        if isinstance(values.get("history"), list):
            steps = [step for step in values["history"] if isinstance(step, list | tuple)]
            texts["history"] = [text for step in steps for text in step if isinstance(text, str)]
        unstorable = [name for name, found in texts.items() if not all(map(is_storable, found))]
        if unstorable:
            raise ConfigError(
                f"This reset is refused: {', '.join(unstorable)} with half of a surrogate pair.",
                "Expected text that can be written as UTF-8.",
            )
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
            )
            raise ConfigError(
                f"This reset is refused: {problems}.", f"It takes {', '.join(cls.model_fields)}."
            ) from None


@dataclass(frozen=True)
class Catalogue:
    """The tasks of one split.

    `feasible` says why a task with a client's own instruction is not feasible; "" if it is.
    """

    split: str
    tasks: Sequence[Task]
    feasible: Callable[[Task], str]

    def choose(self, request: ResetRequest, rng: random.Random) -> Task:
        """The task of an episode.

        Raises:
            ConfigError: there is no such task, or the client's own instruction is not feasible.
        """
        if request.split not in ("", self.split):
            raise ConfigError(
                f"The split {request.split!r} is not served here.", f"Expected {self.split!r}, or none."
            )
        task = self._named_task(request)
        if task is None:
            return self._task_of(request.instruction) if request.instruction else rng.choice(self.tasks)
        if request.instruction in ("", task.instruction):
            return task
        return self._varied_task(task, request.instruction)

    def _named_task(self, request: ResetRequest) -> Task | None:
        """The task that `index` or `task_id` names; None if neither is set."""
        if request.index is not None:
            return self._numbered_task(request.index, request.task_id)
        if not request.task_id:
            return None
        for task in self.tasks:
            if task.id == request.task_id:
                return task
        raise ConfigError(
            f"There is no task {request.task_id!r} in {self.split}.",
            _nearest(request.task_id, [task.id for task in self.tasks], ", "),
        )

    def _numbered_task(self, index: int, task_id: str) -> Task:
        if not 0 <= index < len(self.tasks):
            raise ConfigError(f"There is no task number {index}.", f"Expected 0 to {len(self.tasks) - 1}.")
        task = self.tasks[index]
        if task_id not in ("", task.id):
            raise ConfigError(f"Task number {index} is {task.id}, not {task_id}.", "Name one of the two.")
        return task

    def _task_of(self, instruction: str) -> Task:
        """The first task with this instruction."""
        for task in self.tasks:
            if task.instruction == instruction:
                return task
        raise ConfigError(
            f"No task of {self.split} says {instruction!r}.",
            _nearest(instruction, sorted({task.instruction for task in self.tasks}), "; "),
            "Add task_id to have these words in the room of that task.",
        )

    def _varied_task(self, room: Task, instruction: str) -> Task:
        """A task with this instruction in the room of another task."""
        task = replace(
            room, id=f"{room.id}/asked", instruction=instruction, parent=room.parent or room.id, family=""
        )
        if reason := self.feasible(task):
            raise ConfigError(f"{instruction!r} cannot be done in the room of {room.id}: {reason}.")
        return task


def _nearest(text: str, candidates: Sequence[str], separator: str) -> str:
    """A hint that names the candidates most like `text`; "" if there are none."""
    matches = difflib.get_close_matches(text, candidates, n=3, cutoff=0.3)
    return f"Near it: {separator.join(matches)}." if matches else ""
