"""The config section `data`: the offline trajectories that are recorded or imported."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from components.config.reading.config_values import Seed
from components.config.reading.section import Section

SECRETS = [
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)",
    r"""(?i)\b(?:api[_-]?key|password|passwd|secret|access[_-]?token)["']?\s*[=:]\s*["']?([^\s"',}\[]{6,})""",
]
"""Default of `data.mask`: keys of common services, and what is called a key, a password or a secret."""


class DataConfig(Section):
    """The offline trajectories that `dreamgym collect` records and `dreamgym import` takes from logs."""

    max_text_chars: ClassVar[int] = 4000
    """Longest text that validation accepts, in characters."""

    train_tasks: int = Field(300, ge=1, description="Training tasks played for the offline data.")
    fidelity_tasks: int = Field(
        40, ge=1, description="Further tasks of the training split, held out to measure fidelity."
    )
    fidelity_worlds: int = Field(
        20,
        ge=0,
        description="Tasks of the test split to measure fidelity in worlds (floor plans, sites) without "
        "training tasks.",
    )
    expert: int = Field(1, ge=0, description="Expert episodes per task.")
    noisy: int = Field(1, ge=0, description="Episodes per task of an expert that makes mistakes.")
    near_miss: int = Field(
        2, ge=0, description="Episodes per task with many near misses, which train the dream to refuse."
    )
    random: int = Field(
        1, ge=0, description="Episodes per task of a random policy, with impossible and malformed actions."
    )
    seed: Seed = Field(
        0, description="Seed of the behaviours; data that is recorded again has the same DVC hash."
    )
    families: list[str] = Field(
        default_factory=list,
        description="Task families that models and policies train on (transfer to the others); empty: all.",
    )
    mask: list[str] = Field(
        default_factory=lambda: list(SECRETS),
        description="Regular expressions of secrets in imported logs: what they find, or their group, is "
        "replaced by [masked].",
    )
    quarantine_share: float = Field(
        0.02, ge=0, le=1, description="Share of invalid rows above which validation stops the run."
    )
