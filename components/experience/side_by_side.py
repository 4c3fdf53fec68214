"""One episode played by a person in the dream and, optionally, in the real world, with the differences.

After the first difference (`state_comparison.py`) the two worlds are different ones, and their later
differences say little. The fair question is then that of `ReplayChecker`: in the world that the dream
described, does the real engine answer the same actions with the same states?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from components.environments.capabilities import Adapter
from components.environments.protocol import Environment, Step
from components.errors import EnvironmentFailure
from components.experience.real_replay import replay_in
from components.experience.state_comparison import Comparison, compare, compare_states
from components.records import Task, Trajectory, Transition


class End(StrEnum):
    """Why an episode is over."""

    WON = "success"
    LOST = "failure"
    NO_ANSWER = "no answer"
    LIMIT = "step limit"


@dataclass(frozen=True)
class Turn:
    """One action and what followed in both worlds.

    Attributes:
        number: from 1.
        real: the real step; None if the real world was not played.
        comparison: None if there is nothing to compare.
    """

    number: int
    action: str
    dreamed: Step
    real: Step | None = None
    comparison: Comparison | None = None

    @property
    def unanswered(self) -> bool:
        """True if no answer of the dream passed its checks."""
        return bool(self.dreamed.info.get("unparsable"))

    @property
    def same_outcome(self) -> bool:
        """True if both worlds gave the same reward and both or neither ended. True without a real step."""
        return self.real is None or (self.dreamed.reward, self.dreamed.done) == (
            self.real.reward,
            self.real.done,
        )

    @property
    def agrees(self) -> bool:
        """True if facts, reward and end are the same in both worlds; False if there is nothing to compare."""
        return self.comparison is not None and self.comparison.same_facts and self.same_outcome


class Playthrough:
    """One episode of `task` in the dream, and in the real world if there is one. Both have one row.

    Attributes:
        turns: the actions so far.
        dreamed: the episode in the dream.
        real: the episode in the real world; None without one.
        real_over: the real episode has ended.
    """

    def __init__(
        self,
        adapter: Adapter,
        dream: Environment,
        task: Task,
        max_steps: int,
        real: Environment | None = None,
    ) -> None:
        self.adapter = adapter
        self.task = task
        self.max_steps = max_steps
        self._dream = dream
        self._real = real
        self.restart()

    def restart(self) -> None:
        """Begin the task again in both worlds. Raises EnvironmentFailure if the real one cannot be loaded."""
        self.turns: list[Turn] = []
        self.dreamed = Trajectory(self.task)
        self.real = None if self._real is None else Trajectory(self.task)
        self._dream.reset([self.task])
        if self._real is not None:
            self.real = Trajectory(replace(self.task, initial_state=self._real.reset([self.task])[0]))
        self.real_over = False

    def act(self, action: str) -> Turn:
        """Play one action in both worlds, in the real one only until its episode ends."""
        assert not self.end, "the episode is over: restart comes first"
        dreamed = _step_one_row(self._dream, action)
        real = None if self._real is None or self.real_over else _step_one_row(self._real, action)
        is_answered = not dreamed.info.get("unparsable")
        has_real_step = real is not None and not real.info.get("failed")
        if is_answered:
            self.dreamed = _with_step(self.dreamed, action, dreamed)
        if real is not None and self.real is not None:
            self.real_over = real.done
            self.real = _with_step(self.real, action, real) if has_real_step else self.real
        comparison = None
        if is_answered and has_real_step and self.real is not None:
            comparison = compare(self.adapter, self.dreamed, self.real)
        self.turns.append(Turn(len(self.turns) + 1, action, dreamed, real, comparison))
        return self.turns[-1]

    @property
    def side_by_side(self) -> bool:
        """True if there is a real world."""
        return self._real is not None

    @property
    def end(self) -> End | None:
        """Why the dreamed episode is over; None while it goes on."""
        if not self.turns:
            return None
        last = self.turns[-1]
        if last.unanswered:
            return End.NO_ANSWER
        if last.dreamed.done:
            return End.WON if last.dreamed.reward > 0.5 else End.LOST
        return End.LIMIT if len(self.turns) >= self.max_steps else None

    @property
    def first_disagreement(self) -> Turn | None:
        """The first turn whose facts or outcome differ; from it on the two are different worlds."""
        return next((turn for turn in self.turns if turn.comparison is not None and not turn.agrees), None)


def _step_one_row(world: Environment, action: str) -> Step:
    step = world.step([action])[0]
    assert step is not None, "a row with an action has an answer"
    return step


def _with_step(trajectory: Trajectory, action: str, step: Step) -> Trajectory:
    transition = Transition(
        trajectory.task.id,
        "",
        len(trajectory.steps),
        trajectory.states[-1],
        action,
        step.state,
        step.reward,
        step.done,
    )
    return trajectory.with_step(transition)


@dataclass(frozen=True)
class Confirmation:
    """A dreamed episode in the real world that it described.

    Attributes:
        comparisons: one for each step that the real engine played; none if no such world can be built.
        agrees: a dreamed success is rewarded there at the same step, as the fidelity gate asks; any other
            episode is not rewarded there either.
        reason: why it does not agree; "" if it does.
        interactions: number of real steps.
    """

    dreamed: Trajectory
    comparisons: Sequence[Comparison]
    agrees: bool
    reason: str
    interactions: int


class ReplayChecker:
    """Replays dreamed episodes in the worlds that they described.

    The real engine stays open between episodes: its start takes far longer than an episode.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._engine: Environment | None = None

    def confirm(self, dreamed: Trajectory) -> Confirmation:
        """Replay `dreamed`, which holds at least one step, in its own world: see `real_replay.replay_in`."""
        try:
            world = self._adapter.embody(dreamed)
        except EnvironmentFailure as failure:
            return Confirmation(dreamed, [], False, failure.found, 0)
        self._engine = self._engine or self._adapter.open()
        interactions_before = self._engine.interactions
        result = replay_in(self._engine, {0: dreamed}, {0: world})[0]
        comparisons = compare_states(self._adapter, dreamed, result.real_states)
        interactions = self._engine.interactions - interactions_before
        return Confirmation(dreamed, comparisons, result.confirmed, result.reason, interactions)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
