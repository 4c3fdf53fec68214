"""Episodes told again under another instruction, under which they end otherwise (hindsight, as in arXiv
1707.01495).

In the logs most that was got is what was wanted, so a small experience model learns to say the one for the
other and grants whatever a policy brings to its end. The page does not know what was wanted: the same form,
sent, is a success under the instruction that asks for what stands in it, and a failure under another. Here
each judged episode is told under one that turns its outcome: that of another task of the family, or its own
with a word or a number changed. What an episode would have been is said by the adapter (`Judging`), whose
judgement is only trusted for families in which it is right about every recorded end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from components.environments.protocol import Adapter, Judging
from components.errors import ConfigError
from components.records import Task, Trajectory
from components.trajectories.augmentation.renaming import Names

MARK = "~h"
"""Stands at the end of the id of a task that is told under another instruction, before the number of the
copy.
"""
TRIED = 24
"""Instructions that are tried for an episode, at most."""
NEAREST = 8
"""Other tasks whose instructions are tried, those that share most words."""
OF_OTHERS = 0.3
"""Share of tries with another task's instruction, where the task's own may be changed as well."""
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def hindsight(episodes: Sequence[Trajectory], adapter: Adapter, copies: int, seed: int) -> list[Trajectory]:
    """Up to `copies` of each judged episode under an instruction that turns its outcome; each of a copy has
    an id of its own.

    Raises:
        ConfigError: copies are asked for, and the adapter does not judge.
    """
    if not copies:
        return []
    if not isinstance(adapter, Judging):
        given = (
            f"hindsight is {copies}, and the environment {adapter.name} does not say what an episode "
            "would have been."
        )
        raise ConfigError(
            given,
            "Expected an adapter with `judged`, or 0.",
            "Set experience_model.hindsight=0 and pretrain.hindsight=0.",
        )
    judged = [
        episode for episode in episodes if episode.steps[-1].done and adapter.judged(episode) is not None
    ]
    wrong = {episode.task.family for episode in judged if adapter.judged(episode) != float(episode.success)}
    names = Names.of(episodes)
    nearest, found = (
        _nearest(list({episode.task.id: episode.task for episode in episodes}.values())),
        list[Trajectory](),
    )
    for number in range(1, copies + 1):
        for episode in (episode for episode in judged if episode.task.family not in wrong):
            rng = random.Random(f"hindsight/{seed}/{number}/{episode.steps[0].episode_id}")
            told = _turned(
                episode,
                adapter,
                _candidates(episode, names, nearest[episode.task.id], rng),
                f"{MARK}{number}",
            )
            found += [_explained(told, adapter)] if told else []
    return found


def in_hindsight(task_id: str) -> bool:
    """True of the id of a task that is told under another instruction, in other names too or not."""
    return re.search(rf"{MARK}\d+(~\d+)*$", task_id) is not None


def _nearest(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """Task -> instructions of the `NEAREST` others of its family that share most words with its own."""
    words = {task.id: set(_WORD.findall(task.instruction)) for task in tasks}
    found = {}
    for task in tasks:
        others = [
            other for other in tasks if other.family == task.family and other.instruction != task.instruction
        ]
        others.sort(
            key=lambda other: (
                -len(words[task.id] & words[other.id]) / len(words[task.id] | words[other.id]),
                other.id,
            )
        )
        found[task.id] = [other.instruction for other in others[:NEAREST]]
    return found


def _turned(
    episode: Trajectory, adapter: Judging, instructions: Iterator[str], mark: str
) -> Trajectory | None:
    """The episode under the first instruction that turns its outcome."""
    wanted = 0.0 if episode.success else 1.0
    for _, instruction in zip(range(TRIED), instructions, strict=False):
        task = replace(episode.task, id=episode.task.id + mark, instruction=instruction)
        steps = [
            replace(step, task_id=task.id, episode_id=step.episode_id + mark, reward=0.0)
            for step in episode.steps
        ]
        steps[-1] = replace(steps[-1], reward=wanted)
        told = replace(episode, task=task, steps=tuple(steps))
        if instruction != episode.task.instruction and adapter.judged(told) == wanted:
            return told
    return None


def _explained(told: Trajectory, adapter: Adapter) -> Trajectory:
    """The episode with the reasoning that its instruction leads to."""
    reasons = [
        adapter.reason(told.up_to(step.step), step.action, step.next_state, step.reward)
        for step in told.steps
    ]
    return replace(
        told,
        steps=tuple(
            replace(step, reasoning=reason) for step, reason in zip(told.steps, reasons, strict=True)
        ),
    )


def _candidates(
    episode: Trajectory, names: Names, others: Sequence[str], rng: random.Random
) -> Iterator[str]:
    """Endless instructions: one of `others`, or the episode's own with one name or number in it changed."""
    own = episode.task.instruction
    said = [word for word in _WORD.findall(own) if word.casefold() in names.own[episode.task.id]]
    numbers, elsewhere = (
        _NUMBER.findall(own),
        [number for other in others for number in _NUMBER.findall(other)],
    )
    seen = sorted(
        {
            word
            for text in (*episode.states, *(s.action for s in episode.steps))
            for word in _WORD.findall(text)
        }
        - set(said)
    )
    while others or said:
        luck = rng.random()
        if others and (luck < OF_OTHERS or not (said or (numbers and elsewhere))):
            yield rng.choice(others)
        elif elsewhere and numbers and (not said or luck < 2 * OF_OTHERS):
            yield _exchanged(own, rng.choice(numbers), rng.choice(elsewhere))
        else:
            word = rng.choice(said)
            yield _exchanged(own, word, rng.choice([*seen, *3 * _misread(word)]))


def _exchanged(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![^\W_]){re.escape(old)}(?![^\W_])", lambda _: new, text, count=1)


def _misread(word: str) -> list[str]:
    """The word in other case, without its last letter, and with it twice."""
    return [
        other for other in (word.upper(), word.lower(), word[:-1], word + word[-1]) if other not in ("", word)
    ]
