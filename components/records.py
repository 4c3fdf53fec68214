"""The nouns that every stage shares: Task, Transition, Trajectory.

All three are immutable and hold plain Python values, so they can be pickled to worker processes and written
to Parquet without a schema of their own (see `components/trajectories/store.py` for the columns).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

REAL, SYNTHETIC = "real", "synthetic"
TRAIN, VALIDATION, TEST = "train", "validation", "test"
"""Splits of the tasks: what is learnt from, what promotions are decided on, what is read on demand alone."""
VARIED = "/varied-"
"""In a generated task's id, what follows the id of the recorded task that it was varied from."""


@dataclass(frozen=True)
class Task:
    """An instruction in an environment.

    `initial_state` is the state text that `reset` returns: a dream needs it, since nothing else tells what
    room the instruction belongs to. `spec` is private to the adapter (JSON): it is what rebuilds the real
    world of this task. `parent` is the id of the task that a generated task was varied from, empty for a real
    one.
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
        """True for a task that the curriculum made up; such a task has no real world of its own."""
        return bool(self.parent)


@dataclass(frozen=True)
class Transition:
    """(task, history, state, action) -> (reasoning, next state, reward, done); the history is the trajectory
    before it.

    `step` counts from 0 in its episode. `reward` is the outcome: 1.0 at the final step of a success, else
    0.0. `done` is True only at an end that the environment declared, not when the step limit cut the episode
    off. `source` is `real` or `synthetic`; `behaviour` says who acted (expert, noisy, near_miss, random,
    policy).
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


@dataclass(frozen=True)
class Trajectory:
    """The transitions of one episode, in order.

    `premise` is what a dream has decided about its hidden world before the first step; empty for a real
    episode, whose world decides.
    """

    task: Task
    steps: tuple[Transition, ...] = field(default=())
    premise: str = ""

    @property
    def success(self) -> bool:
        """True if the last step was rewarded."""
        return bool(self.steps) and self.steps[-1].reward > 0.5

    @property
    def states(self) -> list[str]:
        """Initial state, then the state after each step: `len(steps) + 1` texts."""
        return [self.task.initial_state] + [step.next_state for step in self.steps]

    def up_to(self, step: int) -> Trajectory:
        """The history before `step`: the trajectory with its first `step` transitions."""
        return replace(self, steps=self.steps[:step])


def is_text(found: object) -> bool:
    """True for words that can be stored."""
    return isinstance(found, str) and bool(found.strip()) and is_storable(found)


def is_storable(text: str) -> bool:
    """True if `text` can be written as UTF-8: it has no half of a surrogate pair, which JSON can spell and
    nothing can store.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def origin(task_id: str) -> str:
    """The id of the recorded task that this one is, or was varied from: tasks of one origin share a room."""
    return task_id.partition(VARIED)[0]
