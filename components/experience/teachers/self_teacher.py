"""The `self` teacher: a chat model's own reason for each recorded step, kept where it helps to predict.

    experience_model.teacher=self

The model that is to be fine-tuned reads a whole recorded step, the state after it included, and writes in one
sentence why the action leads there: rationalisation, as in STaR (arXiv 2203.14465). STaR keeps a rationale
whose answer is right. Here it is kept if the same model finds the recorded state and outcome likelier behind
it than without it. One that repeats the whole next state explains nothing, and is not kept. A step without a
kept reason gets an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
class Rationalised:
    """Episodes with the reasons that were kept.

    Attributes:
        asked: steps.
        kept: of them, those with a reason.
        tokens: that were generated.
    """

    episodes: list[Trajectory]
    asked: int
    kept: int
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
        self, episodes: Sequence[Trajectory], progress: Callable[[int, int], None] = lambda done, of: None
    ) -> Rationalised:
        """The episodes with a reason for each step, "" where none was kept.

        Args: progress: called with the steps that are done and their number.

        Raises:
            ConfigError: the model's format is not for models that write.
        """
        steps = [(episode.task, step) for episode in episodes for step in episode.steps]
        reasons: list[str] = []
        tokens = 0
        for number, part in enumerate(_parts(steps, ROWS)):
            written, count = self._write(part, self._seed + number)
            reasons += self._kept(part, written)
            tokens += count
            progress(len(reasons), len(steps))
        given = iter(reasons)
        taught = [
            replace(episode, steps=tuple(replace(step, reasoning=next(given)) for step in episode.steps))
            for episode in episodes
        ]
        return Rationalised(taught, len(steps), sum(map(bool, reasons)), tokens)

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

    def _kept(self, steps: Sequence[tuple[Task, Transition]], reasons: Sequence[str]) -> list[str]:
        """The reasons behind which the recorded answers are likelier; "" in place of the others."""
        candidates = [
            replace(step, reasoning="" if _is_copy(reason, step) else reason)
            for (_, step), reason in zip(steps, reasons, strict=True)
        ]
        answers = [self._text.answer(recorded_answer(step)) for step in candidates]
        tried = [
            row
            for row, (step, answer) in enumerate(zip(candidates, answers, strict=True))
            if step.reasoning and len(answer) <= self._longest_answer
        ]
        pairs = [
            (
                self._example(self._text, steps[row][0], candidates[row]),
                self._example(self._without, steps[row][0], candidates[row]),
            )
            for row in tried
        ]
        scores = self._scores([example for pair in pairs for example in pair])
        kept = {row for place, row in enumerate(tried) if scores[2 * place] > scores[2 * place + 1]}
        return [step.reasoning if row in kept else "" for row, step in enumerate(candidates)]

    def _example(self, text: WorldFormat, task: Task, step: Transition) -> Example:
        """The step alone, with the recorded state and outcome as the tokens that are scored."""
        prompt = text.opening(task) + text.question(task, [step.state], step.action)
        answer = text.answer(recorded_answer(step))
        start = text.state_start(answer)
        scored = [False] * (len(prompt) + start) + [True] * (len(answer) - start)
        return Example([Segment(prompt + answer, scored)])

    def _scores(self, examples: Sequence[Example]) -> list[float]:
        """The log-probability of each example's scored tokens, in nats."""
        scores: list[float] = []
        for part in _parts(examples, ROWS):
            batch = collate(part, self._vocabulary.pad_id).to(str(self._model.device))
            with torch.no_grad(), self._compute.forward():
                tokens = token_logprobs(self._model, batch)
            sums = torch.zeros(len(part), device=tokens.logprobs.device)
            scores += sums.index_add_(0, tokens.rows, tokens.logprobs.float()).tolist()
        return scores


def _is_copy(reason: str, step: Transition) -> bool:
    """True if a reason contains the whole next state, word for word."""
    return " ".join(step.next_state.split()) in " ".join(reason.split())


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
