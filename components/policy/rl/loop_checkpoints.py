"""Checkpoints of an RL loop: what one holds, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.errors import TrainingError
from components.language.training.checkpoints import checkpoint_limit, read_checkpoint

CHECKPOINT_KEYS = {"policy", "optimizers", "own_optimizers", "algorithm", "tasks", "ahead", "state"}
"""Keys of a checkpoint."""


def read_iteration_count(checkpoint: Path, weights: int = 0, staleness: int = 0) -> int:
    """Return the number of finished iterations of a checkpoint; 0 if there is none.

    Args:
        weights: number of the policy's weights, which bounds the size of the checkpoint.
        staleness: of the loop, which keeps as many earlier weights.

    Raises:
        TrainingError: the file is not the checkpoint of an RL loop.
    """
    if not checkpoint.is_file():
        return 0
    return int(read_loop_checkpoint(checkpoint, checkpoint_limit(weights, staleness))["state"]["iteration"])


def read_loop_checkpoint(checkpoint: Path, limit: int) -> dict[str, Any]:
    """Return the state in `checkpoint`, which may have `limit` bytes.

    Raises:
        TrainingError: the file is not the checkpoint of an RL loop, or cannot be read.
    """
    state = read_checkpoint(checkpoint, limit)
    if not isinstance(state, dict) or state.keys() != CHECKPOINT_KEYS:
        raise TrainingError(
            f"{checkpoint} is not the checkpoint of an RL loop.",
            f"Expected {', '.join(sorted(CHECKPOINT_KEYS))} in it.",
            f"Delete {checkpoint} to train from the start.",
        )
    return state


def learner_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a loop's state that belongs to its learner."""
    return {name: state[name] for name in ("policy", "optimizers", "own_optimizers", "algorithm")}
