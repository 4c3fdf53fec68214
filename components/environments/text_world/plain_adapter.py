"""The base of an adapter for a world of text that the pipeline has no knowledge of, and how it makes tasks.

An adapter of your own inherits `PlainAdapter` and redefines what it knows better. `capabilities.py` says what
each method is for and what its default costs (docs/guides/add-a-world.md has the same as a table).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TypeVar

from components.environments.capabilities import Adapter
from components.environments.text_world.phrases import has_word
from components.errors import EnvironmentFailure
from components.records import Task

Candidate = TypeVar("Candidate")
FEWER_TASKS = (
    "Lower data.train_tasks, data.fidelity_tasks or evaluation.tasks; for `dreamgym pretrain` lower "
    "pretrain.tasks, or set pretrain.corpus=logs."
)
"""What to type where a world has fewer tasks than a command asks for."""


class PlainAdapter(Adapter):
    """The core of an adapter as far as any world of text shares it; no capability but the defaults.

    Its heir writes `name`, `tasks`, `open` and `behaviour`.
    """

    refusals: Sequence[str] = ()
    """Texts in a state that say that the world did not carry out the action."""
    notice = (
        "Nobody knows what this world's text means: facts are its phrases, so fidelity and agreement "
        "say less than elsewhere."
    )

    def well_formed(self, action: str) -> bool:
        """Return True if `action` has a letter or digit. Code and tool calls may have several lines."""
        return has_word(action)

    def refused(self, next_state: str) -> bool:
        """Return True if the state contains one of `refusals`."""
        return any(text in next_state for text in self.refusals)


def build_task(
    environment: str, name: str, split: str, instruction: str, initial_state: str, /, **spec: object
) -> Task:
    """Return a task of the environment.

    Args:
        spec: what the world needs to start the task again, as plain values. No model sees it.
    """
    spec = {**spec, "instruction": instruction}
    return Task(
        f"{environment}/{name}",
        environment,
        split,
        instruction,
        initial_state,
        "",
        json.dumps(spec, sort_keys=True),
    )


def sample_tasks(
    rng: random.Random, candidates: Sequence[Candidate], count: int, split: str
) -> list[Candidate]:
    """Return `count` of `candidates`, each at most once.

    Raises:
        EnvironmentFailure: there are fewer.
    """
    if len(candidates) < count:
        raise EnvironmentFailure(
            f"This world has {len(candidates)} tasks of {split}.",
            f"Expected at least {count}.",
            FEWER_TASKS,
        )
    return rng.sample(candidates, count)
