"""Recorded real episodes, dreamed again in ways that answer the same questions (`dreamgym bench dream`).

The question of a step comes from the history, state and action of the recorded episode. So all ways decode
behind the same prompts, whatever they answered before. Answers are greedy, and an unparsable one is not
sampled again. All ways retrieve the demonstrations, build the prompt, decode, and parse the answer: all that
a dream does for a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from components.config import ExperienceModelConfig
from components.errors import ExperienceModelError
from components.experience.decoding.prediction_batch import Query
from components.experience.formats.world_format import recorded_answer
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.engines.plain_generate import choice_gap, plain_generate
from components.records import Trajectory, Transition

NEAR_TIES = {"fp32": 1e-3, "bf16": 0.15}
"""Precision -> difference in nats below which rounding, which depends on the shape of a batch, may choose
either token.
"""

AnswerTokens = dict[int, list[int]]
"""Row -> tokens of its answer."""


class Dreamer(Protocol):
    """Dreams a batch of recorded episodes, one row each, step by step."""

    def step(self, number: int) -> AnswerTokens:
        """Answer step `number` (0, 1, 2 ...) of every episode that has one."""
        ...


def with_single_greedy_try(config: ExperienceModelConfig) -> ExperienceModelConfig:
    """`config` with one greedy try an answer, so that an answer depends on its prompt alone."""
    return config.model_copy(update={"resamples": 0})


class EngineDreamer:
    """The way of the dream: the trunk of an episode stays in the engine, the branch of a step is rewound, and
    finished rows are dropped.
    """

    def __init__(self, model: ExperienceModel, buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> None:
        self._buffer = buffer
        self._episodes = episodes
        self._batch = model.begin([episode.task for episode in episodes])

    def step(self, number: int) -> AnswerTokens:
        """See `Dreamer.step`."""
        steps = _steps_at(self._episodes, number)
        self._batch.predict(_queries(self._buffer, steps))
        self._batch.advance({row: (step.action, step.next_state) for row, step in steps.items()})
        self._batch.finish([row for row in steps if number + 1 == len(self._episodes[row].steps)])
        return {row: generation.tokens for row, generation in self._batch.written.items()}


Complete = Callable[[Sequence[list[int]]], list[list[int]]]
"""The greedy continuation of each prompt, all prompts in one call."""


class WholePromptDreamer:
    """The common way: one call takes the whole prompt, trunk and branch, of every row in each step.

    `prompts` holds row -> the tokens of its last prompt.

    Args:
        complete: writes the answers; None: transformers' `generate`.
    """

    def __init__(
        self,
        model: ExperienceModel,
        buffer: ReplayBuffer,
        episodes: Sequence[Trajectory],
        complete: Complete | None = None,
    ) -> None:
        self._complete = complete or partial(
            plain_generate, model.model, stop=model.text.stop, max_new_tokens=model.config.max_new_tokens
        )
        self._model = model
        self._buffer = buffer
        self._episodes = episodes
        self.prompts: dict[int, list[int]] = {}

    def step(self, number: int) -> AnswerTokens:
        """See `Dreamer.step`."""
        return self._answer(number, _steps_at(self._episodes, number))

    def one(self, number: int, turn_taken: int) -> AnswerTokens:
        """The same for one episode: one call of `generate` for one step.

        Args: turn_taken: selects the episode among those that have a step `number`.
        """
        steps = list(_steps_at(self._episodes, number).items())
        return self._answer(number, dict([steps[turn_taken % len(steps)]]))

    def _answer(self, number: int, steps: Mapping[int, Transition]) -> AnswerTokens:
        self.prompts = {
            row: self._prompt(row, number, query) for row, query in _queries(self._buffer, steps).items()
        }
        written = self._complete(list(self.prompts.values()))
        for tokens in written:
            self._model.text.parse(tokens)
        return dict(zip(steps, written, strict=True))

    def _prompt(self, row: int, number: int, query: Query) -> list[int]:
        """The whole prompt of step `number`: trunk and branch."""
        text, episode = self._model.text, self._episodes[row]
        past = episode.up_to(number if self._model.config.history else 0)
        trunk = text.opening(episode.task)
        for step in past.steps:
            states = past.up_to(step.step).states
            trunk += text.growth(episode.task, states, step.action, recorded_answer(step))
        states = [*past.states[:-1], query.state]
        return trunk + text.question(episode.task, states, query.action, query.demonstrations)


def count_differing_answers(
    model: ExperienceModel, prompts: AnswerTokens, ours: AnswerTokens, plain: AnswerTokens
) -> int:
    """The number of rows whose answers differ between `ours` and `plain`, all of them at a near tie.

    Raises:
        ExperienceModelError: an answer differs where two tokens are further apart than `NEAR_TIES` allows.
    """
    rows = [row for row in plain if ours[row] != plain[row]]
    for row in rows:
        _require_near_tie(model, row, prompts[row], ours[row], plain[row])
    return len(rows)


def _require_near_tie(
    model: ExperienceModel, row: int, prompt: list[int], ours: list[int], plain: list[int]
) -> None:
    """Raise ExperienceModelError if the first tokens that differ are no near tie."""
    place = next((at for at, pair in enumerate(zip(ours, plain, strict=False)) if pair[0] != pair[1]), -1)
    inner: Any = model.model
    gap = math.inf if place < 0 else choice_gap(inner, prompt + plain[:place], plain[place], ours[place])
    tolerance = NEAR_TIES[model.compute.precision]
    if gap > tolerance:
        raise ExperienceModelError(
            f"Row {row}: plain generate writes {model.vocabulary.decode(plain)!r}, the kept cache "
            f"{model.vocabulary.decode(ours)!r}, {gap:.2g} nats apart at token {place}.",
            f"Expected the same tokens, except near ties within {tolerance} nats.",
            f"Report the backbone's architecture ({inner.config.model_type}) and its config.json: the two "
            "ways of computing it differ.",
        )


def _steps_at(episodes: Sequence[Trajectory], number: int) -> dict[int, Transition]:
    """Row -> step `number` of its episode, for the episodes that have one."""
    return {row: episode.steps[number] for row, episode in enumerate(episodes) if number < len(episode.steps)}


def _queries(buffer: ReplayBuffer, steps: Mapping[int, Transition]) -> dict[int, Query]:
    """Row -> the question that its recorded step asks, with demonstrations of other tasks."""
    demonstrations = buffer.retrieve(
        [(step.state, step.action) for step in steps.values()], [step.task_id for step in steps.values()]
    )
    return {
        row: Query(step.state, step.action, step_demonstrations)
        for (row, step), step_demonstrations in zip(steps.items(), demonstrations, strict=True)
    }
