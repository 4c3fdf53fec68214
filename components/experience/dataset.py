"""Training examples of the experience model: whole episodes with their demonstrations, and task
variations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from components.config import ExperienceModelConfig
from components.environments.protocol import Adapter
from components.errors import DataError
from components.experience.prompts import render_premise, render_trajectory, render_variation
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.tokenizer import Vocabulary
from components.language.training.examples import Example
from components.records import Task, Trajectory

Item = TypeVar("Item")


def of_families(episodes: Sequence[Trajectory], families: Sequence[str]) -> list[Trajectory]:
    """The episodes of tasks of some families; all of them if none is named."""
    return [episode for episode in episodes if not families or episode.task.family in families]


def chosen(episodes: Sequence[Trajectory], config: ExperienceModelConfig, seed: int) -> list[Trajectory]:
    """The offline episodes that the config lets a model learn from and retrieve: those of `behaviours`, at
    most `transitions` steps.

    A limit takes whole tasks, with all their episodes, in an order drawn from `seed`: a smaller set is part
    of every larger one.

    Raises:
        DataError: none is left.
    """
    kept = [e for e in episodes if not config.behaviours or e.steps[0].behaviour in config.behaviours]
    if config.transitions:
        names = list(dict.fromkeys(episode.task.id for episode in kept))
        random.Random(seed).shuffle(names)
        kept = _up_to(kept, names, config.transitions)
    if not kept:
        found = (
            f"No offline episode is left of {len(episodes)} with behaviours {config.behaviours} and "
            f"{config.transitions} transitions."
        )
        raise DataError(
            found, "Expected at least one.", "Raise experience_model.transitions or name other behaviours."
        )
    return kept


def _up_to(episodes: Sequence[Trajectory], tasks: Sequence[str], most: int) -> list[Trajectory]:
    """Episodes of the first tasks, until the next would exceed `most` transitions."""
    steps: dict[str, int] = {}
    for episode in episodes:
        steps[episode.task.id] = steps.get(episode.task.id, 0) + len(episode.steps)
    inside, total = set(), 0
    for task in tasks:
        total += steps[task]
        if total > most:
            break
        inside.add(task)
    return [episode for episode in episodes if episode.task.id in inside]


def drawn(items: Sequence[Item], passes: float, seed: int) -> list[Item]:
    """`passes` times as many of `items` as there are, at least one: each as often as every other, or once
    more; `seed` decides which.
    """
    rng, found, count = random.Random(seed), list[Item](), max(1, round(passes * len(items))) if items else 0
    while len(found) < count:
        found += rng.sample(items, min(len(items), count - len(found)))
    return found


def drawn_episodes(
    episodes: Sequence[Trajectory], config: ExperienceModelConfig, seed: int
) -> list[Trajectory]:
    """The episodes of a training run: `epochs` times as many as there are, those of near misses
    `near_miss_weight` times as often.
    """
    near = [e for e in episodes if e.steps[0].behaviour == "near_miss"]
    others = [e for e in episodes if e.steps[0].behaviour != "near_miss"]
    passes = config.epochs * len(episodes) / (config.near_miss_weight * len(near) + len(others))
    return drawn(near, config.near_miss_weight * passes, seed) + drawn(others, passes, seed)


def transition_examples(
    vocabulary: Vocabulary,
    trajectories: Sequence[Trajectory],
    buffer: ReplayBuffer,
    config: ExperienceModelConfig,
    *,
    own: Callable[[str], str] = str,
) -> list[Example]:
    """One example an episode; each step's demonstrations come from other tasks in `buffer` than `own(the
    step's task)`.
    """
    examples = []
    for trajectory in trajectories:
        queries = [(step.state, step.action) for step in trajectory.steps]
        demonstrations = buffer.retrieve(queries, [own(step.task_id) for step in trajectory.steps])
        examples.append(
            render_trajectory(
                vocabulary,
                trajectory,
                demonstrations,
                history=config.history,
                recalled=config.recall,
                reasoning=config.reasoning,
            )
        )
    return examples


def with_premises(
    episodes: Sequence[Trajectory], adapter: Adapter, seed: int, *, share: float = 0.5, taught: bool = True
) -> list[Trajectory]:
    """A `share` of the episodes told as dreams are: with the premise that they turned out to have, and the
    reasoning that follows from it.

    Args: taught: the adapter's reasoning is learnt; False keeps the one recorded.
    """
    rng, told = random.Random(seed), []
    for episode in episodes:
        premise = adapter.premise(episode) if rng.random() < share else ""
        assumed = replace(episode, premise=premise)
        if premise and taught:
            reasons = [
                adapter.reason(assumed.up_to(step.step), step.action, step.next_state, step.reward)
                for step in episode.steps
            ]
            assumed = replace(
                assumed,
                steps=tuple(
                    replace(s, reasoning=reason) for s, reason in zip(episode.steps, reasons, strict=True)
                ),
            )
        told.append(assumed)
    return told


def premise_examples(
    vocabulary: Vocabulary, episodes: Sequence[Trajectory], adapter: Adapter
) -> list[Example]:
    """What a dream begins with: one example an episode that has shown its premise."""
    premises = [(episode.task, adapter.premise(episode)) for episode in episodes]
    return [render_premise(vocabulary, task, premise) for task, premise in premises if premise]


def variation_examples(
    vocabulary: Vocabulary,
    tasks: Sequence[Task],
    feasible: Callable[[Task], str],
    seed: int,
    *,
    count: int = 2,
) -> list[Example]:
    """For each task, up to `count` instructions of other tasks that would make sense in its room, as
    `feasible` judges.
    """
    rng = random.Random(seed)
    instructions = sorted({task.instruction for task in tasks})
    examples = []
    for task in tasks:
        fitting: list[str] = []
        for _ in range(40):
            other = rng.choice(instructions)
            if (
                other != task.instruction
                and other not in fitting
                and not feasible(replace(task, instruction=other))
            ):
                fitting.append(other)
            if len(fitting) == count:
                break
        examples += [render_variation(vocabulary, task, other) for other in fitting]
    return examples
