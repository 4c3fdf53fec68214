"""Rollouts: episodes of the policy in a real or dreamed environment, with the numbers that training needs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from components.environments.protocol import (
    NO_ACTION,
    Environment,
    Refillable,
    Separable,
    Step,
    concurrent_rows,
)
from components.errors import EnvironmentFailure
from components.language.engines.engine_protocol import Engine, Generation, Session
from components.language.engines.players import run_players
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy, RolloutsInterrupted
from components.records import REAL, Task, Trajectory, Transition

ROWS = 512
"""Maximum number of concurrent episodes: each has a cache of some megabytes in policy and in dream."""


@dataclass
class Rollout:
    """One episode.

    Args:
        trajectory: the transitions.
        example: the episode as the policy read and wrote it, with loss on the tokens that it wrote.
        logprobs: the sampler's log-probabilities in nats, one per token with loss, in order.
        thoughts: one per reply.
        idle: per reply, whether it had no action, or one that left the state unchanged, word for word.
        failure: why infrastructure ended the episode, which is then not trained on; "" if it did not.
        unparsable: whether the dream gave no valid answer to the last step. The trajectory ends before it,
            and the return is 0.
        malformed: number of replies without an action.
        truncated_replies: number of replies that ended at the policy's `max_new_tokens`.
        overlong: whether the episode ended because the policy's longest sequence was full: a failure.
        tries: number of times that the episode was started; infrastructure ended all but the last.
        turn_seconds: of each step; episodes that step together have the same.
    """

    trajectory: Trajectory
    example: Example
    logprobs: list[float] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    failure: str = ""
    unparsable: bool = False
    malformed: int = 0
    truncated_replies: int = 0
    overlong: bool = False
    tries: int = 1
    turn_seconds: list[float] = field(default_factory=list, compare=False)

    @property
    def broken(self) -> bool:
        """Whether infrastructure ended the episode."""
        return bool(self.failure)

    @property
    def reward(self) -> float:
        """Return of the episode: 1.0 for a success, else 0.0."""
        return 1.0 if self.trajectory.success else 0.0

    @property
    def reply_lengths(self) -> list[int]:
        """Number of tokens of each reply of the policy."""
        return [segment.predicted for segment in self.example.segments if segment.predicted]

    @property
    def token_count(self) -> int:
        """Number of tokens of all replies."""
        return sum(self.reply_lengths)


@dataclass(frozen=True)
class Stamp:
    """Origin that is written into the transitions of a batch of rollouts.

    Args:
        source: real or synthetic.
        policy_version: version of the policy that played.
        run_id: the run that played.
        prefix: first part of each episode's id.
    """

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
    """Play each task once and return the rollouts in the order of `tasks`.

    At most ROWS episodes run at once, or fewer if the world limits its rows. Each goes on as soon as it has
    its answer if engine and world can; else all step together, and a world that can refills a row.

    Args:
        max_steps: step limit of an episode.
        temperature: of sampling; 0 takes the most probable token.
        seed: random stream of the sampler, and part of each episode's id.

    Raises:
        DataError: the policy's longest sequence has no room for the first turn.
        EnvironmentFailure: a task starts with another state than its initial state.
    """
    engine = policy.engine(seed)
    rows = concurrent_rows(world, ROWS)
    episode_ids = [f"{stamp.prefix}-{seed}-{number}/{task.id}" for number, task in enumerate(tasks)]
    settings: dict[str, Any] = {"max_steps": max_steps, "temperature": temperature, "stamp": stamp}
    if engine.is_concurrent and isinstance(world, Separable) and world.is_separable:
        rollouts = _play_separately(policy, engine, world, tasks, episode_ids, rows, settings)
    elif isinstance(world, Refillable) and len(tasks) > rows:
        rollouts = _play_batch(policy, engine.open(rows), world, tasks, episode_ids, **settings)
    else:
        rollouts = []
        for start in range(0, len(tasks), rows):
            batch, ids = tasks[start : start + rows], episode_ids[start : start + rows]
            rollouts += _play_batch(policy, engine.open(len(batch)), world, batch, ids, **settings)
    policy.tokens += sum(rollout.token_count for rollout in rollouts)
    return rollouts


def _play_separately(
    policy: Policy,
    engine: Engine,
    world: Separable,
    tasks: Sequence[Task],
    episode_ids: Sequence[str],
    rows: int,
    settings: dict[str, Any],
) -> list[Rollout]:
    """Play each episode in a thread of its own, `rows` at a time: none waits for another one's step."""
    parts = world.separate(len(tasks))
    jobs = [
        partial(_play_batch, policy, engine.open(1), part, [task], [episode_id], **settings)
        for part, task, episode_id in zip(parts, tasks, episode_ids, strict=True)
    ]
    try:
        return [rollout for batch in run_players(jobs, rows) for rollout in batch]
    finally:
        world.rejoin(parts)


def _play_batch(
    policy: Policy,
    session: Session,
    world: Environment,
    tasks: Sequence[Task],
    episode_ids: Sequence[str],
    *,
    max_steps: int,
    temperature: float,
    stamp: Stamp,
) -> list[Rollout]:
    """Play one episode per task.

    Args: session: with one row per task, or with fewer and a `Refillable` world.
    """
    rollouts = [Rollout(Trajectory(task), Example([])) for task in tasks]
    text = policy.text
    first_tasks = tasks[: session.rows]
    _check_initial_states(world.reset(first_tasks), first_tasks)
    prompts = {row: text.opening(task) + text.ask(task) for row, task in enumerate(first_tasks)}
    episodes, turns = {row: row for row in prompts}, dict.fromkeys(prompts, 0)
    waiting = deque(range(len(prompts), len(tasks)))
    while prompts:
        started = time.perf_counter()
        playing = {row: rollouts[episodes[row]] for row in prompts}
        generations = _generate_replies(policy, session, playing, prompts, temperature)
        actions = {row: _read_action(policy, playing[row], reply) for row, reply in generations.items()}
        answers = world.step([actions.get(row) for row in range(len(episodes))])
        seconds = time.perf_counter() - started
        prompts = {}
        for row, action in actions.items():
            answer, rollout, task = answers[row], playing[row], tasks[episodes[row]]
            assert answer is not None
            rollout.turn_seconds.append(seconds)
            turns[row] += 1
            is_over = _record_step(rollout, episode_ids[episodes[row]], action, answer, stamp)
            end = text.close(generations[row].tokens)
            prompt = [] if is_over else end + text.observation(answer.state) + text.ask(task)
            rollout.overlong = not is_over and len(prompt) >= session.room(row)
            if not (is_over or rollout.overlong or turns[row] == max_steps):
                prompts[row] = prompt
            elif waiting:
                assert isinstance(world, Refillable)
                episodes[row], turns[row] = waiting.popleft(), 0
                task = tasks[episodes[row]]
                _check_initial_states([world.refill(row, task)], [task])
                session.clear(row)
                prompts[row] = text.opening(task) + text.ask(task)
            elif is_over or rollout.overlong:
                session.drop([row])
    return rollouts


def _check_initial_states(states: Sequence[str], tasks: Sequence[Task]) -> None:
    for state, task in zip(states, tasks, strict=True):
        if state != task.initial_state:
            raise EnvironmentFailure(
                f"{task.id} begins with {state!r}.",
                f"Expected {task.initial_state!r}, as recorded.",
                "An adapter must start a task with the same text each time; "
                "`dreamgym check-environment` tests it.",
            )


def _generate_replies(
    policy: Policy,
    session: Session,
    rollouts: Mapping[int, Rollout],
    prompts: dict[int, list[int]],
    temperature: float,
) -> dict[int, Generation]:
    """Generate a reply in each row of `prompts`, and add prompt and reply to the row's rollout."""
    if policy.is_interrupted:
        raise RolloutsInterrupted
    generations = session.generate(
        prompts, stop=policy.text.stop, max_new_tokens=policy.max_new_tokens, temperature=temperature
    )
    for row, generation in generations.items():
        prompt = prompts[row]
        rollouts[row].example.segments += [
            Segment(prompt, [False] * len(prompt)),
            Segment(list(generation.tokens), [True] * len(generation.tokens)),
        ]
        rollouts[row].logprobs += generation.logprobs
        rollouts[row].truncated_replies += not generation.stopped
    return generations


def _read_action(policy: Policy, rollout: Rollout, generation: Generation) -> str:
    """Return the action of a reply, NO_ACTION if it has none, and record the thought."""
    thought, action = policy.text.parse(generation.tokens)
    rollout.thoughts.append(thought)
    if not action:
        rollout.malformed += 1
    return action or NO_ACTION


def _record_step(rollout: Rollout, episode_id: str, action: str, answer: Step, stamp: Stamp) -> bool:
    """Add one step to the rollout and return whether the episode is over."""
    rollout.failure = (str(answer.info["failed"]) or "no reason given") if "failed" in answer.info else ""
    rollout.unparsable = bool(answer.info.get("unparsable"))
    has_answer = not (rollout.broken or rollout.unparsable)
    is_same = answer.state == rollout.trajectory.states[-1] and not answer.info.get("lost")
    rollout.idle.append(action == NO_ACTION or (has_answer and is_same))
    if not has_answer:
        return True
    history = rollout.trajectory
    transition = Transition(
        task_id=history.task.id,
        episode_id=episode_id,
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
        thought=rollout.thoughts[-1],
    )
    rollout.trajectory = history.with_step(transition)
    return answer.done
