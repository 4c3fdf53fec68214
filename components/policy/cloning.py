"""Behaviour cloning: -log pi(thought, action | history) on a few expert demonstrations.

Differs from common practice in stopping early on purpose: cloned to a loss near zero a policy no longer explores, all
rollouts of a task end alike, and RL has nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from components.language.backbone import add_lora, merge_lora
from components.language.training import TrainingRecord, supervised_finetune
from components.policy.policy import Policy
from components.policy.prompt import render_demonstration
from components.records import Trajectory
from components.training_config import CloningConfig


def clone(
    policy: Policy,
    demonstrations: Sequence[Trajectory],
    think: Callable[[Trajectory, str], str],
    config: CloningConfig,
    seed: int,
    checkpoint: Path | None = None,
) -> TrainingRecord:
    """Train `policy` in place; `think(history, action)` gives the thought that leads to an action."""
    examples = [
        render_demonstration(policy.vocabulary, episode, [think(episode.up_to(step.step), step.action) for step in episode.steps])
        for episode in demonstrations
    ]
    policy.model = add_lora(policy.model, config.lora, added=policy.vocabulary.added, seed=seed)
    record = supervised_finetune(
        policy.model, examples, epochs=config.epochs, learning_rate=config.learning_rate, batch_tokens=config.batch_tokens, seed=seed,
        optimizer=config.optimizer, checkpoint=checkpoint, compute=policy.compute,
    )  # fmt: skip
    policy.model = merge_lora(policy.model)
    return record
