"""Rollouts: episodes of the policy in a world, real or dreamed, with what training on them needs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from components.environments import retry as again
from components.environments.protocol import NO_ACTION, Environment, Step, concurrent_rows
from components.errors import EnvironmentFailure
from components.language.engines.engine import Generation, Session
from components.language.markers import END
from components.language.training.examples import Example, Segment
from components.policy.agent_prompt import observation, opening, parse_reply, turn
from components.policy.policy import Policy
from components.records import REAL, Task, Trajectory, Transition

ROWS = 512
"""Most episodes side by side: each holds a cache of some megabytes in the policy, and one in a dream."""


@dataclass
class Rollout:
    """One episode.

    `example` is the episode as the policy read and wrote it, loss on what it wrote; `logprobs` are the
    sampler's, one for each token with loss, in order. `failure` says how infrastructure ended it: such a
    rollout is recorded, not trained on. `unparsable` says that a dream had no answer: its last step is not a
    transition and was left out; not trained on either. `idle` says of each reply whether it held no action or
    left the state as it was, word for word. `cut` counts replies that ended at the policy's `max_new_tokens`.
    `overlong` says that the policy's longest sequence was full: the episode is lost there. `tries` counts how
    often it was begun, infrastructure having ended the earlier ones.
    """

    trajectory: Trajectory
    example: Example
    logprobs: list[float] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    failure: str = ""
    unparsable: bool = False
    malformed: int = 0
    cut: int = 0
    overlong: bool = False
    tries: int = 1

    @property
    def broken(self) -> bool:
        """True if infrastructure ended the episode."""
        return bool(self.failure)

    @property
    def reward(self) -> float:
        """The return: 1.0 for a success, else 0.0."""
        return 1.0 if self.trajectory.success else 0.0

    @property
    def replies(self) -> list[int]:
        """Tokens of each reply of the policy."""
        return [sum(segment.loss) for segment in self.example.segments if any(segment.loss)]

    @property
    def written(self) -> int:
        """Tokens of all replies."""
        return sum(self.replies)


@dataclass(frozen=True)
class Stamp:
    """What the transitions of a batch of rollouts are marked with."""

    source: str = REAL
    policy_version: str = ""
    run_id: str = ""
    prefix: str = "rollout"


def play(
    policy: Policy,
    world: Environment,
    tasks: Sequence[Task],
    *,
    max_steps: int,
    temperature: float,
    seed: int,
    stamp: Stamp = Stamp(),
) -> list[Rollout]:
    """Play each task once, up to ROWS side by side where the world has room; rollouts in the order of
    `tasks`.

    Raises:
        DataError: the policy's longest sequence has no room for the first turn.
    """
    engine, rollouts, rows = policy.engine(seed), list[Rollout](), concurrent_rows(world, ROWS)
    for start in range(0, len(tasks), rows):
        part = tasks[start : start + rows]
        names = [f"{stamp.prefix}-{seed}-{start + row}/{task.id}" for row, task in enumerate(part)]
        rollouts += _side_by_side(
            policy,
            engine.open(len(part)),
            world,
            part,
            names,
            max_steps=max_steps,
            temperature=temperature,
            stamp=stamp,
        )
    return rollouts


def play_whole(
    policy: Policy,
    world: Environment,
    tasks: Sequence[Task],
    *,
    max_steps: int,
    temperature: float,
    seed: int,
    stamp: Stamp = Stamp(),
) -> list[Rollout]:
    """As `play`, for measurements: what infrastructure ended is played again, since it says nothing about the
    policy.

    Raises:
        EnvironmentFailure: an episode broke in each of several tries (`again.TRIES`).
    """

    def playing(places: list[int], attempt: int) -> tuple[dict[int, Rollout], dict[int, str]]:
        chosen = [tasks[place] for place in places]
        rollouts = play(
            policy,
            world,
            chosen,
            max_steps=max_steps,
            temperature=temperature,
            seed=seed + attempt,
            stamp=stamp,
        )
        found = {
            place: replace(rollout, tries=attempt + 1)
            for place, rollout in zip(places, rollouts, strict=True)
        }
        broken = {place: rollout.failure for place, rollout in found.items() if rollout.broken}
        return {place: rollout for place, rollout in found.items() if place not in broken}, broken

    names = {place: task.id for place, task in enumerate(tasks)}
    return list(
        again.play_whole(
            names, playing, "episodes", "A game that was not played is neither won nor lost."
        ).values()
    )


def _side_by_side(
    policy: Policy,
    session: Session,
    world: Environment,
    tasks: Sequence[Task],
    names: Sequence[str],
    *,
    max_steps: int,
    temperature: float,
    stamp: Stamp,
) -> list[Rollout]:
    """One episode a task, of the names given, in a session with as many rows."""
    states = world.reset(tasks)
    rollouts, encode = [Rollout(Trajectory(task), Example([])) for task in tasks], policy.vocabulary.encode
    waiting = {row: encode([*opening(task), *turn(task)]) for row, task in enumerate(tasks)}
    for state, task in zip(states, tasks, strict=True):
        if state != task.initial_state:
            cure = (
                "An adapter must start a task with the same text each time; `dreamgym check-environment` "
                "tests it."
            )
            raise EnvironmentFailure(
                f"{task.id} begins with {state!r}.", f"Expected {task.initial_state!r}, as recorded.", cure
            )
    for _ in range(max_steps):
        written = _write(policy, session, rollouts, waiting, temperature)
        actions = {row: _act(policy, rollouts[row], generation) for row, generation in written.items()}
        answers = world.step([actions.get(row) for row in range(len(tasks))])
        waiting = {}
        for row, action in actions.items():
            answer = answers[row]
            assert answer is not None
            over = _record(rollouts[row], names[row], action, answer, stamp)
            prompt = [] if over else encode([*observation(answer.state), *turn(tasks[row])])
            rollouts[row].overlong = not over and len(prompt) >= session.room(row)
            if over or rollouts[row].overlong:
                session.drop([row])
            else:
                waiting[row] = prompt
        if not waiting:
            break
    return rollouts


def _write(
    policy: Policy,
    session: Session,
    rollouts: Sequence[Rollout],
    waiting: dict[int, list[int]],
    temperature: float,
) -> dict[int, Generation]:
    stop = {policy.vocabulary.marker_id(END)}
    written = session.generate(
        waiting, stop=stop, max_new_tokens=policy.max_new_tokens, temperature=temperature
    )
    for row, generation in written.items():
        prompt = waiting[row]
        rollouts[row].example.segments += [
            Segment(prompt, [False] * len(prompt)),
            Segment(list(generation.tokens), [True] * len(generation.tokens)),
        ]
        rollouts[row].logprobs += generation.logprobs
        rollouts[row].cut += not generation.stopped
        policy.tokens += len(generation.tokens)
    return written


def _act(policy: Policy, rollout: Rollout, generation: Generation) -> str:
    thought, action = parse_reply(policy.vocabulary.pieces(generation.tokens))
    rollout.thoughts.append(thought)
    if not action:
        rollout.malformed += 1
    return action or NO_ACTION


def _record(rollout: Rollout, name: str, action: str, answer: Step, stamp: Stamp) -> bool:
    """Add one step to the rollout; True if the episode is over."""
    rollout.failure = (str(answer.info["failed"]) or "no reason given") if "failed" in answer.info else ""
    rollout.unparsable = bool(answer.info.get("unparsable"))
    answered = not (rollout.broken or rollout.unparsable)
    rollout.idle.append(action == NO_ACTION or (answered and answer.state == rollout.trajectory.states[-1]))
    if rollout.broken or rollout.unparsable:
        return True
    history = rollout.trajectory
    transition = Transition(
        task_id=history.task.id,
        episode_id=name,
        step=len(history.steps),
        state=history.states[-1],
        action=action,
        next_state=answer.state,
        reward=answer.reward,
        done=answer.done,
        reasoning=answer.info.get("reasoning", ""),
        source=stamp.source,
        behaviour="policy",
        policy_version=stamp.policy_version,
        run_id=stamp.run_id,
    )
    rollout.trajectory = Trajectory(history.task, (*history.steps, transition))
    return answer.done


def repeat_tasks(tasks: Sequence[Task], size: int) -> list[Task]:
    """Each task `size` times in a row: the rows of a batch of groups."""
    return [task for task in tasks for _ in range(size)]


def draw_tasks(tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` tasks drawn without replacement (with, once they run out)."""
    rng = random.Random(seed)
    pool: list[Task] = []
    while len(pool) < count:
        pool += rng.sample(list(tasks), len(tasks))
    return pool[:count]
