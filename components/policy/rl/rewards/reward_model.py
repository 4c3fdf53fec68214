"""A reward model that is learnt from recorded outcomes, for HERO (arXiv 2510.07242).

    loss = mean over the states of an episode of -log p(its outcome | task, actions and states so far)

It is a copy of the policy with one more output: the probability that the episode succeeds, after each state.
The score of an episode is that after its last state. HERO ranks episodes of the same outcome by it, in place
of the progress that an adapter counts.

    dreamgym retrain rl.algorithm.reward=hero_learnt rl.algorithm.scale_rewards=false

Deviation from the paper: its reward model is AceMath-7B-RM, a pretrained one for answers in mathematics, and
far larger. Ours learns from the outcomes of the logs alone, and from no measure of progress: that a failure
scores higher than another only says that its states are more like those of successes. `LogTraining.auc` says
whether it tells logged successes from failures of tasks that it was not trained on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from components.errors import DataError
from components.language.torch_seeds import torch_seed
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs
from components.policy.formats.agent_format import AgentFormat
from components.policy.formats.demonstrations import without_loss
from components.policy.policy import Policy
from components.policy.rl.log_probabilities import pack_by_length
from components.policy.rl.preferences import area_under_curve
from components.records import Trajectory

LEARNING_RATE = 3e-4
EPOCHS = 2
STEP_TOKENS = 4096
"""Tokens of an optimiser step."""
HELD_OUT_TASKS = 5
"""The episodes of one in so many tasks are not trained on, but scored for `LogTraining.auc`."""


@dataclass(frozen=True)
class LogTraining:
    """What a training on logs was, and how good the model is.

    Attributes:
        losses: of each optimiser step, in nats a state.
        auc: share of the held-out (success, failure) pairs whose success scores higher; a tie counts one
            half. NaN without such a pair.
        held_out: number of episodes that were not trained on.
    """

    losses: list[float]
    auc: float
    held_out: int


class RewardModel:
    """Estimates whether an episode succeeds; see the module. It begins as a copy of `policy`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy.frozen_copy()
        self.head = torch.nn.Linear(policy.model.config.hidden_size, 1).to(policy.model.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def learn_from_logs(self, episodes: Sequence[Trajectory], seed: int) -> LogTraining:
        """Train on recorded episodes of a known outcome, without those of some tasks, and score these.

        Raises:
            DataError: all known outcomes are the same, or none is known.
        """
        outcomes = Counter(one.outcome for one in episodes)
        unknown = outcomes.pop(None, 0)
        if len(outcomes) < 2:
            kind = "succeeded" if outcomes[True] else "failed"
            raise DataError(
                f"All {outcomes.total()} logged episodes that reward: hero_learnt would learn from {kind}, "
                f"and {unknown} have no known outcome.",
                "Expected successes and failures among the episodes of cloning.behaviours.",
                "Set cloning.behaviours to behaviours that have both, or rl.algorithm.reward=hero, whose "
                "score is the adapter's progress.",
            )
        judged = [one for one in episodes if one.outcome is not None]
        trained, held_out = split_by_task(judged, seed)
        losses = self.learn(trained, seed)
        auc = area_under_curve([(self.score(one), one.success) for one in held_out])
        return LogTraining(losses, auc, len(held_out))

    def learn(self, episodes: Sequence[Trajectory], seed: int) -> list[float]:
        """Train on recorded episodes and return the loss of each optimiser step, in nats a state."""
        model = self._policy.model.requires_grad_(True)
        weights = [*model.parameters(), *self.head.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.0)
        examples = [(_judged(self._policy.text, one), float(one.success)) for one in episodes]
        generator = torch.Generator().manual_seed(torch_seed(seed))
        losses = []
        for _ in range(EPOCHS):
            shuffled = [examples[i] for i in torch.randperm(len(examples), generator=generator).tolist()]
            for rows in _steps([len(example) for example, _ in shuffled]):
                losses.append(self._add_gradient([shuffled[row] for row in rows]))
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        model.requires_grad_(False)
        return losses

    def _add_gradient(self, batch: Sequence[tuple[Example, float]]) -> float:
        """Add the gradient of the batch's mean loss, and return that loss."""
        states = sum(_count_states(example) for example, _ in batch)
        total = 0.0
        with self._policy.compute.training(self._policy.model):
            for rows in pack_by_length([len(example) for example, _ in batch], STEP_TOKENS):
                logits = self._logits([batch[row][0] for row in rows])
                outcomes = [batch[row][1] for row in rows for _ in range(_count_states(batch[row][0]))]
                targets = torch.tensor(outcomes).to(logits)
                loss = binary_cross_entropy_with_logits(logits, targets, reduction="sum") / states
                loss.backward()
                total += float(loss.detach())
        return total

    def _logits(self, examples: Sequence[Example]) -> Tensor:
        """Return the logit of success after each state of each episode, fp32 [states]."""
        policy = self._policy
        batch = collate(examples, policy.vocabulary.pad_id).to(policy.model.device)
        with policy.compute.forward():
            hidden = token_logprobs(policy.model, batch, with_hidden=True).hidden
        assert hidden is not None
        logits: Tensor = self.head(hidden.float())[:, 0]
        return logits

    def score(self, episode: Trajectory) -> float:
        """Return the estimated probability that the episode succeeds, after its last state."""
        with torch.no_grad():
            return float(torch.sigmoid(self._logits([_judged(self._policy.text, episode)])[-1]))


def split_by_task(episodes: Sequence[Trajectory], seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """Return the episodes to train on, and those of one in HELD_OUT_TASKS tasks.

    None is held out if the others would all have one outcome.
    """
    names = sorted({one.task.id for one in episodes})
    held_out_names = set(random.Random(f"reward-model/{seed}").sample(names, len(names) // HELD_OUT_TASKS))
    trained = [one for one in episodes if one.task.id not in held_out_names]
    if len({one.success for one in trained}) < 2:
        return list(episodes), []
    return trained, [one for one in episodes if one.task.id in held_out_names]


def _judged(text: AgentFormat, episode: Trajectory) -> Example:
    """Return the episode with a flag on the first token of each question: what stands there has seen a state.

    The question after the last state is added.
    """
    ask = text.ask(episode.task)
    flagged = Segment(ask, [True] + [False] * (len(ask) - 1))
    segments = [without_loss(text.opening(episode.task)), flagged]
    for step in episode.steps:
        reply = text.reply(step.thought, step.action)
        segments += [without_loss(reply + text.observation(step.next_state)), flagged]
    return Example(segments)


def _count_states(example: Example) -> int:
    return sum(segment.predicted for segment in example.segments)


def _steps(lengths: Sequence[int]) -> list[list[int]]:
    """Return the rows of each optimiser step, of at least STEP_TOKENS tokens but for the last."""
    steps: list[list[int]] = [[]]
    tokens = 0
    for row, length in enumerate(lengths):
        if tokens >= STEP_TOKENS:
            steps.append([])
            tokens = 0
        steps[-1].append(row)
        tokens += length
    return steps
