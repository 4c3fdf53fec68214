"""The records that all stages share: Task, Transition, Trajectory.

They are immutable and hold plain Python values, so that they can be pickled to worker processes and written
to Parquet. `components/trajectories/store.py` defines the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

REAL = "real"
SYNTHETIC = "synthetic"
"""Sources of a transition."""
TRAIN = "train"
VALIDATION = "validation"
TEST = "test"
"""Splits of the tasks: for training, for the decision about promotion, and for evaluation on demand only."""
LOST_ACTION = "The action was lost."
"""Reasoning of a dreamed step whose action had no effect on purpose (`rl.dream.lost_actions`)."""
VARIED = "/varied-"
"""Separates, in a generated task's id, the id of the recorded task that it was varied from."""


@dataclass(frozen=True)
class Task:
    """An instruction in an environment.

    `initial_state` is the state text that `reset` returns. A dream needs it: nothing else describes the room
    that the instruction belongs to. `spec` is JSON that only the adapter reads; it rebuilds the real world of
    this task. `parent` is the id of the task that a generated task was varied from, and empty for a real one.
    """

    id: str
    environment: str
    split: str
    instruction: str
    initial_state: str
    family: str = ""
    spec: str = "{}"
    parent: str = ""

    @property
    def generated(self) -> bool:
        """True for a task that the curriculum generated; it has no real world of its own."""
        return bool(self.parent)


@dataclass(frozen=True)
class Transition:
    """One step: (task, history, state, action) -> (reasoning, next state, reward, done).

    The history is the trajectory before the step. `step` counts from 0 in its episode. `reward` is the
    outcome: 1.0 at the final step of a success, else 0.0. `done` is True only if the environment ended the
    episode, not if the step limit did. `source` is `real` or `synthetic`. `behaviour` says who acted: expert,
    noisy, near_miss, random or policy. `thought` is what the behaviour itself wrote before the action; empty
    where it wrote nothing. `outcome_known` is False in all steps of an episode whose outcome nobody knows:
    its last step is not there, and the rewards of 0.0 say nothing about its end.
    """

    task_id: str
    episode_id: str
    step: int
    state: str
    action: str
    next_state: str
    reward: float
    done: bool
    reasoning: str = ""
    source: str = REAL
    behaviour: str = ""
    policy_version: str = ""
    run_id: str = ""
    thought: str = ""
    outcome_known: bool = True


@dataclass(frozen=True)
class Trajectory:
    """The transitions of one episode, in order.

    `premise` is the hidden state of the world that a dream sampled before the first step; empty for a real
    episode, which has a real world.
    """

    task: Task
    steps: tuple[Transition, ...] = field(default=())
    premise: str = ""

    @property
    def success(self) -> bool:
        """True if the last step has a reward."""
        return bool(self.steps) and self.steps[-1].reward > 0.5

    @property
    def outcome(self) -> bool | None:
        """As `success`; None if nobody knows the outcome, which imported logs may leave open."""
        if not self.success and self.steps and not self.steps[-1].outcome_known:
            return None
        return self.success

    @property
    def states(self) -> list[str]:
        """The initial state, then the state after each step: `len(steps) + 1` texts."""
        return [self.task.initial_state] + [step.next_state for step in self.steps]

    def up_to(self, step: int) -> Trajectory:
        """The history before `step`: the trajectory with its first `step` transitions."""
        return replace(self, steps=self.steps[:step])

    def without_thoughts(self, behaviours: Sequence[str] = ()) -> Trajectory:
        """The trajectory without the agent's thoughts.

        Args:
            behaviours: those whose thoughts are left out; empty: all.
        """
        return replace(
            self,
            steps=tuple(
                step if behaviours and step.behaviour not in behaviours else replace(step, thought="")
                for step in self.steps
            ),
        )

    def without_lost_actions(self) -> Trajectory:
        """The trajectory without the steps that a dream disturbed on purpose; the others are counted anew."""
        kept = (step for step in self.steps if step.reasoning != LOST_ACTION)
        return replace(self, steps=tuple(replace(step, step=place) for place, step in enumerate(kept)))

    def with_step(self, step: Transition) -> Trajectory:
        """The trajectory with one more transition."""
        return replace(self, steps=(*self.steps, step))


def is_text(value: object) -> bool:
    """True if `value` is a text that is not blank and can be stored."""
    return isinstance(value, str) and bool(value.strip()) and is_storable(value)


def is_storable(text: str) -> bool:
    """True if `text` can be written as UTF-8.

    Half of a surrogate pair cannot, although JSON can spell it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def origin(task_id: str) -> str:
    """The id of the recorded task that this task is, or was varied from; both have the same room."""
    return task_id.partition(VARIED)[0]
