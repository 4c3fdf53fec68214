"""The world of imported logs: its tasks and episodes are on record, and no live world is at hand.

`dreamgym import agent.jsonl` makes its data, and `dreamgym retrain --logs agent.jsonl` also trains on it.
"""

from __future__ import annotations

from typing import NoReturn

from components.config.worlds.environment_config import EnvironmentConfig
from components.environments.protocol import Behaviour, RealEnvironment
from components.environments.text_world.plain_adapter import PlainAdapter
from components.errors import EnvironmentFailure
from components.records import Task


class RecordedAdapter(PlainAdapter):
    """A `PlainAdapter` that refuses what needs a live world."""

    name = "recorded"
    is_live = False
    notice = "This world is a log: nothing in this run was verified in a live world."

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Raise EnvironmentFailure: tasks are those of the imported logs, in data/recorded/tasks."""
        _refuse("New tasks cannot be drawn")

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Raise EnvironmentFailure: there is no world to open."""
        _refuse("Nothing can be played")

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Raise EnvironmentFailure: nobody plays."""
        _refuse(f"The behaviour {name} cannot be played")


def _refuse(what: str) -> NoReturn:
    raise EnvironmentFailure(
        f"{what}: environment.name is recorded, which has logs and no live world.",
        "Expected a world that can be played.",
        "See docs/guides/own-logs.md for what works with them, docs/guides/add-a-world.md for a live world.",
    )
