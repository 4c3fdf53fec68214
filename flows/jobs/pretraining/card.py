"""The card of a backbone: how it was trained, and the cards of the models that it continues from."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from components.config import Config
from components.language.compute import compute_of
from components.language.training.examples import Example
from components.language.training.training_run import TrainingRecord
from flows.jobs.pretraining.corpus import task_settings

MAX_LOSSES = 100
"""The card has about as many losses, each the mean of a part of the training."""


CARD = "card.json"
"""The card's file in a backbone's folder."""


def training_card(
    config: Config, model: Any, examples: list[Example], record: TrainingRecord
) -> dict[str, Any]:
    """Return the card of one phase, without its history and its skills."""
    return {
        "command": "dreamgym pretrain",
        "backbone": config.backbone.model_dump(exclude={"path"}),
        "pretrain": config.pretrain.model_dump(),
        "environment": task_settings(config) | {"seed": config.environment.seed},
        "threads": config.threads,
        "device": compute_of(config).device,
        "precision": config.precision,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "examples": len(examples),
        "tokens_in_corpus": sum(len(example) for example in examples),
        "tokens_trained": record.tokens,
        "steps": record.steps,
        "seconds": round(record.seconds),
        "losses": _mean_losses(record.losses),
        "written": time.strftime("%Y-%m-%d"),
    }


def _mean_losses(losses: list[float]) -> list[float]:
    """Return the mean loss of each part of the training."""
    length = max(1, len(losses) // MAX_LOSSES)
    parts = [losses[start : start + length] for start in range(0, len(losses), length)]
    return [round(sum(part) / len(part), 4) for part in parts]


def earlier_cards(model: Path) -> list[dict[str, Any]]:
    """Return the card of `model` and of those that it continues from, the oldest first."""
    path = model / CARD
    if not path.is_file():
        return []
    card = json.loads(path.read_text())
    return [*card.pop("went_on_from", []), card]
