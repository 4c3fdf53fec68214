"""Copies of a policy that are saved during training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.language.backbone import save_model
from components.policy.policy import Policy


@dataclass(frozen=True)
class Snapshots:
    """Saves copies of the policy to `directory` every `every` iterations, named by iteration: `0004`."""

    directory: Path
    every: int

    def save_if_due(self, policy: Policy, iteration: int) -> None:
        """Save the policy after `iteration` if a copy is due."""
        if iteration % self.every == 0:
            save_model(policy.model, policy.vocabulary, self.directory / f"{iteration:04d}")
