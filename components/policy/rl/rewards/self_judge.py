"""A policy judges its own episodes, and its own judgements: prompts, replies and ranking of Meta-Rewarding.

    score of an episode      mean of its judgements' points, 0 to 5
    B[m, n]                  sum of the weights of the comparisons that judgement m wins against n
    Elo of the judgements    maximum of the likelihood of B under P(m beats n) = e_m / (e_m + e_n)

A comparison is made in both orders. A win of the judgement shown first weighs as much as the share of all
wins that the second place has, and the reverse: what position alone decides cancels. The shares are those of
all comparisons of an iteration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean, pvariance

from components.language.engines.engine_protocol import Generation
from components.policy.formats.agent_format import AgentFormat
from components.policy.rollout import Rollout
from components.records import Trajectory

RUBRIC = (
    "You review the work of an agent. Give one point for each of these that holds: the actions serve the "
    "task; no action is repeated in vain; each action fits what was observed before; most of the task was "
    "done; the task was completed. Explain in one sentence. End with a last line: Points: <0 to 5>."
)
COMPARISON = (
    "Two reviews of the same work follow. Which one is right about the work and explains it better? Explain "
    "in one sentence. End with a last line: Better: A or Better: B."
)
PRIOR = 0.1
"""Weight of a drawn comparison that each pair is given: without it the likelihood of a judgement that always
wins has no maximum.
"""
ELO_ROUNDS = 200

Winners = Mapping[tuple[int, int], int | None]
"""(Judgement shown first, shown second) -> 0 if the first won, 1 if the second; None: no answer."""

_POINTS = re.compile(r"Points:\s*([0-5])\b(?!.*Points:)", re.DOTALL)
_BETTER = re.compile(r"Better:\s*([AB])\b(?!.*Better:)", re.DOTALL)


@dataclass(frozen=True)
class Judgement:
    """A reply of the judge.

    Args:
        prompt: tokens that it answers.
        reply: what was generated.
        text: the reply in words.
    """

    prompt: list[int]
    reply: Generation
    text: str

    @property
    def points(self) -> int | None:
        """The points that it names last, 0 to 5; None if it names none."""
        found = _POINTS.search(self.text)
        return int(found[1]) if found else None


@dataclass(frozen=True)
class JudgedEpisode:
    """An episode and its judgements."""

    rollout: Rollout
    judgements: list[Judgement]

    @property
    def readable(self) -> list[Judgement]:
        """The judgements that name points."""
        return [one for one in self.judgements if one.points is not None]

    @property
    def points(self) -> list[int]:
        """Those of the judgements that name any."""
        return [one.points for one in self.judgements if one.points is not None]

    @property
    def score(self) -> float | None:
        """Mean of the points; None if no judgement can be read."""
        return fmean(self.points) if self.points else None

    @property
    def dispute(self) -> float:
        """Variance of the points."""
        return pvariance(self.points) if self.points else 0.0


def transcript(episode: Trajectory) -> str:
    """Return the episode as a judge reads it: task, then each action and what it led to."""
    lines = [f"Task: {episode.task.instruction}", f"Observation: {episode.task.initial_state}"]
    for step in episode.steps:
        lines += [f"Action: {step.action}", f"Observation: {step.next_state}"]
    return "\n".join(lines)


def judge_prompt(text: AgentFormat, episode: Trajectory) -> list[int]:
    """Return the tokens that ask for a judgement of an episode."""
    return _question_tokens(text, f"{RUBRIC}\n\n{transcript(episode)}")


def comparison_prompt(text: AgentFormat, episode: Trajectory, first: str, second: str) -> list[int]:
    """Return the tokens that ask which of two judgements of an episode is better."""
    return _question_tokens(
        text, f"{COMPARISON}\n\n{transcript(episode)}\n\nReview A: {first}\n\nReview B: {second}"
    )


def _question_tokens(text: AgentFormat, question: str) -> list[int]:
    tokens = text.question(question)
    assert tokens is not None, "the format has no questions"
    return tokens


def read_winner(reply: str) -> int | None:
    """Return 0 if a comparison names A last, 1 if B; None if neither."""
    found = _BETTER.search(reply)
    return "AB".index(found[1]) if found else None


def position_weights(all_winners: Sequence[Winners]) -> tuple[float, float]:
    """Return the weight of a win of the judgement shown first, and of the one shown second.

    Each is the share of all wins that the other place has; 0 and 0 without a win.

    Args:
        all_winners: the comparisons of all episodes of an iteration; those of a single one are too few.
    """
    outcomes = [winner for winners in all_winners for winner in winners.values()]
    first_wins = outcomes.count(0)
    second_wins = outcomes.count(1)
    total = max(1, first_wins + second_wins)
    return second_wins / total, first_wins / total


def battle_matrix(count: int, winners: Winners, weights: tuple[float, float]) -> list[list[float]]:
    """Return B, [count][count].

    Args:
        weights: of a win of the first and of the second place (`position_weights`).
    """
    matrix = [[0.0] * count for _ in range(count)]
    for pair, winner in winners.items():
        if winner is not None:
            matrix[pair[winner]][pair[1 - winner]] += weights[winner]
    return matrix


def elo_scores(matrix: Sequence[Sequence[float]]) -> list[float]:
    """Return e of each judgement, with a sum of 1: Zermelo's iteration for the maximum of the likelihood."""
    count = len(matrix)
    scores = [1 / count] * count
    if count == 1:
        return scores
    wins = [sum(row) + PRIOR / 2 * (count - 1) for row in matrix]
    for _ in range(ELO_ROUNDS):
        scores = [
            wins[m]
            / sum(
                (matrix[m][n] + matrix[n][m] + PRIOR) / (scores[m] + scores[n])
                for n in range(count)
                if n != m
            )
            for m in range(count)
        ]
        total = sum(scores)
        scores = [score / total for score in scores]
    return scores


def ordered_pairs(count: int) -> list[tuple[int, int]]:
    """Return all ordered pairs of `count` judgements: each comparison in both orders."""
    return list(permutations(range(count), 2))
