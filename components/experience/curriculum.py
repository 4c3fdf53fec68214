"""The curriculum: which tasks are dreamed next, and new ones varied from those at the frontier (Eq. 6, 7).

A task's value is the variance of the returns in its group, V = 1/n sum (r - mean)^2: largest where the policy solves the
task half of the time, zero where it always or never does. The m tasks of the highest value are varied by the experience
model; a proposal must be well-formed, feasible in its room and new (validity multiplies the value it inherits from its
parent). A batch is an even draw from the training tasks (`explore`), at most `share` (lambda) generated tasks, and known
tasks by value. With n returns V has only a few levels and underestimates by (n-1)/n; only its order is used.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from components.records import Task
from components.training_config import CurriculumConfig

Vary = Callable[[Sequence[Task], int], list[str]]
POOL = 400
"""Most generated tasks kept; the least valuable leave first."""


def return_variance(returns: Sequence[float]) -> float:
    """V of Eq. 7: the population variance of a group's returns, at most 0.25 for returns of 0 and 1."""
    mean = sum(returns) / len(returns)
    return sum((value - mean) ** 2 for value in returns) / len(returns)


class Curriculum:
    """A source of tasks for the RL loop (`components.policy.loop.TaskSource`)."""

    def __init__(
        self,
        tasks: Sequence[Task],
        config: CurriculumConfig,
        vary: Vary,
        feasible: Callable[[Task], str],
        cluster: Callable[[Sequence[Task], int], list[int]] | None = None,
    ) -> None:
        """Args:
        vary(tasks, seed): one proposed instruction a task.
        feasible(task): why not, or "".
        cluster(tasks, seed): which of them share a group; None: each task is one.
        """
        self.config, self._vary, self._feasible, self._cluster = config, vary, feasible, cluster
        self.originals = list(tasks)
        self.generated: dict[str, Task] = {}
        self.value: dict[str, float] = {}
        self._known = {(task.initial_state, task.instruction) for task in tasks}
        self.refused: dict[str, int] = {}
        self.proposed = 0

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` different tasks for one iteration."""
        rng = random.Random(f"curriculum/{seed}")
        generated = sorted(self.generated.values(), key=lambda task: (-self._worth(task), rng.random()))
        chosen = generated[: int(self.config.share * count)]
        known = [task for task in self.originals if self._worth(task) > 0]
        known.sort(key=lambda task: (-self._worth(task), rng.random()))
        chosen += known[: max(0, count - len(chosen) - round(self.config.explore * count))]
        rest = [task for task in self.originals if task not in chosen]
        rng.shuffle(rest)
        rest.sort(key=lambda task: task.id in self.value)
        return (chosen + rest)[:count]

    def report(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, float]:
        """Take in each group's returns, then vary the most valuable tasks; figures of the pool."""
        for name, values in self._groups(returns, seed).items():
            self.value[name] = return_variance(values)
        fresh = [task for task, _ in returns.values() if self.value[task.id] > 0]
        fresh.sort(key=lambda task: -self.value[task.id])
        accepted = self._grow(fresh[: self.config.seeds], seed)
        self._prune()
        return {"tasks_accepted": float(accepted), "tasks_proposed": float(self.proposed), "tasks_generated": float(len(self.generated))}

    def _groups(self, returns: dict[str, tuple[Task, list[float]]], seed: int) -> dict[str, list[float]]:
        """Of each task the returns of its group."""
        if self._cluster is None:
            return {name: values for name, (_, values) in returns.items()}
        numbers = self._cluster([task for task, _ in returns.values()], seed)
        pooled: dict[int, list[float]] = {}
        for number, (_, values) in zip(numbers, returns.values(), strict=True):
            pooled.setdefault(number, []).extend(values)
        return {name: pooled[number] for number, name in zip(numbers, returns, strict=True)}

    def _worth(self, task: Task) -> float:
        return self.value.get(task.id, 0.0)

    def _grow(self, seeds: list[Task], seed: int) -> int:
        parents = [task for task in seeds for _ in range(self.config.candidates)]
        accepted = 0
        for parent, instruction in zip(parents, self._vary(parents, seed), strict=True):
            self.proposed += 1
            task = self._candidate(parent, instruction)
            reason = self._flaw(task)
            if reason:
                self.refused[reason] = self.refused.get(reason, 0) + 1
                continue
            self.generated[task.id] = task
            self._known.add((task.initial_state, task.instruction))
            self.value[task.id] = self.value[parent.id]
            accepted += 1
        return accepted

    def _candidate(self, parent: Task, instruction: str) -> Task:
        root = parent.parent or parent.id
        digest = hashlib.sha256(f"{root}\n{instruction}".encode()).hexdigest()[:10]
        return replace(parent, id=f"{root}/varied-{digest}", instruction=instruction, parent=root, family="")

    def _flaw(self, task: Task) -> str:
        if not task.instruction:
            return "malformed"
        if (task.initial_state, task.instruction) in self._known:
            return "not new"
        return self._feasible(task)

    def _prune(self) -> None:
        worthless = [name for name in self.generated if self.value.get(name, 0.0) == 0.0]
        ranked = sorted(self.generated, key=lambda name: -self.value.get(name, 0.0))
        for name in {*worthless, *ranked[POOL:]}:
            del self.generated[name]

    def state_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "generated": [asdict(task) for task in self.generated.values()],
            "value": dict(self.value),
            "known": sorted(list(pair) for pair in self._known),
            "refused": dict(self.refused),
            "proposed": self.proposed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.generated = {values["id"]: Task(**values) for values in state["generated"]}
        self.value, self.refused, self.proposed = dict(state["value"]), dict(state["refused"]), state["proposed"]
        self._known = {(room, instruction) for room, instruction in state["known"]}
