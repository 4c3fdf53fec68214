"""Training examples of the experience model: episodes with demonstrations, premises and task variations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from components.config import ExperienceModelConfig
from components.environments.capabilities import Adapter
from components.errors import DataError
from components.experience.formats.training_examples import (
    render_premise,
    render_trajectory,
    render_variation,
)
from components.experience.formats.world_format import WorldFormat
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.training.examples import Example
from components.records import Task, Trajectory
from components.trajectories.augmentation.corruption import corrupt_episodes
from components.trajectories.recording import with_reasoning

Item = TypeVar("Item")
VARIATION_DRAWS = 40
"""Instructions drawn for a task before its variations are taken as they are."""


def episodes_of_families(episodes: Iterable[Trajectory], families: Sequence[str]) -> Iterator[Trajectory]:
    """Yield the episodes whose task belongs to one of `families`; all episodes if no family is named."""
    return (episode for episode in episodes if not families or episode.task.family in families)


def select_episodes(
    episodes: Sequence[Trajectory], config: ExperienceModelConfig, seed: int
) -> list[Trajectory]:
    """The offline episodes that a model may learn from and retrieve: those of `behaviours`, at most
    `transitions` steps, made wrong where the config says so.

    The limit takes whole tasks, with all their episodes, in an order drawn from `seed`. So a smaller set is
    part of every larger one.

    Raises:
        DataError: no episode is left.
    """
    selected = [e for e in episodes if not config.behaviours or e.steps[0].behaviour in config.behaviours]
    if config.transitions:
        task_ids = list(dict.fromkeys(episode.task.id for episode in selected))
        random.Random(seed).shuffle(task_ids)
        selected = _first_tasks(selected, task_ids, config.transitions)
    if not selected:
        raise DataError(
            f"No offline episode is left of {len(episodes)} with behaviours {config.behaviours} and "
            f"{config.transitions} transitions.",
            "Expected at least one.",
            "Raise experience_model.transitions or name other behaviours.",
        )
    return corrupt_episodes(
        selected,
        flipped_outcomes=config.flipped_outcomes,
        swapped_states=config.swapped_states,
        seed=seed,
    )


def _first_tasks(
    episodes: Sequence[Trajectory], task_ids: Sequence[str], max_transitions: int
) -> list[Trajectory]:
    """The episodes of the first tasks, up to the task that would exceed `max_transitions`."""
    step_counts: dict[str, int] = {}
    for episode in episodes:
        step_counts[episode.task.id] = step_counts.get(episode.task.id, 0) + len(episode.steps)
    included: set[str] = set()
    total = 0
    for task_id in task_ids:
        total += step_counts[task_id]
        if total > max_transitions:
            break
        included.add(task_id)
    return [episode for episode in episodes if episode.task.id in included]


def repeat_evenly(items: Sequence[Item], passes: float, seed: int) -> list[Item]:
    """`passes` times as many items as there are, at least one: each item equally often, or once more.

    `seed` decides which items come once more, and the order.
    """
    rng = random.Random(seed)
    repeated = list[Item]()
    count = max(1, round(passes * len(items))) if items else 0
    while len(repeated) < count:
        repeated += rng.sample(items, min(len(items), count - len(repeated)))
    return repeated


def sample_training_episodes(
    episodes: Sequence[Trajectory], config: ExperienceModelConfig, seed: int
) -> list[Trajectory]:
    """The episodes of a training run: `epochs` times as many as there are.

    Each near-miss episode comes `near_miss_weight` times as often as another one; the total stays the same.
    """
    near_misses = [e for e in episodes if e.steps[0].behaviour == "near_miss"]
    others = [e for e in episodes if e.steps[0].behaviour != "near_miss"]
    passes = config.epochs * len(episodes) / (config.near_miss_weight * len(near_misses) + len(others))
    return repeat_evenly(near_misses, config.near_miss_weight * passes, seed) + repeat_evenly(
        others, passes, seed
    )


def transition_examples(
    text: WorldFormat,
    trajectories: Sequence[Trajectory],
    buffer: ReplayBuffer,
    config: ExperienceModelConfig,
    *,
    own: Callable[[str], str] = str,
) -> list[Example]:
    """One example an episode. The demonstrations of a step come from `buffer`, from other tasks than its own.

    Args: own: task id of a step -> id of the task that it counts as.
    """
    examples = []
    for trajectory in trajectories:
        queries = [(step.state, step.action) for step in trajectory.steps]
        demonstrations = buffer.retrieve(queries, [own(step.task_id) for step in trajectory.steps])
        examples.append(
            render_trajectory(
                text,
                trajectory,
                demonstrations,
                history=config.history,
                outcome_weight=config.outcome_weight,
            )
        )
    return examples


def assume_premises(
    episodes: Sequence[Trajectory], adapter: Adapter, seed: int, *, share: float = 0.5, taught: bool = True
) -> list[Trajectory]:
    """The episodes, a `share` of them conditioned on a premise as dreamed episodes are.

    The premise is the hidden state that the episode turned out to have. Its reasoning follows from it.

    Args: taught: the reasoning becomes the adapter's; False keeps the recorded one.
    """
    rng = random.Random(seed)
    results = []
    for episode in episodes:
        premise = adapter.premise(episode) if rng.random() < share else ""
        conditioned = replace(episode, premise=premise)
        if premise and taught:
            conditioned = with_reasoning(adapter, conditioned)
        results.append(conditioned)
    return results


def premise_examples(text: WorldFormat, episodes: Sequence[Trajectory], adapter: Adapter) -> list[Example]:
    """Examples of the hidden-state sampler: one for each episode that has shown its premise."""
    premises = [(episode.task, adapter.premise(episode)) for episode in episodes]
    return [render_premise(text, task, premise) for task, premise in premises if premise]


def variation_examples(
    text: WorldFormat,
    tasks: Sequence[Task],
    feasible: Callable[[Task], str],
    seed: int,
    *,
    count: int = 2,
) -> list[Example]:
    """Examples of the task generator: for each task, up to `count` instructions of other tasks that are
    feasible in its room.

    Args: feasible: task -> why it is not feasible; "" if it is.
    """
    rng = random.Random(seed)
    instructions = sorted({task.instruction for task in tasks})
    examples = []
    for task in tasks:
        variations = _feasible_instructions(task, instructions, feasible, rng, count)
        examples += [render_variation(text, task, instruction) for instruction in variations]
    return examples


def _feasible_instructions(
    task: Task,
    instructions: Sequence[str],
    feasible: Callable[[Task], str],
    rng: random.Random,
    count: int,
) -> list[str]:
    """Up to `count` different feasible instructions of at most `VARIATION_DRAWS` draws."""
    variations: list[str] = []
    for _ in range(VARIATION_DRAWS):
        instruction = rng.choice(instructions)
        is_new = instruction != task.instruction and instruction not in variations
        if is_new and not feasible(replace(task, instruction=instruction)):
            variations.append(instruction)
        if len(variations) == count:
            break
    return variations
