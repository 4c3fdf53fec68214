"""The `self` teacher: a chat model's own reason for each recorded step, kept where it helps to predict.

    experience_model.teacher=self

The model that is to be fine-tuned reads a whole recorded step, the state after it included, and writes in one
sentence why the action leads there: rationalisation, as in STaR (arXiv 2203.14465). STaR keeps a rationale
whose answer is right. Here it is kept if the same model finds the recorded state and outcome likelier behind
it than without it. One that repeats the whole next state explains nothing, and is not kept. A step without a
kept reason gets an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from components.experience.formats.world_format import WorldFormat, recorded_answer
from components.language.compute import Compute
from components.language.engines.open_engine import open_engine
from components.language.training.examples import Example, Segment, collate
from components.language.training.token_scores import token_logprobs
from components.language.vocabulary.vocabulary import Vocabulary
from components.records import Task, Trajectory, Transition

VERSION = "rationale-1"
MAX_REASON_TOKENS = 48
ROWS = 32
"""Steps that are asked for, and scored, at the same time."""


@dataclass(frozen=True)
class Reasons:
    """What the model wrote.

    Attributes:
        kept: episode id -> a reason for each of its steps, "" where none was kept.
        tokens: that were generated.
    """

    kept: dict[str, list[str]]
    tokens: int


@dataclass(frozen=True)
class ReasonBatch:
    """Reasons of `ROWS` successive steps, "" where none was kept, and the number of tokens generated."""

    reasons: list[str]
    tokens: int


class SelfTeacher:
    """Writes and filters reasons with one model.

    Args:
        model: a causal language model, on the device that `compute` names.
        text: the format with reasoning that the experience model is trained in.
        without_reasoning: the same format without reasoning.
        longest_answer: most tokens of an answer, reason included.
    """

    def __init__(
        self,
        model: Any,
        vocabulary: Vocabulary,
        compute: Compute,
        text: WorldFormat,
        without_reasoning: WorldFormat,
        *,
        longest_answer: int,
        seed: int,
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._compute = compute
        self._text = text
        self._without = without_reasoning
        self._longest_answer = longest_answer
        self._seed = seed

    def teach(
        self,
        episodes: Sequence[Trajectory],
        progress: Callable[[int, int], None] = lambda done, of: None,
        *,
        finished: Sequence[ReasonBatch] = (),
        on_batch: Callable[[ReasonBatch], None] = lambda batch: None,
    ) -> Reasons:
        """A reason for each step of `episodes`, whose ids differ.

        A batch draws from a seed of its own. So an interrupted call goes on to the same reasons.

        Args:
            progress: called with the steps that are done and their number.
            finished: the first batches of an interrupted call with the same episodes, model and seed.
            on_batch: called with each further batch.

        Raises:
            ConfigError: the model's format is not for models that write.
        """
        steps = [(episode.task, step) for episode in episodes for step in episode.steps]
        batches = list(finished)
        for start in range(ROWS * len(batches), len(steps), ROWS):
            some = steps[start : start + ROWS]
            written, tokens = self._write(some, self._seed + start)
            batches.append(ReasonBatch(self._keep_helpful(some, written), tokens))
            on_batch(batches[-1])
            progress(start + len(some), len(steps))
        kept: dict[str, list[str]] = {}
        reasons = [reason for batch in batches for reason in batch.reasons]
        for (_, step), reason in zip(steps, reasons, strict=True):
            kept.setdefault(step.episode_id, []).append(reason)
        return Reasons(kept, sum(batch.tokens for batch in batches))

    def _write(self, steps: Sequence[tuple[Task, Transition]], seed: int) -> tuple[list[str], int]:
        """One reason a step, "" where none came to an end, and the number of tokens."""
        prompts = {row: self._text.reason_prompt(*step) for row, step in enumerate(steps)}
        engine = open_engine(self._model, self._vocabulary, self._compute, seed)
        session = engine.open(len(prompts), max(map(len, prompts.values())) + MAX_REASON_TOKENS)
        written = session.generate(
            prompts, stop=self._text.text_stop, max_new_tokens=MAX_REASON_TOKENS, temperature=1.0
        )
        texts = [self._text.parse_text(written[row].tokens) for row in prompts]
        return texts, sum(len(generation.tokens) for generation in written.values())

    def _keep_helpful(self, steps: Sequence[tuple[Task, Transition]], reasons: Sequence[str]) -> list[str]:
        """The reasons behind which the recorded answers are likelier; "" in place of the others."""
        tried = [row for row, reason in enumerate(reasons) if self._may_be_kept(steps[row][1], reason)]
        explained = [(steps[row][0], replace(steps[row][1], reasoning=reasons[row])) for row in tried]
        with_reason = self._logprobs(self._text, explained)
        without = self._logprobs(self._without, explained)
        helpful = {row for row, *both in zip(tried, with_reason, without, strict=True) if both[0] > both[1]}
        return [reason if row in helpful else "" for row, reason in enumerate(reasons)]

    def _may_be_kept(self, step: Transition, reason: str) -> bool:
        """False for no reason, a copy of the next state, and one that makes the answer too long."""
        if not reason or " ".join(step.next_state.split()) in " ".join(reason.split()):
            return False
        answer = self._text.answer(recorded_answer(replace(step, reasoning=reason)))
        return len(answer) <= self._longest_answer

    def _logprobs(self, text: WorldFormat, steps: Sequence[tuple[Task, Transition]]) -> list[float]:
        """The log-probability of each recorded state and outcome in this format, in nats."""
        if not steps:
            return []
        examples = [_example(text, task, step) for task, step in steps]
        batch = collate(examples, self._vocabulary.pad_id).to(str(self._model.device))
        with torch.no_grad(), self._compute.forward():
            tokens = token_logprobs(self._model, batch)
        sums = torch.zeros(len(examples), device=tokens.logprobs.device)
        return list(map(float, sums.index_add_(0, tokens.rows, tokens.logprobs.float())))


def _example(text: WorldFormat, task: Task, step: Transition) -> Example:
    """The step alone, with the recorded state and outcome as the tokens that are scored."""
    prompt = text.opening(task) + text.question(task, [step.state], step.action)
    answer = text.answer(recorded_answer(step))
    start = text.state_start(answer)
    scored = [False] * (len(prompt) + start) + [True] * (len(answer) - start)
    return Example([Segment(prompt + answer, scored)])
