"""Meta-Rewarding: the policy acts, judges its episodes and judges its judgements (arXiv 2407.19594).

    -log sigmoid(beta (log pi(w) - log ref(w) - log pi(l) + log ref(l)))       on pairs of both kinds

    dreamgym retrain rl.algorithm.type=meta_rewarding cloning.judged_episodes=60 backbone.path=models/smollm2

1. Acting. Each episode of a task is judged `judgements` times; its score is the mean of their points. With
   rho = `LENGTH_TOLERANCE`: w is the shortest episode that scores at least (1 - rho) max + rho min, l the
   longest that scores at most (1 - rho) min + rho max.
2. Judging. Of the episode whose judgements vary most, all ordered pairs of judgements are compared. w has the
   highest Elo, l the lowest (`self_judge.py`).

The outcome of an episode is not read: the policy trains its own grader. `judge_auc` says whether it is one.
An episode to whose last step the dream gave no valid answer is in no pair.

Deviations from the paper:
1. Episodes of a world take the place of answers to prompts, the policy's system turn that of a judge's.
2. A win weighs as much as the share of the other place in the wins of the iteration's comparisons. The paper
   also weighs by the counts of wins by position; its closed form is not known to us.
3. Acting pairs and judging pairs are trained on together in each iteration. No pair is left out for the
   length of a judgement.
4. The reference is the initial policy.
5. rho is the same in all iterations. The paper has 0 in its first of four, 0.32 in the next two, 0.4 in the
   last. Lengths are tokens that the policy wrote; the paper's are characters.
6. There are 5 judgements of an episode by default (`judgements`); the paper has 11. Episodes, judgements and
   comparisons are sampled at `rl.temperature`, 1.0 by default, without top-p; the paper has 0.8 and 0.95.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from components.config.algorithm_config import MetaRewardingConfig
from components.config.rl_config import RLConfig
from components.errors import ConfigError, TrainingError
from components.language.engines.engine_protocol import Generation
from components.language.training.examples import Example, Segment
from components.policy.policy import Policy
from components.policy.rl.algorithms.dpo import PreferenceLoss
from components.policy.rl.preferences import area_under_curve, preference_samples
from components.policy.rl.reference import Reference
from components.policy.rl.rewards.self_judge import (
    JudgedEpisode,
    Judgement,
    Winners,
    battle_matrix,
    comparison_prompt,
    elo_scores,
    judge_prompt,
    ordered_pairs,
    position_weights,
    read_winner,
)
from components.policy.rl.training_sample import TrainingSample
from components.policy.rollout import Rollout

MAX_NEW_TOKENS = 96
"""Longest judgement in tokens."""
ROWS = 64
"""Most judgements that are written at once."""
LENGTH_TOLERANCE = 0.32
"""rho: how far below the best score the shortest episode may be chosen, and how far above the worst the
longest rejected, as a share of their distance. The paper's value in its second and third iteration.
"""
EQUAL = 1e-9
"""Difference of two Elo scores that counts as none."""


class MetaRewarding(PreferenceLoss):
    """Meta-Rewarding; see the module."""

    def __init__(self, config: RLConfig, options: MetaRewardingConfig) -> None:
        super().__init__(options.beta)
        self.config = config
        self.options = options
        self._reference: Reference | None = None
        self._seed = 0
        self._report: dict[str, float] = {}

    def start(self, policy: Policy, config: RLConfig) -> None:
        """Copy the initial policy as reference.

        Raises:
            ConfigError: the policy's format has no questions in words.
        """
        if policy.text.question("") is None:
            raise ConfigError(
                "rl.algorithm.type is meta_rewarding; a policy in the format compact cannot judge in words.",
                "Expected a chat model.",
                "Set backbone.path to a chat model, such as models/smollm2.",
            )
        self._reference = Reference(policy, config.temperature, config.batch_tokens)

    def training_samples(self, groups: Sequence[list[Rollout]], policy: Policy) -> list[TrainingSample]:
        """Return pairs of episodes and pairs of judgements, with the reference's log-probabilities.

        Raises:
            TrainingError: no judgement can be read.
        """
        judged = self._judge(policy, groups)
        if any(judged) and not any(one.points for group in judged for one in group):
            raise TrainingError(
                f"None of the {sum(map(len, judged)) * self.options.judgements} judgements names its points.",
                "Expected a policy that can judge its episodes.",
                "Set cloning.judged_episodes=60, so that the clone learns to judge logged episodes.",
            )
        acting = [pair for group in judged if (pair := acting_pair(group, LENGTH_TOLERANCE))]
        answered = [[one for one in group if not one.rollout.unparsable] for group in judged]
        disputed = [max(group, key=lambda one: one.dispute) for group in answered if group]
        compared = [(one, self._compare(policy, one)) for one in disputed if one.dispute]
        weights = position_weights([winners for _, winners in compared])
        judging = [pair for one, winners in compared if (pair := judging_pair(one, winners, weights))]
        self._report = _judge_figures([one for group in judged for one in group])
        self._report |= {"acting_pairs": float(len(acting)), "judging_pairs": float(len(judging))}
        pairs = [*acting, *judging]
        if not pairs:
            return []
        assert self._reference is not None
        return preference_samples(pairs, self._reference)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches of judgements so far: it seeds the next one."""
        return {"judged_batches": self._seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._seed = state["judged_batches"]

    def report(self) -> dict[str, float]:
        """Return figures of the last `training_samples`.

        `judged_share`: of the episodes; `judge_auc`: area under the ROC curve of the score for the outcome,
        NaN if all ended alike; `acting_pairs` and `judging_pairs`: their numbers.
        """
        return dict(self._report)

    def _judge(self, policy: Policy, groups: Sequence[list[Rollout]]) -> list[list[JudgedEpisode]]:
        """Return each group with the judgements of its episodes."""
        count = self.options.judgements
        prompts = [judge_prompt(policy.text, one.trajectory) for group in groups for one in group]
        written = iter(self._ask(policy, [prompt for prompt in prompts for _ in range(count)]))
        return [
            [JudgedEpisode(one, [next(written) for _ in range(count)]) for one in group] for group in groups
        ]

    def _ask(self, policy: Policy, prompts: Sequence[list[int]]) -> list[Judgement]:
        """Return the policy's reply to each prompt; one that does not fit has an empty reply."""
        replies: list[Judgement] = []
        for start in range(0, len(prompts), ROWS):
            self._seed += 1
            batch = prompts[start : start + ROWS]
            session = policy.engine(self._seed).open(len(batch))
            fitting = {
                row: prompt
                for row, prompt in enumerate(batch)
                if len(prompt) + MAX_NEW_TOKENS < session.room(row)
            }
            written = session.generate(
                fitting,
                stop=policy.text.stop,
                max_new_tokens=MAX_NEW_TOKENS,
                temperature=self.config.temperature,
            )
            session.drop(range(len(batch)))
            for row, prompt in enumerate(batch):
                reply = written.get(row, Generation())
                policy.tokens += len(reply.tokens)
                text = policy.text.parse(reply.tokens)[0] if reply.tokens else ""
                replies.append(Judgement(prompt, reply, text))
        return replies

    def _compare(self, policy: Policy, judged: JudgedEpisode) -> Winners:
        """Return the winner of each comparison of two readable judgements of an episode, in both orders."""
        readable = judged.readable
        pairs = ordered_pairs(len(readable))
        episode = judged.rollout.trajectory
        prompts = [
            comparison_prompt(policy.text, episode, readable[first].text, readable[second].text)
            for first, second in pairs
        ]
        replies = self._ask(policy, prompts)
        return {pair: read_winner(reply.text) for pair, reply in zip(pairs, replies, strict=True)}


def judging_pair(
    judged: JudgedEpisode, winners: Winners, weights: tuple[float, float]
) -> tuple[Rollout, Rollout] | None:
    """Return the judgements of the highest and of the lowest Elo as rollouts; None if all are equal.

    Args:
        winners: of the comparisons of its readable judgements.
        weights: of wins by position, see `position_weights`.
    """
    readable = judged.readable
    scores = elo_scores(battle_matrix(len(readable), winners, weights))
    if max(scores) - min(scores) < EQUAL:
        return None
    best, worst = scores.index(max(scores)), scores.index(min(scores))
    return _as_rollout(judged.rollout, readable[best]), _as_rollout(judged.rollout, readable[worst])


def acting_pair(group: Sequence[JudgedEpisode], length_tolerance: float) -> tuple[Rollout, Rollout] | None:
    """Return the chosen and the rejected episode of a task; None if all scores are equal."""
    scored = [
        (one.rollout, one.score) for one in group if one.score is not None and not one.rollout.unparsable
    ]
    values = [score for _, score in scored]
    if not values or max(values) == min(values):
        return None
    low, high, rho = min(values), max(values), length_tolerance
    good = [one for one, score in scored if score >= (1 - rho) * high + rho * low]
    bad = [one for one, score in scored if score <= (1 - rho) * low + rho * high]
    return min(good, key=lambda one: one.token_count), max(bad, key=lambda one: one.token_count)


def _as_rollout(rollout: Rollout, judgement: Judgement) -> Rollout:
    """Return a judgement as a rollout of the judged episode: its prompt was read, its reply written."""
    prompt, reply = judgement.prompt, judgement.reply
    example = Example(
        [Segment(prompt, [False] * len(prompt)), Segment(reply.tokens, [True] * len(reply.tokens))]
    )
    return replace(rollout, example=example, logprobs=reply.logprobs, idle=[False])


def _judge_figures(judged: Sequence[JudgedEpisode]) -> dict[str, float]:
    scored = [(one.score, one.rollout.reward > 0.5) for one in judged if one.score is not None]
    share = len(scored) / len(judged) if judged else 0.0
    return {"judged_share": share, "judge_auc": area_under_curve(scored)}
