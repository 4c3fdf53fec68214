"""Whether a policy would take the actions of recorded episodes, given their real histories.

It says how close a policy is to the agent of the logs. It does not say whether other actions would be worse.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.language.engines.engine_protocol import Session
from components.policy.policy import Policy
from components.records import Trajectory

ROWS = 64
"""Episodes that are read as one batch."""


def same_actions(policy: Policy, episodes: Sequence[Trajectory], seed: int = 0) -> list[list[bool]]:
    """Return, for each step of each episode, whether the policy's most probable reply has the logged action.

    Actions are equal if they are equal as the policy's text format writes and reads them.
    The policy reads the logged thoughts and actions before a step. Reading of an episode ends where the
    policy's longest sequence is full; the steps behind it have no value.
    """
    results: list[list[bool]] = []
    for start in range(0, len(episodes), ROWS):
        results += _read_batch(policy, episodes[start : start + ROWS], seed)
    return results


def _read_batch(policy: Policy, episodes: Sequence[Trajectory], seed: int) -> list[list[bool]]:
    text = policy.text
    session = policy.engine(seed).open(len(episodes))
    prompts = {
        row: text.opening(episode.task) + text.ask(episode.task) for row, episode in enumerate(episodes)
    }
    results: list[list[bool]] = [[] for _ in episodes]
    number = 0
    while prompts := {
        row: prompt for row, prompt in prompts.items() if _has_room(policy, session, row, prompt)
    }:
        ends = {row: session.lengths[row] + len(prompt) for row, prompt in prompts.items()}
        replies = session.generate(
            prompts, stop=text.stop, max_new_tokens=policy.max_new_tokens, temperature=0.0
        )
        policy.tokens += sum(len(reply.tokens) for reply in replies.values())
        session.rewind(ends)
        for row, reply in replies.items():
            step = episodes[row].steps[number]
            logged = text.reply(step.thought, step.action)
            results[row].append(text.parse(reply.tokens)[1] == (text.parse(logged)[1] or step.action))
            prompts[row] = logged + text.observation(step.next_state) + text.ask(episodes[row].task)
        number += 1
        prompts = {row: prompt for row, prompt in prompts.items() if number < len(episodes[row].steps)}
    return results


def _has_room(policy: Policy, session: Session, row: int, prompt: list[int]) -> bool:
    return len(prompt) + policy.max_new_tokens <= session.room(row)
