"""The curriculum: which tasks are dreamed next, and new ones varied from those at the frontier (Eq. 6, 7).

A task's value is the variance of the returns in its group, V = 1/n sum (r - mean)^2: largest where the policy
solves the task half of the time, zero where it always or never does. The m tasks of the highest value are
varied by the experience model, with several candidates each: one that is malformed, infeasible in its room or
not new is worth nothing (validity, 0 or 1, multiplies the value that it inherits from its parent), and of the
others the one whose instruction the archive of all tasks so far holds least often is taken. With n returns V
has only a few levels and underestimates by (n-1)/n; only its order is used.

A batch is at most `share` (lambda) generated tasks, a share `explore` of training tasks, those first that
were never played, and what is left over: training tasks of the highest value. With the defaults, 0.25 and
0.75, nothing is left over once there are generated tasks
enough: value then chooses what is varied, not which training task is met again.

Differs from the paper (DreamGym, arXiv 2511.03773, App. C): of the candidates a count of what there was so
far chooses, not a second prompt that asks the experience model for the best one; a small model has no such
judgement. The paper's batch has no such draw.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from components.config import CurriculumConfig
from components.records import VARIED, Task

Vary = Callable[[Sequence[Task], int], list[str]]
POOL = 400
"""Most generated tasks kept; the least valuable leave first."""
DIFFICULTIES = ("never won", "won in up to a third", "in up to two thirds", "in more", "always won")
"""Into what the groups of an iteration are sorted, by the share of their rollouts that won."""
UNCHOSEN = "another candidate was taken"


def return_variance(returns: Sequence[float]) -> float:
    """V of Eq. 7: the population variance of a group's returns, at most 0.25 for returns of 0 and 1."""
    mean = sum(returns) / len(returns)
    return sum((value - mean) ** 2 for value in returns) / len(returns)


def difficulty(returns: Sequence[float]) -> str:
    """Which of DIFFICULTIES a group with these returns of 0 and 1 has."""
    won = sum(returns) / len(returns)
    if won in (0.0, 1.0):
        return DIFFICULTIES[-1 if won else 0]
    return DIFFICULTIES[1 + (won > 1 / 3) + (won > 2 / 3)]


class Curriculum:
    """A source of tasks for the RL loop (`components.policy.rl.loop.TaskSource`)."""

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
        self._archive = Counter(task.instruction for task in tasks)
        self.life: list[dict[str, Any]] = []
        """One entry an iteration: candidates `proposed`, `accepted` and `refused` (reason -> number),
        generated tasks in the `pool`, `played` and `solved` (won at least once), and `difficulty` (of
        DIFFICULTIES, groups of training and of generated tasks).
        """

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
        accepted, refused = self._grow(fresh[: self.config.seeds] if self.config.share else [], seed)
        self._prune()
        figures = {"proposed": accepted + refused.total(), "accepted": accepted, "pool": len(self.generated)}
        self.life.append({**figures, "refused": dict(refused), **_outcomes(returns)})
        return {f"tasks_{name}": float(value) for name, value in figures.items()}

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

    def _grow(self, seeds: list[Task], seed: int) -> tuple[int, Counter[str]]:
        """Vary each of `seeds`; how many tasks were accepted, and why the other candidates were not."""
        parents, refused, accepted = (
            [task for task in seeds for _ in range(self.config.candidates)],
            Counter[str](),
            0,
        )
        proposals = self._vary(parents, seed)
        for place in range(0, len(parents), self.config.candidates):
            parent = parents[place]
            candidates = [
                self._candidate(parent, text) for text in proposals[place : place + self.config.candidates]
            ]
            flaws = {task.id: self._flaw(task) for task in candidates}
            sound = {task.id: task for task in candidates if not flaws[task.id]}
            refused.update(flaw for task in candidates if (flaw := flaws[task.id]))
            if sound:
                self._accept(min(sound.values(), key=lambda task: self._archive[task.instruction]), parent)
                accepted += 1
                refused.update(
                    {UNCHOSEN: len(candidates) - sum(bool(flaws[task.id]) for task in candidates) - 1}
                )
        return accepted, +refused

    def _accept(self, task: Task, parent: Task) -> None:
        self.generated[task.id] = task
        self._known.add((task.initial_state, task.instruction))
        self._archive[task.instruction] += 1
        self.value[task.id] = self.value[parent.id]

    def _candidate(self, parent: Task, instruction: str) -> Task:
        root = parent.parent or parent.id
        digest = hashlib.sha256(f"{root}\n{instruction}".encode()).hexdigest()[:10]
        return replace(parent, id=f"{root}{VARIED}{digest}", instruction=instruction, parent=root, family="")

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
            "archive": dict(self._archive),
            "life": list(self.life),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.generated = {values["id"]: Task(**values) for values in state["generated"]}
        self.value, self.life, self._archive = (
            dict(state["value"]),
            list(state["life"]),
            Counter(state["archive"]),
        )
        self._known = {(room, instruction) for room, instruction in state["known"]}


def _outcomes(returns: dict[str, tuple[Task, list[float]]]) -> dict[str, Any]:
    """What became of an iteration's tasks."""
    generated = [values for task, values in returns.values() if task.generated]
    training = [values for task, values in returns.values() if not task.generated]
    sorts = {
        name: Counter(difficulty(values) for values in part)
        for name, part in (("training", training), ("generated", generated))
    }
    counts = {name: [found[level] for level in DIFFICULTIES] for name, found in sorts.items()}
    return {
        "played": len(generated),
        "solved": sum(any(values) for values in generated),
        "difficulty": counts,
    }
