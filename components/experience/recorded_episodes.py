"""Recorded real episodes dreamed once more, in two ways that ask the very same questions: for `dreamgym bench
dream`.

Each step's question is what the real episode's history, state and action make it, so both ways write behind
the same prompts, whatever they answered before. Greedy, and an answer that cannot be read is not asked for
again. Both retrieve the demonstrations, build the prompt, write, and read the answer: all that a dream does
for a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience.episodic_recall import recall
from components.experience.model import ExperienceModel, Query
from components.experience.prompts import OUTCOMES, growth, opening, parse_answer, turn
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.engines.plain_generate import choice_gap, plain_generate
from components.records import Trajectory, Transition

NEAR_TIE = 1e-3
"""Nats between two tokens below which rounding, which depends on the shape of a batch, may choose either."""

Written = dict[int, list[int]]
"""Row -> the tokens of its answer."""


class Dreamer(Protocol):
    """Dreams a batch of recorded episodes, all rows side by side, step after step."""

    def step(self, number: int) -> Written:
        """Answer step `number` (0, 1, 2 ...) of every episode that has one."""
        ...


def once_greedily(config: ExperienceModelConfig) -> ExperienceModelConfig:
    """`config` with one greedy try an answer, so that what is written depends on the prompt alone."""
    return config.model_copy(update={"resamples": 0})


class KeptDreamer:
    """Our way: the trunk of each episode stays in the cache, the branch of a step is rewound, finished rows
    are dropped.
    """

    def __init__(self, model: ExperienceModel, buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> None:
        self._buffer, self._episodes = buffer, episodes
        self._foresight = model.begin([episode.task for episode in episodes])

    def step(self, number: int) -> Written:
        """See `Dreamer.step`."""
        asked = under_way(self._episodes, number)
        self._foresight.predict(_queries(self._buffer, asked))
        self._foresight.advance({row: (step.action, step.next_state) for row, step in asked.items()})
        self._foresight.finish([row for row in asked if number + 1 == len(self._episodes[row].steps)])
        return {row: generation.tokens for row, generation in self._foresight.written.items()}


class PlainDreamer:
    """The common way: every step's prompt, trunk and branch, is built and computed anew by transformers'
    `generate`.
    """

    def __init__(self, model: ExperienceModel, buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> None:
        self._model, self._buffer, self._episodes = model, buffer, episodes
        self._stop = {model.vocabulary.marker_id(outcome) for outcome in OUTCOMES}
        self.prompts: dict[int, list[int]] = {}

    def step(self, number: int) -> Written:
        """See `Dreamer.step`; `prompts` holds the tokens that each row's answer was written behind."""
        return self._answer(number, under_way(self._episodes, number))

    def one(self, number: int, turn_taken: int) -> Written:
        """The same for a single one of the episodes that have a step `number`: one call of `generate` for one
        step.
        """
        asked = list(under_way(self._episodes, number).items())
        return self._answer(number, dict([asked[turn_taken % len(asked)]]))

    def _answer(self, number: int, asked: dict[int, Transition]) -> Written:
        self.prompts = {
            row: self._prompt(row, number, query) for row, query in _queries(self._buffer, asked).items()
        }
        model: Any = self._model.model
        written = plain_generate(
            model,
            list(self.prompts.values()),
            stop=self._stop,
            max_new_tokens=self._model.config.max_new_tokens,
        )
        for tokens in written:
            parse_answer(self._model.vocabulary.pieces(tokens), reasoning=self._model.config.reasoning)
        return dict(zip(asked, written, strict=True))

    def _prompt(self, row: int, number: int, query: Query) -> list[int]:
        """The whole prompt of step `number`: what the kept cache holds of it, and what it does not."""
        config, episode = self._model.config, self._episodes[row]
        before = episode.up_to(number if config.history else 0)
        grown = [piece for earlier in before.steps for piece in growth(earlier.action, earlier.next_state)]
        memories = recall([*before.states[:-1], query.state], query.action, config.recall)
        branch = turn(episode.task, query.state, query.action, query.demonstrations, memories)
        return self._model.vocabulary.encode([*opening(episode.task), *grown, *branch])


def differing(model: ExperienceModel, prompts: Written, ours: Written, plain: Written) -> int:
    """How many rows have another answer in `ours` than in `plain`, near ties of two tokens all of them.

    Raises:
        ExperienceModelError: an answer differs where the model itself does not waver.
    """
    rows = [row for row in plain if ours[row] != plain[row]]
    for row in rows:
        place = next(
            (at for at, pair in enumerate(zip(ours[row], plain[row], strict=False)) if pair[0] != pair[1]), -1
        )
        inner: Any = model.model
        gap = (
            math.inf
            if place < 0
            else choice_gap(inner, prompts[row] + plain[row][:place], plain[row][place], ours[row][place])
        )
        if gap > NEAR_TIE:
            text = model.vocabulary.decode(plain[row]), model.vocabulary.decode(ours[row])
            raise ExperienceModelError(
                f"Row {row}: plain generate writes {text[0]!r}, the kept cache {text[1]!r}, {gap:.2g} nats "
                f"apart at token {place}.",
                f"Expected the same tokens, but for near ties within {NEAR_TIE} nats.",
                f"Report the backbone's architecture ({inner.config.model_type}) and its config.json: the "
                "two ways of computing it differ.",
            )
    return len(rows)


def under_way(episodes: Sequence[Trajectory], number: int) -> dict[int, Transition]:
    """Row -> step `number` of its episode, of the episodes that have one."""
    return {row: episode.steps[number] for row, episode in enumerate(episodes) if number < len(episode.steps)}


def _queries(buffer: ReplayBuffer, asked: Mapping[int, Transition]) -> dict[int, Query]:
    steps = list(asked.values())
    found = buffer.retrieve([(step.state, step.action) for step in steps], [step.task_id for step in steps])
    return {
        row: Query(step.state, step.action, demos)
        for (row, step), demos in zip(asked.items(), found, strict=True)
    }
