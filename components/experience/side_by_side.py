"""A person's episode in the dream and, if wanted, the same actions in the real world beside it; what in the
two states disagrees.

A dream may invent what no one has seen yet, so a difference is an error only where the episode so far
determined the outcome. Where both worlds reveal something, the differing facts that did not stand in the
state before count as `revealed`. From the first difference on the two are different worlds, and differences
between them say little. The fair question is then the one of
`Witness`: whether the real engine, in the world that the dream described, answers the same actions with the
same states. What a fact is, and what denies it, the adapter alone knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from components.environments.protocol import Adapter, Environment, Fact, Step
from components.errors import EnvironmentFailure
from components.experience.real_replay import replay_in
from components.records import Task, Trajectory, Transition


class End(StrEnum):
    """Why an episode is over."""

    WON = "success"
    LOST = "failure"
    NO_ANSWER = "no answer"
    LIMIT = "step limit"


@dataclass(frozen=True)
class Comparison:
    """The facts of a dreamed state held against those of the real one after the same actions.

    `contradicted` are the dream's that the real state denies, `unsaid` those on which it is silent, `missing`
    those that it alone asserts. Of these, `revealed` are those that no one could know before this step.
    """

    same_text: bool
    agreed: frozenset[Fact]
    contradicted: frozenset[Fact]
    unsaid: frozenset[Fact]
    missing: frozenset[Fact]
    revealed: frozenset[Fact]

    @property
    def differing(self) -> frozenset[Fact]:
        """The facts that one of the two states asserts alone."""
        return self.contradicted | self.unsaid | self.missing

    @property
    def invented(self) -> bool:
        """True if the two differ in nothing but what no one could know."""
        return bool(self.differing) and self.differing == self.revealed

    @property
    def same_facts(self) -> bool:
        """True if both states assert the same."""
        return not self.differing


def compare(adapter: Adapter, dreamed: Trajectory, real: Trajectory) -> Comparison:
    """The last state of `dreamed` beside the last one of `real`; both hold at least one step, the last
    actions are the same.
    """
    claims, truth = adapter.facts(dreamed), adapter.facts(real)
    denied = frozenset(claim for claim in claims if adapter.contradicts(claim, truth))
    unsaid, missing = frozenset(claims - truth - denied), frozenset(truth - claims)
    revealed: frozenset[Fact] = frozenset()
    before, last = _split(dreamed)
    if (
        _reveals(adapter, dreamed)
        and _reveals(adapter, real)
        and not adapter.contradiction(before, last.next_state)
    ):
        revealed = ((denied | unsaid) - adapter.facts(before)) | (missing - adapter.facts(_split(real)[0]))
    return Comparison(
        last.next_state == real.states[-1], frozenset(claims & truth), denied, unsaid, missing, revealed
    )


def compare_states(adapter: Adapter, dreamed: Trajectory, real_states: Sequence[str]) -> list[Comparison]:
    """Each step of `dreamed` beside what the real engine answered to the same actions, as far as it played
    them.
    """
    steps = tuple(
        replace(step, next_state=state) for step, state in zip(dreamed.steps, real_states, strict=False)
    )
    real = Trajectory(dreamed.task, steps)
    return [compare(adapter, dreamed.up_to(count), real.up_to(count)) for count in range(1, len(steps) + 1)]


def _reveals(adapter: Adapter, trajectory: Trajectory) -> bool:
    before, last = _split(trajectory)
    return adapter.revealing(before, last.action, last.next_state)


def _split(trajectory: Trajectory) -> tuple[Trajectory, Transition]:
    return trajectory.up_to(len(trajectory.steps) - 1), trajectory.steps[-1]


@dataclass(frozen=True)
class Turn:
    """One action and what followed; `number` counts from 1. `real` and `comparison` are None where there is
    nothing to hold against.
    """

    number: int
    action: str
    dreamed: Step
    real: Step | None = None
    comparison: Comparison | None = None

    @property
    def unanswered(self) -> bool:
        """True if the dream had no answer that could be read and believed."""
        return bool(self.dreamed.info.get("unparsable"))

    @property
    def same_outcome(self) -> bool:
        """True if both worlds gave the same reward and both went on or both ended."""
        return self.real is None or (self.dreamed.reward, self.dreamed.done) == (
            self.real.reward,
            self.real.done,
        )

    @property
    def agrees(self) -> bool:
        """True if facts, reward and end are the same in both worlds; False as well where there is nothing to
        compare.
        """
        return self.comparison is not None and self.comparison.same_facts and self.same_outcome


class Playthrough:
    """One episode of `task` in the dream, and in the real world if one is given; both are worlds of one
    row.
    """

    def __init__(
        self,
        adapter: Adapter,
        dream: Environment,
        task: Task,
        max_steps: int,
        real: Environment | None = None,
    ) -> None:
        self.adapter, self.task, self.max_steps = adapter, task, max_steps
        self._dream, self._real = dream, real
        self.restart()

    def restart(self) -> None:
        """Begin the task anew in both worlds. Raises EnvironmentFailure if the real one cannot be loaded."""
        self.turns: list[Turn] = []
        self.dreamed, self.real = Trajectory(self.task), None if self._real is None else Trajectory(self.task)
        self._dream.reset([self.task])
        if self._real is not None:
            self.real = Trajectory(replace(self.task, initial_state=self._real.reset([self.task])[0]))
        self.real_over = False

    def act(self, action: str) -> Turn:
        """Play one action in both worlds; in the real one only while its episode goes on."""
        assert not self.end, "the episode is over: restart comes first"
        dreamed = _answered(self._dream, action)
        real = None if self._real is None or self.real_over else _answered(self._real, action)
        if not dreamed.info.get("unparsable"):
            self.dreamed = _grown(self.dreamed, action, dreamed)
        if real is not None and self.real is not None:
            self.real_over = real.done
            self.real = self.real if real.info.get("failed") else _grown(self.real, action, real)
        comparable = real is not None and not real.info.get("failed") and not dreamed.info.get("unparsable")
        found = (
            compare(self.adapter, self.dreamed, self.real) if comparable and self.real is not None else None
        )
        self.turns.append(Turn(len(self.turns) + 1, action, dreamed, real, found))
        return self.turns[-1]

    @property
    def side_by_side(self) -> bool:
        """True if the real world is played too."""
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
    def parted(self) -> Turn | None:
        """The first step at which the two worlds did not agree: from there on they are different ones."""
        return next((turn for turn in self.turns if turn.comparison is not None and not turn.agrees), None)


def _answered(world: Environment, action: str) -> Step:
    step = world.step([action])[0]
    assert step is not None, "a row with an action has an answer"
    return step


def _grown(trajectory: Trajectory, action: str, step: Step) -> Trajectory:
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
    return replace(trajectory, steps=(*trajectory.steps, transition))


@dataclass(frozen=True)
class Confirmation:
    """A dreamed episode in the real world that it described.

    `comparisons` holds one for each step that the real engine played, none if no such world can be built.
    `agrees`: a dreamed success is rewarded there at the same step (as the fidelity gate asks), any other
    episode is not rewarded there either. `reason` says why not. `interactions` are the real steps spent.
    """

    dreamed: Trajectory
    comparisons: Sequence[Comparison]
    agrees: bool
    reason: str
    interactions: int


class Witness:
    """The real engine, asked about the worlds that dreams described. It stays open: its start takes far
    longer than an episode.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._engine: Environment | None = None

    def confirm(self, dreamed: Trajectory) -> Confirmation:
        """Replay `dreamed`, which holds at least one step, in its own world: see `agreement.replay_in`."""
        try:
            world = self._adapter.embody(dreamed)
        except EnvironmentFailure as failure:
            return Confirmation(dreamed, [], False, failure.found, 0)
        self._engine = self._engine or self._adapter.open()
        before = self._engine.interactions
        found = replay_in(self._engine, {0: dreamed}, {0: world})[0]
        comparisons = compare_states(self._adapter, dreamed, found.real_states)
        return Confirmation(
            dreamed, comparisons, found.confirmed, found.reason, self._engine.interactions - before
        )

    def close(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.close()
