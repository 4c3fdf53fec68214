"""A world without what its adapter knows of it (`environment.knowledge=false`): the price of writing none.

Tasks, the real world and the actions of its behaviours stay; the thoughts that the adapter writes for them do
not. Every capability has the default that a plain world has: no reasoning, no contradiction, no premise, no
description, facts are phrases, and a dream is replayed in the task's own world, where what it invented counts
against it.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.environments.capabilities import Adapter
from components.environments.protocol import Behaviour, RealEnvironment
from components.environments.text_world.plain_adapter import PlainAdapter
from components.records import Task, Trajectory


class WithoutKnowledge(PlainAdapter):
    """The core of another adapter, with `PlainAdapter`'s defaults for the rest.

    Args:
        adapter: the other one.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.name = adapter.name
        self.is_live = adapter.is_live
        off = "The adapter's knowledge is off (environment.knowledge=false)."
        self.notice = f"{adapter.notice} {off}".strip()
        if hasattr(adapter, "splits"):  # a list of validation games is no knowledge of the text
            self.splits = adapter.splits

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        """Return the other adapter's tasks."""
        return self._adapter.tasks(split, count, seed)

    def open(
        self, budget: int | None = None, *, workers: int | None = None, stock: bool = False
    ) -> RealEnvironment:
        """Open the other adapter's real environment."""
        return self._adapter.open(budget, workers=workers, stock=stock)

    def behaviour(self, name: str, task: Task, seed: int) -> Behaviour:
        """Return the other adapter's behaviour without its thoughts."""
        act = self._adapter.behaviour(name, task, seed)

        def without_thought(history: Trajectory, admissible: Sequence[str]) -> tuple[str, str]:
            _, action = act(history, admissible)
            return "", action

        return without_thought
