"""The dream: experience model and replay buffer behind the protocol of a real environment.

`reset` gives the initial state of each task. `step` retrieves demonstrations, lets the experience model
answer, and keeps the answer as history. An answer that contradicts the episode so far is sampled again, like
one that does not parse. A step without an accepted answer ends its episode as a failure. It is counted, and
marked `unparsable` so that it never enters the buffer.

    P(s_t+1, r_t+1 | s_t, a_t) = p [s_t+1 = s_t, r_t+1 = 0] + (1 - p) P_exp(s_t+1, r_t+1 | s_t, a_t)

    dreamgym retrain rl.dream.lost_actions=0.1

With p = `lost_actions` the dream is perturbed: an action has no effect, and the policy learns to try again.
Qwen-AgentWorld (arXiv 2606.24597) reports a gain from controlled perturbations of a simulator; DreamGym has
none. Losing actions is our own, simplest form: each step is drawn alike, whatever the state and the action.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence

from components.environments.protocol import Step
from components.experience.decoding.answer_checks import Refusal
from components.experience.decoding.prediction_batch import Query
from components.experience.dreaming_model import DreamingModel, EpisodeBatch
from components.experience.formats.world_format import Answer
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import LOST_ACTION, Task, Trajectory, Transition

MOST_PARTS = 100_003
"""Seeds between two separations of a dream."""


class Dream:
    """A synthetic environment (`components.environments.protocol.Environment`). Its `interactions` are
    dreamed steps, not real ones.
    """

    def __init__(
        self,
        model: DreamingModel,
        buffer: ReplayBuffer,
        contradiction: Callable[[Trajectory, str], str] | None = None,
        objection: Callable[[Task, str], str] | None = None,
        revealing: Callable[[Trajectory, str, str], bool] | None = None,
        lost_actions: float = 0.0,
    ) -> None:
        """Args (the functions are the adapter's):
        contradiction: says what in a next state the episode so far rules out; None: no state is refused.
        objection: says why a premise cannot be; None: episodes begin without a premise.
        revealing: says which steps show what the history does not determine; those are sampled. None: no
            step is sampled.
        lost_actions: share of the steps whose action has no effect, drawn anew for each step: the state
            repeats, the experience model is not asked, and the dream forgets the step.
        """
        self.interactions = 0
        self.seed = 0
        self.model = model
        self._buffer = buffer
        self._contradiction = contradiction
        self._objection = objection
        self._revealing = revealing
        self._lost_actions = lost_actions
        self._chance = random.Random(0)
        self._batch: EpisodeBatch | None = None
        self._episodes: dict[int, Trajectory] = {}
        self._retrieving = threading.Lock()

    @property
    def is_separable(self) -> bool:
        """Whether the engine of the experience model takes requests of several threads."""
        return self.model.is_concurrent

    def separate(self, count: int) -> list[Dream]:
        """`count` dreams of one row each, for threads of their own, over the same model and buffer.

        Each has random streams of its own, so what it dreams does not depend on the others.
        """
        self.seed += 1
        parts = []
        for number, model in enumerate(self.model.sharing_engine(count)):
            part = Dream(
                model,
                self._buffer,
                self._contradiction,
                self._objection,
                self._revealing,
                self._lost_actions,
            )
            part.seed = self.seed * MOST_PARTS + number
            part._retrieving = self._retrieving
            parts.append(part)
        return parts

    def rejoin(self, parts: Sequence[Dream]) -> None:
        """Add what `parts` have counted to the counts of this dream."""
        for part in parts:
            self.interactions += part.interactions
            self.model.counts.add(part.model.counts)

    def reset(self, tasks: Sequence[Task]) -> list[str]:
        """Begin one dreamed episode a task."""
        self.seed += 1
        self._chance = random.Random(self.seed)
        premises = self._sample_premises(tasks, self.seed)
        self._episodes = {
            row: Trajectory(task, premise=premise)
            for row, (task, premise) in enumerate(zip(tasks, premises, strict=True))
        }
        self._batch = self.model.begin(tasks, premises, seed=self.seed)
        return [task.initial_state for task in tasks]

    def open_rows(self, rows: int) -> None:
        """Forget all episodes and open `rows` empty rows. `begin_episode` begins one episode at a time, so
        that episodes can begin at different times.
        """
        self.seed += 1
        self._episodes = {}
        self._batch = self.model.empty_batch(rows, seed=self.seed)

    def begin_episode(self, row: int, task: Task, seed: int, history: Sequence[tuple[str, str]] = ()) -> str:
        """Begin an episode in `row`, in place of the row's last one, while other episodes go on.

        `seed` decides its premise. What is sampled later (further tries, undetermined states) comes from the
        one random stream of the batch.

        Args:
            history: actions and next states of an episode in progress, which this one goes on with.

        Returns:
            The current state: the initial one, or the last of `history`.

        Raises:
            DataError: `history` is longer than the model can read.
        """
        assert self._batch is not None, "open_rows or reset comes first"
        (premise,) = self._sample_premises([task], seed)
        episode = Trajectory(task, premise=premise)
        self._batch.begin_episode(row, task, premise)
        for number, (action, state) in enumerate(history):
            step = Transition(task.id, "", number, episode.states[-1], action, state, 0.0, False)
            episode = episode.with_step(step)
            self._batch.advance({row: (action, state)})
        self._episodes[row] = episode
        return episode.states[-1]

    def end_episode(self, row: int) -> None:
        """Forget the episode of `row`: it takes no more memory and time."""
        assert self._batch is not None, "open_rows or reset comes first"
        self._episodes.pop(row, None)
        self._batch.finish([row])

    def step(self, actions: Sequence[str | None]) -> list[Step | None]:
        """Dream one step of each row that has an action.

        Raises:
            DataError: an episode has become longer than the model can read. No row has moved; the others can
                be stepped without it.
        """
        row_actions = {row: action for row, action in enumerate(actions) if action is not None}
        lost_rows = [row for row in row_actions if self._chance.random() < self._lost_actions]
        steps: list[Step | None] = [None] * len(actions)
        for row in lost_rows:
            info = {"reasoning": LOST_ACTION, "lost": True}
            steps[row] = Step(self._episodes[row].states[-1], 0.0, False, info)
        kept = {row: action for row, action in row_actions.items() if row not in lost_rows}
        for row, step in (self._dream_steps(kept) if kept else {}).items():
            steps[row] = step
        return steps

    def _dream_steps(self, row_actions: Mapping[int, str]) -> dict[int, Step]:
        """Dream one step of each row."""
        assert self._batch is not None, "reset comes first"
        queries = self._queries(row_actions)

        def is_undetermined(row: int, answer: Answer) -> bool:
            return self._revealing is not None and self._revealing(
                self._episodes[row], row_actions[row], answer.state
            )

        answers = self._batch.predict(queries, self._is_coherent, is_undetermined)
        self.interactions += len(row_actions)
        steps = {row: self._take_step(row, queries[row], answer) for row, answer in answers.items()}
        finished_rows = [row for row in row_actions if steps[row].done]
        self._batch.advance(
            {
                row: (action, self._episodes[row].states[-1])
                for row, action in row_actions.items()
                if row not in finished_rows
            }
        )
        self._batch.finish(finished_rows)
        return steps

    @property
    def tokens(self) -> int:
        """Tokens that the experience model has generated so far."""
        return self.model.tokens

    @property
    def rejected(self) -> dict[str, int]:
        """Answers refused and steps left without an answer so far, by kind."""
        counts = {
            "contradicting_answers_a_step": self.model.incoherent_answers,
            "unanswered_steps": self.model.unanswered_steps,
        }
        if self.model.grounded:
            counts["misquoting_answers_a_step"] = self.model.ungrounded_answers
        if self.model.config.min_confidence > 0:
            counts["unsure_answers_a_step"] = self.model.counts.refusals[Refusal.UNSURE]
        if self.model.config.agreeing_samples:
            counts["disagreeing_answers_a_step"] = self.model.counts.refusals[Refusal.DISAGREEING]
        return counts

    def remember(self, transitions: Sequence[Transition]) -> None:
        """Add transitions to the buffer, as demonstrations of later steps."""
        self._buffer.add(transitions)

    def close(self) -> None:
        """Forget the episodes in progress."""
        self._batch = None

    def _sample_premises(self, tasks: Sequence[Task], seed: int) -> list[str]:
        if self._objection is None:
            return [""] * len(tasks)
        return self.model.sample_hidden_state(tasks, self._objection, seed=seed)

    def _queries(self, row_actions: Mapping[int, str]) -> dict[int, Query]:
        """Row -> its current state and action, with demonstrations of other tasks."""
        rows = list(row_actions)
        states = {row: self._episodes[row].states[-1] for row in rows}
        with self._retrieving:  # parts of a dream share the buffer
            demonstrations = self._buffer.retrieve(
                [(states[row], row_actions[row]) for row in rows],
                [self._episodes[row].task.id for row in rows],
            )
        return {
            row: Query(states[row], row_actions[row], row_demonstrations)
            for row, row_demonstrations in zip(rows, demonstrations, strict=True)
        }

    def _is_coherent(self, row: int, answer: Answer) -> bool:
        return self._contradiction is None or not self._contradiction(self._episodes[row], answer.state)

    def _take_step(self, row: int, query: Query, answer: Answer | None) -> Step:
        """The step that follows from the answer, which is added to the episode; a failure without answer."""
        if answer is None:
            return Step(query.state, 0.0, True, {"unparsable": True})
        episode = self._episodes[row]
        transition = Transition(
            episode.task.id,
            "",
            len(episode.steps),
            query.state,
            query.action,
            answer.state,
            answer.reward,
            answer.done,
        )
        self._episodes[row] = episode.with_step(transition)
        info = {"reasoning": answer.reasoning, "demonstrations": query.demonstrations}
        return Step(answer.state, answer.reward, answer.done, info)
