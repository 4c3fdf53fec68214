"""Phases of a pretraining: their keys, by which an interrupted command finds the finished ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.config import Config
from components.tracking.stage_store.hashes import file_hash, text_hash
from flows.jobs.pretraining.card import CARD
from flows.jobs.pretraining.corpus import SETTINGS_FILE


def corpus_key(config: Config, work: Path) -> str:
    """Return the hash of what the first phase starts from.

    It covers the settings of the corpus in `work`, and the files of the model in `backbone.path`, if set.
    """
    start_model = Path(config.backbone.path)
    files: list[Path] = []
    if config.backbone.path and start_model.is_dir():
        files = sorted(file for file in start_model.iterdir() if file.is_file())
    file_lines = [f"{file.name} {file_hash(file)}" for file in files]
    return text_hash("\n".join([(work / SETTINGS_FILE).read_text(), *file_lines]))


def phase_key(phase: Config, previous_key: str) -> str:
    """Return the hash of a phase's settings and of the key before it.

    Args:
        phase: config whose `pretrain` is that of the phase.
        previous_key: key of the phase before; of the corpus for the first phase.
    """
    parts: list[Any] = [
        phase.pretrain.model_dump(),
        phase.backbone.model_dump(exclude={"path"}),
        phase.device,
        phase.precision,
    ]
    parts += [phase.experience_model.model_dump(), phase.retrieval.model_dump(), previous_key]
    return text_hash(json.dumps(parts, sort_keys=True))


def is_finished(model: Path, key: str) -> bool:
    """Return True if the phase with this key has written its model to `model`; the card is written last."""
    card = model / CARD
    return card.is_file() and bool(json.loads(card.read_text()).get("phase", {}).get("key") == key)


def recipe_entries(config: Config, number: int, key: str) -> dict[str, Any]:
    """Return the card's entries on the phase's place in the recipe; empty if there is only one phase.

    Args:
        number: of the phase, from 1.
    """
    count = len(config.pretrain.phases)
    if count <= 1:
        return {}
    recipe = config.pretrain.model_dump(mode="json")
    return {"phase": {"number": number, "of": count, "key": key}, "recipe": recipe}
