"""The dream: experience model and replay buffer behind the protocol of a real environment.

`reset` gives each task's own initial state; `step` retrieves demonstrations, lets the experience model answer, and keeps
the answer as history. An answer that cannot be parsed ends its episode as a failure, is counted, and is marked
`unparsable` so that it never enters the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.protocol import Step
from components.experience.experience_model import ExperienceModel, Foresight, Query
from components.experience.replay_buffer import ReplayBuffer
from components.records import Task, Transition


class Dream:
    """A synthetic environment (`components.environments.protocol.Environment`); its interactions are dreamed, not real."""

    def __init__(self, model: ExperienceModel, buffer: ReplayBuffer) -> None:
        self.interactions = 0
        self._model, self._buffer = model, buffer
        self._foresight: Foresight | None = None
        self._states: list[str] = []
        self._tasks: list[Task] = []
        self.seed = 0

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Begin to dream one episode a task."""
        self.seed += 1
        self._tasks = list(tasks)
        self._foresight = self._model.begin(tasks, seed=self.seed)
        self._states = [task.initial_state for task in tasks]
        return list(self._states)

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Dream one step of each row with an action."""
        assert self._foresight is not None, "reset comes first"
        asked = {row: action for row, action in enumerate(actions) if action is not None}
        rows = list(asked)
        demos = self._buffer.retrieve([(self._states[row], asked[row]) for row in rows], [""] * len(rows))
        queries = {row: Query(self._states[row], asked[row], found) for row, found in zip(rows, demos, strict=True)}
        answers = self._foresight.predict(queries)
        self.interactions += len(rows)
        steps: list[Step | None] = [None] * len(actions)
        for row, answer in answers.items():
            if answer is None:
                steps[row] = Step(self._states[row], 0.0, True, {"unparsable": True})
                continue
            self._states[row] = answer.state
            steps[row] = Step(
                answer.state, answer.reward, answer.done, {"reasoning": answer.reasoning, "demonstrations": queries[row].demonstrations}
            )
        over = [row for row in rows if (step := steps[row]) is not None and step.done]
        self._foresight.advance({row: (asked[row], self._states[row]) for row in rows if row not in over})
        self._foresight.finish(over)
        return steps

    @property
    def tokens(self) -> int:
        """Tokens that the experience model has generated so far."""
        return self._model.tokens

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Take new transitions into the buffer, as demonstrations of later steps."""
        self._buffer.add(transitions)

    def close(self) -> None:
        """Forget the episodes under way."""
        self._foresight = None
