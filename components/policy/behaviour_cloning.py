"""Behaviour cloning (Pomerleau 1989, NIPS): supervised fine-tuning on recorded episodes.

    -log pi(thought, action | history)          mean over tokens

    dreamgym retrain cloning.demonstrations=200 cloning.behaviours='[expert, noisy]'

The episodes are expert demonstrations or other recorded behaviours. The thoughts are those that the behaviour
itself wrote (`Transition.thought`); a step without one is imitated without.

With `advantage_temperature` as many episodes are drawn, with replacement, each with a probability
proportional to

    exp((R - mean R of the task's episodes) / advantage_temperature), at most MAX_WEIGHT

That is advantage-weighted regression (Peng et al. 2019, arXiv 1910.00177, Algorithm 1) for whole episodes.
The logs have no value function: the mean return of a task's episodes takes its place. Drawing replaces a
weight in the loss, because batches hold episodes of similar length, mostly of one outcome, and each update is
a mean over a batch.

Deviation from common practice: training stops early on purpose. A policy that is cloned to a loss near zero
no longer explores. All rollouts of a task then end alike, and RL has no learning signal.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from components.config.cloning_config import CloningConfig
from components.config.lora_config import LoraConfig
from components.language.adapters import add_lora
from components.language.training.examples import Example
from components.language.training.fine_tuning import OnFigures, OnStep, supervised_finetune
from components.language.training.training_run import TrainingRecord
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.records import Trajectory

MAX_WEIGHT = 20.0
"""The largest weight of an episode, as in the source."""
WORLD_SHARE = 0.5
"""Largest share of the tokens of a training on world modelling (Early Experience)."""


def clone(
    policy: Policy,
    demonstrations: Sequence[Trajectory],
    config: CloningConfig,
    seed: int,
    checkpoint: Path | None = None,
    *,
    world: Sequence[Example] = (),
    reflections: Sequence[Sequence[str]] = (),
    lessons: Sequence[Example] = (),
    lora: LoraConfig = LoraConfig(),
    on_figures: OnFigures | None = None,
    on_world_figures: OnFigures | None = None,
    on_world_record: Callable[[TrainingRecord], None] | None = None,
    progress: Callable[[float], OnStep] | None = None,
) -> TrainingRecord:
    """Train `policy` in place and return the record of the training on demonstrations.

    Args:
        checkpoint: path of the checkpoint of an interrupted training; None: no checkpoint.
        world: examples of the states that actions lead to (`early_experience.py`). They are trained on first,
            for one epoch or `WORLD_SHARE` of all tokens, whichever is less.
        reflections: per demonstration, other thoughts; with them the demonstration becomes a second example.
            With these or `world` as many tokens are trained on as without: there are fewer epochs.
        lessons: further examples of replies (`judging_lessons.py`), mixed with the demonstrations.
        lora: adapters that are trained instead of all weights.
        on_figures: called after each update on the demonstrations.
        on_world_figures: called after each update on `world`.
        on_world_record: called with the record of the training on `world`.
        progress: returns a callback for the updates of a training of that many tokens.
    """
    if config.advantage_temperature:
        weights = advantage_weights(demonstrations, config.advantage_temperature)
        if len(set(weights)) > 1:
            demonstrations = random.Random(seed).choices(demonstrations, weights, k=len(demonstrations))
    examples = [render_demonstration(policy.text, episode) for episode in demonstrations]
    if reflections:
        examples += [
            render_demonstration(policy.text, episode, thoughts=thoughts)
            for episode, thoughts in zip(demonstrations, reflections, strict=True)
        ]
    policy.model = add_lora(
        policy.model, lora, added=policy.vocabulary.added, seed=seed, frozen=policy.compute.frozen
    )
    tokens = config.epochs * count_tokens(examples[: len(demonstrations)])
    epochs = config.epochs
    if world:
        world_epochs = min(1.0, WORLD_SHARE * tokens / count_tokens(world))
        tokens -= world_epochs * count_tokens(world)
        world_checkpoint = checkpoint.with_name("world-" + checkpoint.name) if checkpoint else None
        record = _train(
            policy, world, config, world_epochs, seed, world_checkpoint, on_world_figures, progress
        )
        if on_world_record:
            on_world_record(record)
    if world or reflections:
        epochs = tokens / count_tokens(examples)
    return _train(policy, [*examples, *lessons], config, epochs, seed, checkpoint, on_figures, progress)


def count_tokens(examples: Sequence[Example]) -> int:
    """Return the number of tokens of all examples."""
    return sum(map(len, examples))


def advantage_weights(episodes: Sequence[Trajectory], temperature: float) -> list[float]:
    """Return the weight of each episode: exp(advantage / temperature), at most `MAX_WEIGHT`.

    An episode without a known outcome has no return: its advantage is 0, and it is not in the mean.
    """
    returns: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.outcome is not None:
            returns[episode.task.id].append(float(episode.outcome))
    baselines = {task: sum(values) / len(values) for task, values in returns.items()}
    advantages = [
        0.0 if episode.outcome is None else episode.outcome - baselines[episode.task.id]
        for episode in episodes
    ]
    return [math.exp(min(math.log(MAX_WEIGHT), advantage / temperature)) for advantage in advantages]


def _train(
    policy: Policy,
    examples: Sequence[Example],
    config: CloningConfig,
    epochs: float,
    seed: int,
    checkpoint: Path | None,
    on_figures: OnFigures | None,
    progress: Callable[[float], OnStep] | None,
) -> TrainingRecord:
    return supervised_finetune(
        policy.model,
        examples,
        epochs=epochs,
        learning_rate=config.learning_rate,
        batch_tokens=config.batch_tokens,
        seed=seed,
        optimizer="adamw",
        checkpoint=checkpoint,
        compute=policy.compute,
        on_step=progress(epochs * count_tokens(examples)) if progress else None,
        on_figures=on_figures,
    )
