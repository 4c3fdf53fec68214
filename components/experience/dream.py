"""The dream: experience model and replay buffer behind the protocol of a real environment.

`reset` gives each task's own initial state; `step` retrieves demonstrations, lets the experience model
answer, and keeps the answer as history. An answer that contradicts what the episode has said so far is asked
for again, like one that cannot be parsed. A step without an answer in the end makes its episode a failure, is
counted, and is marked `unparsable` so that it never enters the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from components.environments.protocol import Step
from components.experience.model import ExperienceModel, Foresight, Query
from components.experience.prompts import Answer
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Task, Trajectory, Transition


class Dream:
    """A synthetic environment (`components.environments.protocol.Environment`); its interactions are dreamed,
    not real.
    """

    def __init__(
        self,
        model: ExperienceModel,
        buffer: ReplayBuffer,
        contradiction: Callable[[Trajectory, str], str] | None = None,
        objection: Callable[[Task, str], str] | None = None,
        revealing: Callable[[Trajectory, str, str], bool] | None = None,
    ) -> None:
        """Args:
        contradiction: the adapter's, which says what in a next state the episode so far denies; None: all is
        believed.
        objection: the adapter's, which says why a premise cannot be; None: dreams begin without one.
        revealing: the adapter's, which says which steps show what the history could not determine: they are
        sampled; None: none is.
        """
        self.interactions = 0
        self._model, self._buffer = model, buffer
        self._contradiction, self._objection, self._revealing = contradiction, objection, revealing
        self._foresight: Foresight | None = None
        self._episodes: dict[int, Trajectory] = {}
        self.seed = 0

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Begin to dream one episode a task."""
        self.seed += 1
        premises = self._presume(tasks, self.seed)
        self._episodes = {
            row: Trajectory(task, premise=premise)
            for row, (task, premise) in enumerate(zip(tasks, premises, strict=True))
        }
        self._foresight = self._model.begin(tasks, premises, seed=self.seed)
        return [task.initial_state for task in tasks]

    def vacate(self, rows: int) -> None:
        """Forget all episodes and have `rows` empty rows, in which `enter` begins one at a time: for episodes
        that begin when they like.
        """
        self.seed += 1
        self._episodes, self._foresight = {}, self._model.vacant(rows, seed=self.seed)

    def enter(self, row: int, task: Task, seed: int) -> str:
        """Begin an episode in `row`, in place of what stood there, while the others are under way; its
        initial state.

        `seed` decides its premise. What is sampled later (another try, an imagined state) comes from the
        batch's one random stream.
        """
        assert self._foresight is not None, "vacate or reset comes first"
        (premise,) = self._presume([task], seed)
        self._episodes[row] = Trajectory(task, premise=premise)
        self._foresight.enter(row, task, premise)
        return task.initial_state

    def leave(self, row: int) -> None:
        """Forget the episode of `row`; it costs nothing any more."""
        assert self._foresight is not None, "vacate or reset comes first"
        self._episodes.pop(row, None)
        self._foresight.finish([row])

    def _presume(self, tasks: Sequence[Task], seed: int) -> list[str]:
        return (
            self._model.presume(tasks, self._objection, seed=seed) if self._objection else [""] * len(tasks)
        )

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Dream one step of each row with an action.

        Raises:
            DataError: an episode has become longer than the model can read. No row has moved; the others can
                be stepped without it.
        """
        assert self._foresight is not None, "reset comes first"
        asked = {row: action for row, action in enumerate(actions) if action is not None}
        rows = list(asked)
        states = {row: self._episodes[row].states[-1] for row in rows}
        demos = self._buffer.retrieve(
            [(states[row], asked[row]) for row in rows], [self._episodes[row].task.id for row in rows]
        )
        queries = {row: Query(states[row], asked[row], found) for row, found in zip(rows, demos, strict=True)}
        revealing = self._revealing

        def leaves_open(row: int, answer: Answer) -> bool:
            return revealing is not None and revealing(self._episodes[row], asked[row], answer.state)

        answers = self._foresight.predict(queries, self._coherent, leaves_open)
        self.interactions += len(rows)
        steps: list[Step | None] = [None] * len(actions)
        for row, answer in answers.items():
            if answer is None:
                steps[row] = Step(states[row], 0.0, True, {"unparsable": True})
                continue
            self._remember_step(row, asked[row], answer)
            steps[row] = Step(
                answer.state,
                answer.reward,
                answer.done,
                {"reasoning": answer.reasoning, "demonstrations": queries[row].demonstrations},
            )
        over = [row for row in rows if (step := steps[row]) is not None and step.done]
        self._foresight.advance(
            {row: (asked[row], self._episodes[row].states[-1]) for row in rows if row not in over}
        )
        self._foresight.finish(over)
        return steps

    def _coherent(self, row: int, answer: Answer) -> bool:
        return self._contradiction is None or not self._contradiction(self._episodes[row], answer.state)

    def _remember_step(self, row: int, action: str, answer: Answer) -> None:
        episode = self._episodes[row]
        step = Transition(
            episode.task.id,
            "",
            len(episode.steps),
            episode.states[-1],
            action,
            answer.state,
            answer.reward,
            answer.done,
        )
        self._episodes[row] = replace(episode, steps=(*episode.steps, step))

    @property
    def tokens(self) -> int:
        """Tokens that the experience model has generated so far."""
        return self._model.tokens

    @property
    def rejected(self) -> dict[str, int]:
        """Answers so far that the dream did not believe, and steps that were left without one, by kind."""
        found = {
            "contradicting_answers_a_step": self._model.refused,
            "unanswered_steps": self._model.unparsable,
        }
        return found | ({"misquoting_answers_a_step": self._model.misquoting} if self._model.grounded else {})

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Take new transitions into the buffer, as demonstrations of later steps."""
        self._buffer.add(transitions)

    def close(self) -> None:
        """Forget the episodes under way."""
        self._foresight = None
