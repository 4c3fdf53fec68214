"""Hindsight relabelling: copies of episodes under an instruction that reverses their outcome.

Source: hindsight experience replay, arXiv 1707.01495.

In the logs most of what an agent achieved is also what its instruction asked for. A small experience model
then treats the two as the same, and grants success for whatever a policy completes. The page does not know
the instruction: the same submitted form is a success under the instruction that asks for its content, and a
failure under another one.

So each judged episode is copied under an instruction that reverses its outcome. The instruction is that of
another task of the family, or the task's own with one word or number changed. The adapter says what the
outcome would have been (`Judging`). It is trusted only for families in which it is right about every recorded
outcome.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from components.environments.capabilities import Adapter, Judging
from components.errors import ConfigError
from components.records import Task, Trajectory
from components.trajectories.augmentation.renaming import Names
from components.trajectories.recording import with_reasoning

HINDSIGHT_MARK = "~h"
"""Appended to the task id of a relabelled copy, before the number of the copy."""
MAX_ATTEMPTS = 24
"""Largest number of instructions that are tried for an episode."""
SIMILAR_TASKS = 8
"""Number of other tasks whose instructions are tried: those that share most words."""
OTHER_TASK_SHARE = 0.3
"""Share of attempts with another task's instruction, if the task's own can be changed as well."""
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def hindsight(episodes: Sequence[Trajectory], adapter: Adapter, copies: int, seed: int) -> list[Trajectory]:
    """Up to `copies` relabelled copies of each judged episode, each with an id of its own.

    Raises:
        ConfigError: `copies` is above 0, and the adapter cannot judge.
    """
    if not copies:
        return []
    if not isinstance(adapter, Judging):
        raise ConfigError(
            f"hindsight is {copies}, and the environment {adapter.name} does not say what the outcome of an "
            "episode under another instruction would be.",
            "Expected an adapter with `judged`, or 0.",
            "Set experience_model.hindsight=0, and hindsight: 0 in each entry of pretrain.phases.",
        )
    judged = [
        episode for episode in episodes if episode.steps[-1].done and adapter.judged(episode) is not None
    ]
    misjudged_families = {
        episode.task.family for episode in judged if adapter.judged(episode) != float(episode.success)
    }
    trusted = [episode for episode in judged if episode.task.family not in misjudged_families]
    names = Names.of(episodes)
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    similar_instructions = _similar_instructions(tasks)
    relabelled: list[Trajectory] = []
    for number in range(1, copies + 1):
        for episode in trusted:
            rng = random.Random(f"hindsight/{seed}/{number}/{episode.steps[0].episode_id}")
            instructions = _candidates(episode, names, similar_instructions[episode.task.id], rng)
            copy = _reverse_outcome(episode, adapter, instructions, f"{HINDSIGHT_MARK}{number}")
            if copy:
                relabelled.append(with_reasoning(adapter, copy))
    return relabelled


def is_hindsight_copy(task_id: str) -> bool:
    """True if a task id is that of a relabelled copy, with other names or not."""
    return re.search(rf"{HINDSIGHT_MARK}\d+(~\d+)*$", task_id) is not None


def _similar_instructions(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """Task id -> instructions of the `SIMILAR_TASKS` other tasks of its family that share most words."""
    words = {task.id: set(_WORD.findall(task.instruction)) for task in tasks}
    instructions = {}
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
        instructions[task.id] = [other.instruction for other in others[:SIMILAR_TASKS]]
    return instructions


def _reverse_outcome(
    episode: Trajectory, adapter: Judging, instructions: Iterator[str], mark: str
) -> Trajectory | None:
    """The episode under the first instruction that reverses its outcome; None if no attempt does."""
    reversed_reward = 0.0 if episode.success else 1.0
    for _, instruction in zip(range(MAX_ATTEMPTS), instructions, strict=False):
        task = replace(episode.task, id=episode.task.id + mark, instruction=instruction)
        steps = [
            replace(step, task_id=task.id, episode_id=step.episode_id + mark, reward=0.0)
            for step in episode.steps
        ]
        steps[-1] = replace(steps[-1], reward=reversed_reward)
        copy = replace(episode, task=task, steps=tuple(steps))
        if instruction != episode.task.instruction and adapter.judged(copy) == reversed_reward:
            return copy
    return None


def _candidates(
    episode: Trajectory, names: Names, others: Sequence[str], rng: random.Random
) -> Iterator[str]:
    """Endless instructions: one of `others`, or the episode's own with one name or number changed."""
    own = episode.task.instruction
    own_names = [word for word in _WORD.findall(own) if word.casefold() in names.of_task[episode.task.id]]
    own_numbers = _NUMBER.findall(own)
    other_numbers = [number for other in others for number in _NUMBER.findall(other)]
    texts = (*episode.states, *(step.action for step in episode.steps))
    page_words = sorted({word for text in texts for word in _WORD.findall(text)} - set(own_names))
    while others or own_names:
        draw = rng.random()
        if others and (draw < OTHER_TASK_SHARE or not (own_names or (own_numbers and other_numbers))):
            yield rng.choice(others)
        elif other_numbers and own_numbers and (not own_names or draw < 2 * OTHER_TASK_SHARE):
            yield _replace_word(own, rng.choice(own_numbers), rng.choice(other_numbers))
        else:
            word = rng.choice(own_names)
            yield _replace_word(own, word, rng.choice([*page_words, *3 * _misspellings(word)]))


def _replace_word(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![^\W_]){re.escape(old)}(?![^\W_])", lambda _: new, text, count=1)


def _misspellings(word: str) -> list[str]:
    """The word in other case, without its last letter, and with its last letter doubled."""
    return [
        other for other in (word.upper(), word.lower(), word[:-1], word + word[-1]) if other not in ("", word)
    ]
