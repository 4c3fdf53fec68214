"""Trains the backbone of one phase: on exercises first, then on text with exercises in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from components.config import Config
from components.files import write_text
from components.language.backbone import build_backbone, load_backbone, save_model
from components.language.compute import compute_of
from components.language.threads import training
from components.language.training.examples import Example
from components.language.training.fine_tuning import refuse_too_long, supervised_finetune
from components.language.training.training_run import TrainingRecord
from components.language.vocabulary.compact_vocabulary import CompactVocabulary
from flows.jobs.pretrain_run import LogCurves
from flows.jobs.pretraining.card import CARD, earlier_cards, training_card
from flows.jobs.pretraining.phase_exercises import (
    exercises_before_text,
    measure_skills,
    rehearsal_in_text,
)
from flows.training_log import curve_logger

CHECKPOINT_STEPS = 500
"""Optimiser steps between two checkpoints."""
LOG_STEPS = 200
"""Optimiser steps between two log lines."""


@task(name="train", cache_policy=NO_CACHE)
def train_phase(
    config: Config,
    vocabulary: CompactVocabulary,
    examples: list[Example],
    work: Path,
    target: Path,
    recipe: dict[str, Any] | None = None,
    log_curves: LogCurves = lambda step, values: None,
) -> Path:
    """Train a backbone from random weights, or continue from `backbone.path`; return its directory.

    Args:
        config: of one phase.
        examples: of the text; none: the exercises alone are trained on.
        work: directory of the checkpoints. They are deleted once the model is saved.
        target: directory that the model and its card are written to.
        recipe: further entries of the card.
        log_curves: adds points to the curves of loss and learning rate.

    Raises:
        DataError: an example is longer than the model's longest sequence.
    """
    start_model = Path(config.backbone.path) if config.backbone.path else None
    model = _initial_model(config, vocabulary)
    refuse_too_long(model, examples)  # before the exercises, which take long
    history = earlier_cards(start_model) if start_model else []
    skills = {"before": measure_skills(model, vocabulary)} if start_model else {}
    with training(config):
        _train_on_exercises(config, model, vocabulary, work, log_curves)
        skills["exercises"] = measure_skills(model, vocabulary)
        record = _train_on_text(config, model, vocabulary, examples, work, log_curves)
        skills["text"] = measure_skills(model, vocabulary)
    save_model(model, vocabulary, target, dtype=torch.float16)
    card = {
        **training_card(config, model, examples, record),
        **(recipe or {}),
        "able_after": skills,
        "went_on_from": history,
    }
    write_text(target / CARD, json.dumps(card, indent=2) + "\n")
    for checkpoint in work.glob("*.pt"):
        checkpoint.unlink()
    return target


def _initial_model(config: Config, vocabulary: CompactVocabulary) -> Any:
    """Return the model that the phase starts from, on the device of the training."""
    device = compute_of(config).device
    model: Any
    if config.backbone.path:
        model = load_backbone(Path(config.backbone.path))[0]
    else:
        model = build_backbone(config.backbone, len(vocabulary), config.pretrain.seed)
    return model.to(device)


def _train_on_exercises(
    config: Config, model: Any, vocabulary: CompactVocabulary, work: Path, log_curves: LogCurves
) -> None:
    """Train `model` in place on one exercise after the other."""
    options = _training_options(config)
    for name, examples in exercises_before_text(config, vocabulary).items():
        supervised_finetune(
            model,
            examples,
            **options,
            learning_rate=config.pretrain.phases[0].learning_rate,
            checkpoint=work / f"{name}.pt",
            on_figures=curve_logger(f"{_curve_prefix(work)}/{name}", log_curves),
        )


def _train_on_text(
    config: Config,
    model: Any,
    vocabulary: CompactVocabulary,
    examples: list[Example],
    work: Path,
    log_curves: LogCurves,
) -> TrainingRecord:
    """Train `model` in place on the text, with exercises mixed in; without examples nothing is trained."""
    settings = config.pretrain.phases[0]
    mixed = examples + rehearsal_in_text(config, vocabulary, sum(map(len, examples)))
    rehearsal_share = settings.rehearsal + settings.copy_rehearsal + settings.recall_rehearsal
    if not examples:
        return TrainingRecord()
    return supervised_finetune(
        model,
        mixed,
        **_training_options(config),
        learning_rate=settings.text_rate * settings.learning_rate,
        total_tokens=round(settings.tokens * (1 + rehearsal_share)),
        checkpoint=work / "checkpoint.pt",
        on_figures=curve_logger(_curve_prefix(work), log_curves),
    )


def _training_options(config: Config) -> dict[str, Any]:
    """Return the options of `supervised_finetune` that exercises and text share."""
    return {
        "batch_tokens": config.pretrain.batch_tokens,
        "seed": config.pretrain.seed,
        "optimizer": "muon",
        "epochs": 1.0,
        "checkpoint_every": CHECKPOINT_STEPS,
        "on_step": _log_step,
        "compute": compute_of(config),
    }


def _curve_prefix(work: Path) -> str:
    """Return the first part of the curves' names; it names the phase if there are several."""
    return f"pretrain/{work.name}" if work.name.startswith("phase-") else "pretrain"


def _log_step(step: int, tokens: int, loss: float) -> None:
    if step % LOG_STEPS == 0:
        get_run_logger().info("step %d, %.2f M tokens, loss %.3f", step, tokens / 1e6, loss)
