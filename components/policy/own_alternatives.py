"""Alternatives that the policy's own chat model proposes, for Early Experience (arXiv 2510.08558).

    dreamgym retrain cloning.early_experience=own_reflection

As in the paper, alternatives are sampled from the initial policy: before it is cloned, at temperature 1, with
the prompt that it acts with. It reads the demonstration up to the state, and replies as in an episode. Of a
reply only the action is used. An alternative has the form of the world's actions, possible or not, and
differs from the demonstrated action and from the other alternatives. A reply that was cut gives none.

Deviation from the paper: a model that seldom writes such an action yields fewer than K in `MAX_SAMPLES`
replies. `early_experience.explore` then fills up from the admissible actions; `count_origins` counts both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from components.language.engines.engine_protocol import Session
from components.policy.early_experience import ExploredEpisode, action_key
from components.policy.policy import Policy
from components.records import Trajectory, Transition

MAX_SAMPLES = 8
"""Replies that are sampled at a state, at most."""
ROWS = 64
"""Episodes whose replies are sampled as one batch."""
OWN_STREAM = 500_009
"""Added to the seed: reflections, which have the same one, are sampled with other random numbers."""


@dataclass(frozen=True)
class OwnAlternatives:
    """What the model proposed.

    Attributes:
        actions: per episode and step, distinct alternatives in the order in which they were sampled.
        tokens: number of tokens that were generated.
    """

    actions: list[list[list[str]]]
    tokens: int


@dataclass(frozen=True)
class _Sampling:
    """How replies are sampled: alternatives a state, the world's grammar, and tokens a reply."""

    count: int
    well_formed: Callable[[str], bool]
    max_new_tokens: int


def own_alternatives(
    policy: Policy,
    episodes: Sequence[Trajectory],
    count: int,
    well_formed: Callable[[str], bool],
    max_new_tokens: int,
    seed: int,
) -> OwnAlternatives:
    """Return up to `count` alternatives to each action of each episode.

    States behind which the policy's longest sequence has no room for a reply have none.

    Args:
        policy: before it is cloned.
        well_formed: whether an action follows the grammar of the world.
        max_new_tokens: longest reply, in tokens.
        seed: of sampling.
    """
    sampling = _Sampling(count, well_formed, max_new_tokens)
    actions: list[list[list[str]]] = []
    tokens = 0
    for start in range(0, len(episodes), ROWS):
        new_actions, new_tokens = _sample_batch(
            policy, episodes[start : start + ROWS], sampling, seed + OWN_STREAM + start
        )
        actions += new_actions
        tokens += new_tokens
    return OwnAlternatives(actions, tokens)


def count_origins(
    explored: Sequence[ExploredEpisode], proposals: Sequence[Sequence[Sequence[str]]]
) -> tuple[int, int]:
    """Return the number of executed alternatives that the model sampled, and of those filled up.

    Args:
        proposals: per episode and step, what the model sampled.
    """
    is_sampled = [
        action in step_proposals
        for entry, episode_proposals in zip(explored, proposals, strict=True)
        for alternatives, step_proposals in zip(entry.alternatives, episode_proposals, strict=True)
        for action, _ in alternatives
    ]
    return sum(is_sampled), len(is_sampled) - sum(is_sampled)


def _sample_batch(
    policy: Policy, episodes: Sequence[Trajectory], sampling: _Sampling, seed: int
) -> tuple[list[list[list[str]]], int]:
    """Return the alternatives per episode and step, and the number of tokens."""
    text = policy.text
    session = policy.engine(seed).open(len(episodes))
    actions = [[list[str]() for _ in episode.steps] for episode in episodes]
    prompts = {row: text.opening(episode.task) for row, episode in enumerate(episodes)}
    tokens = number = 0
    while prompts := {
        row: prompt
        for row, prompt in prompts.items()
        if len(prompt) + len(text.ask(episodes[row].task)) + sampling.max_new_tokens <= session.room(row)
    }:
        session.append(prompts)
        steps = {row: episodes[row].steps[number] for row in prompts}
        asks = {row: text.ask(episodes[row].task) for row in prompts}
        sampled, new_tokens = _sample_at_step(policy, session, steps, asks, sampling)
        tokens += new_tokens
        for row, row_actions in sampled.items():
            actions[row][number] = row_actions
        number += 1
        prompts = {
            row: asks[row] + text.reply(step.thought, step.action) + text.observation(step.next_state)
            for row, step in steps.items()
            if number < len(episodes[row].steps)
        }
    return actions, tokens


def _sample_at_step(
    policy: Policy,
    session: Session,
    steps: Mapping[int, Transition],
    asks: Mapping[int, list[int]],
    sampling: _Sampling,
) -> tuple[dict[int, list[str]], int]:
    """Return the alternatives by row, and the number of tokens. The rows are as long as before afterwards."""
    lengths = {row: session.lengths[row] for row in steps}
    taken = {row: {action_key(step.action)} for row, step in steps.items()}
    actions = {row: list[str]() for row in steps}
    tokens = 0
    for _ in range(MAX_SAMPLES):
        replies = session.generate(
            {row: ask for row, ask in asks.items() if len(actions[row]) < sampling.count},
            stop=policy.text.stop,
            max_new_tokens=sampling.max_new_tokens,
            temperature=1.0,
        )
        session.rewind({row: lengths[row] for row in replies})
        for row, reply in replies.items():
            tokens += len(reply.tokens)
            action = policy.text.parse(reply.tokens)[1] if reply.stopped else ""
            if action and action_key(action) not in taken[row] and sampling.well_formed(action):
                taken[row].add(action_key(action))
                actions[row].append(action)
    return actions, tokens
