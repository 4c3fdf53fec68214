"""How well the experience model agrees with the real environment: single steps on real histories.

Each real transition is predicted from its real history, with demonstrations from the buffer, and compared
with the real answer: its text, its facts, its reward. What is compared is the model's greedy answer. Of the
answer that RL would get (checked, and sampled where the history leaves it open) state and reward are compared
too: a judgement's `answered`, `used_exact` and `used_reward`. Nothing here trains the model or enters the
buffer.
`components/evaluation/metrics/fidelity_metrics.py` turns the judgements into metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from components.environments.capabilities import Adapter
from components.environments.protocol import Fact
from components.experience.decoding.prediction_batch import Query, confidence_of
from components.experience.dreaming_model import DreamingModel, EpisodeBatch
from components.experience.formats.world_format import Answer
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.state_comparison import common_word_count, normalised_words
from components.records import Trajectory, Transition


@dataclass(frozen=True)
class Judgement:
    """One predicted transition compared with the real one.

    Attributes:
        parsed: the prediction is an answer.
        exact: both states are the same text.
        claims: number of facts that the prediction asserts.
        right: claims that the real state asserts too.
        truths: facts of the real state.
        contradicted: claims that the real state contradicts.
        incoherent: the prediction contradicts its own history.
        changed: facts that the real step changed.
        revealing: the history could not determine the outcome.
        unseen: no training task plays in this world.
        refused: the real world did not carry out the action.
        malformed: the action is no command of the world.
        reward, predicted_reward: 0 or 1.
        same_words: both states have the same words in order, apart from case, punctuation and articles.
        common_words, words: words that both states have, and words of both together.
        confidence: probability that the model gives to its whole answer, token by token; NaN: not recorded.
            Not compared, since other rows of a batch change its last digits.
        answered, used_exact, used_reward: of the answer as the dream uses it, whether there is one (None: not
            recorded), whether its state is the real text, and its reward. Not compared, since what is sampled
            depends on the other rows of a batch.

    For the axes (`components/evaluation/metrics/judge_axes.py`):
        predicted_changed: facts that the prediction changed.
        same_event: both report the same kind of event (a failure, something taken).
        contradicted_sure: contradicted claims about what every state tells in one word (the place, the hand),
            which no step has to reveal.
    """

    transition: Transition
    predicted: str
    parsed: bool
    exact: bool
    claims: int
    right: int
    truths: int
    contradicted: int
    incoherent: bool
    changed: int
    revealing: bool
    unseen: bool
    refused: bool
    malformed: bool
    reward: float
    predicted_reward: float
    reasoning: str = ""
    predicted_changed: int = 0
    same_event: bool = True
    contradicted_sure: int = 0
    same_words: bool = False
    common_words: int = 0
    words: int = 0
    confidence: float = field(default=math.nan, compare=False)
    answered: bool | None = field(default=None, compare=False)
    used_exact: bool = field(default=False, compare=False)
    used_reward: float = field(default=0.0, compare=False)


def judge_predictions(
    model: DreamingModel,
    buffer: ReplayBuffer,
    adapter: Adapter,
    episodes: Sequence[Trajectory],
    *,
    rows: int = 64,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Judgement]:
    """Predict and judge every transition of `episodes`, in batches of `rows` episodes, step by step.

    Args: progress: called with the steps that are judged and their number.
    """
    judgements: list[Judgement] = []
    total = sum(len(episode.steps) for episode in episodes)
    for start in range(0, len(episodes), rows):
        for some in _judge_batch(model, buffer, adapter, episodes[start : start + rows]):
            judgements += some
            progress(len(judgements), total)
    return judgements


def _judge_batch(
    model: DreamingModel, buffer: ReplayBuffer, adapter: Adapter, episodes: Sequence[Trajectory]
) -> Iterator[list[Judgement]]:
    """Yield the judgements of one step of all episodes after the other."""
    batch = model.begin([episode.task for episode in episodes])
    for number in range(max(len(episode.steps) for episode in episodes)):
        steps = {
            row: episode.steps[number] for row, episode in enumerate(episodes) if number < len(episode.steps)
        }
        demonstrations = buffer.retrieve(
            [(step.state, step.action) for step in steps.values()],
            [step.task_id for step in steps.values()],
        )
        queries = {
            row: Query(step.state, step.action, step_demonstrations)
            for (row, step), step_demonstrations in zip(steps.items(), demonstrations, strict=True)
        }
        histories = {row: episodes[row].up_to(number) for row in steps}
        used = batch.predict(
            queries,
            partial(_is_coherent, adapter, histories) if model.config.coherent else None,
            partial(_is_undetermined, adapter, histories, queries),
        )
        yield [
            replace(
                judge_answer(adapter, histories[row], step, batch.unchecked[row]),
                confidence=_confidence(batch, row),
                **_as_used(step, used[row]),
            )
            for row, step in steps.items()
        ]
        batch.advance({row: (step.action, step.next_state) for row, step in steps.items()})
        batch.finish([row for row in steps if number + 1 == len(episodes[row].steps)])


def _is_coherent(adapter: Adapter, histories: Mapping[int, Trajectory], row: int, answer: Answer) -> bool:
    return not adapter.contradiction(histories[row], answer.state)


def _is_undetermined(
    adapter: Adapter,
    histories: Mapping[int, Trajectory],
    queries: Mapping[int, Query],
    row: int,
    answer: Answer,
) -> bool:
    return adapter.revealing(histories[row], queries[row].action, answer.state)


def _as_used(real: Transition, answer: Answer | None) -> dict[str, Any]:
    """Return the fields of a judgement on the answer that RL would get."""
    return {
        "answered": answer is not None,
        "used_exact": answer is not None and answer.state == real.next_state,
        "used_reward": answer.reward if answer else 0.0,
    }


def _confidence(batch: EpisodeBatch, row: int) -> float:
    """Return the probability of the row's greedy answer; NaN if the model does not tell it."""
    written = batch.greedy.get(row)
    return math.nan if written is None else confidence_of(written)


def judge_answer(adapter: Adapter, history: Trajectory, real: Transition, answer: Answer | None) -> Judgement:
    """Compare one answer with the real transition that followed `history`."""
    truth = adapter.facts(history.with_step(real))
    facts_before = adapter.facts(history)
    predicted = answer.state if answer else ""
    claims = adapter.facts(history.with_step(replace(real, next_state=predicted))) if answer else set()
    contradicted = [claim for claim in claims if adapter.contradicts(claim, truth)]
    predicted_words, real_words = normalised_words(predicted), normalised_words(real.next_state)
    sure_kinds = _single_valued_kinds(facts_before) & _single_valued_kinds(truth)
    return Judgement(
        transition=real,
        predicted=predicted,
        parsed=answer is not None,
        exact=answer is not None and answer.state == real.next_state,
        claims=len(claims),
        right=len(claims & truth),
        truths=len(truth),
        contradicted=len(contradicted),
        incoherent=answer is not None and bool(adapter.contradiction(history, predicted)),
        changed=_count_state_facts(truth - facts_before),
        revealing=adapter.revealing(history, real.action, real.next_state),
        unseen=adapter.unseen(history.task),
        refused=adapter.refused(real.next_state),
        malformed=not adapter.well_formed(real.action),
        reward=real.reward,
        predicted_reward=answer.reward if answer else 0.0,
        reasoning=answer.reasoning if answer else "",
        predicted_changed=_count_state_facts(claims - facts_before),
        same_event=_events(claims) == _events(truth),
        contradicted_sure=sum(claim[0] in sure_kinds for claim in contradicted),
        same_words=answer is not None and predicted_words == real_words,
        common_words=common_word_count(predicted_words, real_words),
        words=len(predicted_words) + len(real_words),
    )


def _count_state_facts(facts: set[Fact]) -> int:
    """Number of facts that are no events."""
    return sum(fact[0] != "event" for fact in facts)


def _events(facts: set[Fact]) -> set[Fact]:
    return {fact for fact in facts if fact[0] == "event"}


def _single_valued_kinds(facts: set[Fact]) -> set[str]:
    """The kinds of facts that name one value and nothing else, such as ("at", "fridge 1")."""
    kinds = [fact[0] for fact in facts]
    return {fact[0] for fact in facts if len(fact) == 2 and kinds.count(fact[0]) == 1}
