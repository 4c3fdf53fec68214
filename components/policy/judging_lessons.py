"""Lessons in judging, from logged episodes with their outcome: what Meta-Rewarding starts from.

    judge's question about an episode              ->  No action is repeated in vain. The task was completed.
                                                       Points: 5
    its question about a right and a wrong review  ->  The first review tells the outcome right.
                                                       Better: A

A policy that has cloned an agent's replies answers no question any more. The paper begins with a model tuned
on human evaluations of answers (EFT data of arXiv 2401.10020); here the logged outcome takes their place.
The points follow from what any world can tell: 5 for a success, 1 for a failure, one less if the agent
repeats an action in the same state. Wrong reviews tell the other outcome.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from components.errors import ConfigError
from components.language.training.examples import Example, Segment
from components.policy.formats.agent_format import AgentFormat
from components.policy.rl.rewards.self_judge import comparison_prompt, judge_prompt
from components.records import Trajectory

SUCCESS_POINTS, FAILURE_POINTS = 5, 1
LESSONS_AN_EPISODE = 2
"""A judgement and a comparison."""


def judging_lessons(
    text: AgentFormat, episodes: Sequence[Trajectory], count: int, seed: int, longest: int
) -> list[Example]:
    """Return a judgement and a comparison of each of at most `count` episodes, drawn without replacement.

    As many successes as failures are drawn: of each outcome as many as the rarer one has, if there are both.
    Episodes without a known outcome teach nothing about judging, and are left out.
    Only the answers have a loss.

    Args:
        longest: most tokens of a lesson; an episode with a longer one is left out.

    Raises:
        ConfigError: the format has no questions in words.
    """
    if text.question("") is None:
        raise ConfigError(
            "cloning.judged_episodes is set, and a policy in the format compact cannot judge in words.",
            "Expected a chat model.",
            "Set cloning.judged_episodes=0, or backbone.path to a chat model, such as models/smollm2.",
        )
    rng = random.Random(f"judging/{seed}")
    outcomes = [[one for one in episodes if one.outcome is won] for won in (True, False)]
    each = min(count // 2, *map(len, outcomes)) or min(count, max(map(len, outcomes)))
    drawn = [one for kind in outcomes for one in rng.sample(kind, min(each, len(kind)))]
    lessons = []
    for episode in drawn[:count]:
        own = _lessons_of(text, episode, rng)
        lessons += own if all(len(one) <= longest for one in own) else []
    return lessons


def _lessons_of(text: AgentFormat, episode: Trajectory, rng: random.Random) -> list[Example]:
    """Return the judgement and the comparison."""
    right, wrong = review(episode, episode.success), review(episode, not episode.success)
    is_first = rng.random() < 0.5
    shown = (right, wrong) if is_first else (wrong, right)
    place, letter = ("first", "A") if is_first else ("second", "B")
    answer = f"The {place} review tells the outcome right.\nBetter: {letter}"
    return [
        _lesson(text, judge_prompt(text, episode), right),
        _lesson(text, comparison_prompt(text, episode, *shown), answer),
    ]


def review(episode: Trajectory, success: bool) -> str:
    """Return a review of an episode that says that it ended so."""
    repeats = repeats_in_vain(episode)
    points = (SUCCESS_POINTS if success else FAILURE_POINTS) - repeats
    return (
        f"{'An' if repeats else 'No'} action is repeated in vain. "
        f"The task was {'' if success else 'not '}completed.\nPoints: {points}"
    )


def repeats_in_vain(episode: Trajectory) -> bool:
    """Whether an action is taken again in a state where it was taken before."""
    states = [episode.task.initial_state, *(step.next_state for step in episode.steps)]
    taken = [(state, step.action) for state, step in zip(states, episode.steps, strict=False)]
    return len(set(taken)) < len(taken)


def _lesson(text: AgentFormat, prompt: list[int], answer: str) -> Example:
    reply = text.answer(answer)
    assert reply is not None, "the format has no questions"
    return Example([Segment(prompt, [False] * len(prompt)), Segment(reply, [True] * len(reply))])
