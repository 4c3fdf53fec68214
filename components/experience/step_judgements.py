"""How well the experience model agrees with the real environment: single steps on real histories.

Each real transition is predicted from its real history, with demonstrations from the buffer, and held against
what the real environment answered: the text, the facts it asserts, the reward. Nothing here trains the model
or enters the buffer. `components/evaluation/metrics/fidelity_metrics.py` turns the judgements into metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.environments.protocol import Adapter, Fact
from components.experience.model import ExperienceModel, Query
from components.experience.prompts import Answer
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.records import Trajectory, Transition


@dataclass(frozen=True)
class Judgement:
    """One predicted transition beside the real one.

    `claims` are the facts that the prediction asserts, `right` those that the real state asserts too,
    `truths` those of the real state, `contradicted` the claims that it denies; `incoherent` says that the
    prediction contradicts its own history. `changed` counts the facts that the real step changed; `revealing`
    says that the history could not determine the outcome. `unseen` says that no training task plays in its
    world, `refused` that the real world did not carry the action out, `malformed` that it is no command at
    all. Rewards are 0 or 1.

    For the axes (`components/evaluation/metrics/judge_axes.py`): `predicted_changed` counts the facts that
    the prediction changed, `same_event` says that both report the same kind of event (a failure, something
    taken), and `contradicted_sure` counts the contradicted claims about what every state tells in one word
    (the place, the hand), which no step has to reveal.
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


def measure(
    model: ExperienceModel,
    buffer: ReplayBuffer,
    adapter: Adapter,
    episodes: Sequence[Trajectory],
    *,
    rows: int = 64,
) -> list[Judgement]:
    """Judgements of every transition of `episodes`, in order of the batches they were predicted in."""
    judgements: list[Judgement] = []
    for start in range(0, len(episodes), rows):
        judgements += _measure_batch(model, buffer, adapter, episodes[start : start + rows])
    return judgements


def _measure_batch(
    model: ExperienceModel, buffer: ReplayBuffer, adapter: Adapter, episodes: Sequence[Trajectory]
) -> list[Judgement]:
    foresight = model.begin([episode.task for episode in episodes])
    judgements = []
    for step in range(max(len(episode.steps) for episode in episodes)):
        rows = [row for row, episode in enumerate(episodes) if step < len(episode.steps)]
        real = {row: episodes[row].steps[step] for row in rows}
        demos = buffer.retrieve(
            [(real[row].state, real[row].action) for row in rows], [real[row].task_id for row in rows]
        )
        answers = foresight.predict(
            {
                row: Query(real[row].state, real[row].action, found)
                for row, found in zip(rows, demos, strict=True)
            }
        )
        judgements += [judge(adapter, episodes[row].up_to(step), real[row], answers[row]) for row in rows]
        foresight.advance({row: (real[row].action, real[row].next_state) for row in rows})
        foresight.finish([row for row in rows if step + 1 == len(episodes[row].steps)])
    return judgements


def judge(adapter: Adapter, history: Trajectory, real: Transition, answer: Answer | None) -> Judgement:
    """Hold one answer against the real transition that followed `history`."""
    truth = adapter.facts(Trajectory(history.task, (*history.steps, real)))
    before = adapter.facts(history)
    predicted = answer.state if answer else ""
    claims = (
        adapter.facts(Trajectory(history.task, (*history.steps, _with_state(real, predicted))))
        if answer
        else set()
    )
    sure = _told(before) & _told(truth)
    return Judgement(
        transition=real,
        predicted=predicted,
        parsed=answer is not None,
        exact=answer is not None and answer.state == real.next_state,
        claims=len(claims),
        right=len(claims & truth),
        truths=len(truth),
        contradicted=sum(adapter.contradicts(claim, truth) for claim in claims),
        incoherent=answer is not None and bool(adapter.contradiction(history, predicted)),
        changed=len({fact for fact in truth - before if fact[0] != "event"}),
        revealing=adapter.revealing(history, real.action, real.next_state),
        unseen=adapter.unseen(history.task),
        refused=adapter.refused(real.next_state),
        malformed=not adapter.well_formed(real.action),
        reward=real.reward,
        predicted_reward=answer.reward if answer else 0.0,
        reasoning=answer.reasoning if answer else "",
        predicted_changed=len({fact for fact in claims - before if fact[0] != "event"}),
        same_event=_events(claims) == _events(truth),
        contradicted_sure=sum(adapter.contradicts(claim, truth) for claim in claims if claim[0] in sure),
    )


def _events(facts: set[Fact]) -> set[Fact]:
    return {fact for fact in facts if fact[0] == "event"}


def _told(facts: set[Fact]) -> set[str]:
    """The kinds of facts that name one value and nothing else, such as ("at", "fridge 1")."""
    kinds = [fact[0] for fact in facts]
    return {fact[0] for fact in facts if len(fact) == 2 and kinds.count(fact[0]) == 1}


def _with_state(real: Transition, state: str) -> Transition:
    return Transition(**{**real.__dict__, "next_state": state})
