"""The curriculum: which tasks are dreamed next, and new tasks varied from informative ones (Eq. 6, 7).

Value. A task's value is the variance of the returns in its group, V = 1/n sum (r - mean)^2. It is largest
where the policy solves the task half of the time, and zero where it always or never does. With n returns, V
has only a few levels and underestimates by (n-1)/n; only its order is used.

Variation. The experience model varies the m tasks of the highest value, with several candidates each. A
candidate that is malformed, infeasible in its room or not new has no value: validity, 0 or 1, multiplies the
value that a candidate inherits from its parent. Of the others, the one is accepted whose instruction is
rarest among all tasks so far.

Batch. At most a share `share` (lambda) of a batch is generated tasks. A share `explore` is training tasks,
those that were never played first. The remaining places take the training tasks of the highest value. With
the defaults, 0.25 and 0.75, no place remains once there are enough generated tasks: value then decides which
tasks are varied, not which training tasks are repeated.

With `selection: posterior` training and generated tasks compete by a draw of their success
(`success_posterior.py`), at most `share` of them generated. A generated task inherits nothing: it has the
prior of its instruction, or of all tasks if the instruction is new. It competes after probes: a few
rollouts that must end differently (`task_probes.py`). While tasks wait for them, one generated place goes to
probes; an only one in half of the iterations, once a task has passed. The m played tasks are varied whose
mean success is nearest to one half, tasks that are always or never won among them. Of the candidates that are
harder than a parent won in more than half, or easier than one won in less, the one is accepted whose drawn
variance is largest; of all candidates if there is none (our choice, not the paper's; proposals have no
direction).

Differs from the paper (DreamGym, arXiv 2511.03773, App. C):

1. A count of earlier instructions chooses among candidates. The paper prompts the experience model a second
   time for the best one; a small model has no such judgement.
2. The paper's batch has no exploring share.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from components.config import CurriculumConfig
from components.environments.mixed.tasks import NAME as MIXED
from components.experience.tasks.success_posterior import SuccessPosterior
from components.experience.tasks.task_probes import TaskProbes, rollouts_with_variance
from components.records import VARIED, Task

VaryTasks = Callable[[Sequence[Task], int], list[str]]
GroupReturns = dict[str, tuple[Task, list[float]]]
"""Task id -> the task and the returns of its rollouts in one iteration."""

MAX_GENERATED_TASKS = 400
"""The least valuable ones are removed first."""
DIFFICULTIES = ("never won", "won in up to a third", "in up to two thirds", "in more", "always won")
"""Classes of groups by the share of their rollouts that won."""
OTHER_CANDIDATE_ACCEPTED = "another candidate was taken"


def return_variance(returns: Sequence[float]) -> float:
    """V of Eq. 7: the population variance of a group's returns, at most 0.25 for returns of 0 and 1."""
    mean = sum(returns) / len(returns)
    return sum((value - mean) ** 2 for value in returns) / len(returns)


def difficulty(returns: Sequence[float]) -> str:
    """The class of `DIFFICULTIES` that a group with these returns of 0 and 1 has."""
    win_rate = sum(returns) / len(returns)
    if win_rate in (0.0, 1.0):
        return DIFFICULTIES[-1 if win_rate else 0]
    return DIFFICULTIES[1 + (win_rate > 1 / 3) + (win_rate > 2 / 3)]


class Curriculum:
    """A source of tasks for the RL loop (`components.policy.rl.task_source.TaskSource`).

    Attributes:
        originals: the training tasks.
        generated: id -> generated task that can be sampled.
        task_values: id -> latest value of each played or generated task.
        life: one entry an iteration: candidates `proposed`, `accepted` and `refused` (reason -> number),
            generated tasks in the `pool`, generated tasks `played` and `solved` (won at least once), and
            `difficulty` (numbers of groups in the order of `DIFFICULTIES`, of training and generated tasks);
            by posterior also tasks `probed` and `rejected` by it.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        config: CurriculumConfig,
        vary: VaryTasks,
        feasible: Callable[[Task], str],
        cluster: Callable[[Sequence[Task], int], list[int]] | None = None,
    ) -> None:
        """Args:
        vary: (tasks, seed) -> one proposed instruction a task.
        feasible: task -> why it is not feasible; "" if it is.
        cluster: (tasks, seed) -> number of each task's group; None: each task is a group.
        """
        self.config = config
        self.originals = list(tasks)
        self.generated: dict[str, Task] = {}
        self.task_values: dict[str, float] = {}
        self.life: list[dict[str, Any]] = []
        self._posterior = SuccessPosterior() if config.selection == "posterior" else None
        self._probes = TaskProbes()
        self._vary = vary
        self._feasible = feasible
        self._cluster = cluster
        self._existing_pairs = {(task.initial_state, task.instruction) for task in tasks}
        self._instruction_counts = Counter(task.instruction for task in tasks)

    def sample(self, count: int, seed: int) -> list[Task]:
        """`count` different tasks for one iteration; by posterior, without those that wait for probes."""
        rng = random.Random(f"curriculum/{seed}")
        if self._posterior is not None:
            return self._sample_by_posterior(self._posterior, count, int(self.config.share * count), rng)
        generated = sorted(self.generated.values(), key=lambda task: (-self._value(task), rng.random()))
        batch = generated[: int(self.config.share * count)]
        valuable = [task for task in self.originals if self._value(task) > 0]
        valuable.sort(key=lambda task: (-self._value(task), rng.random()))
        batch += valuable[: max(0, count - len(batch) - round(self.config.explore * count))]
        rest = [task for task in self.originals if task not in batch]
        rng.shuffle(rest)
        rest.sort(key=lambda task: task.id in self.task_values)
        return (batch + rest)[:count]

    def sample_rows(self, count: int, group_size: int, seed: int) -> list[Task]:
        """The tasks of one iteration, one per rollout; by posterior one place may go to probes."""
        posterior = self._posterior
        if posterior is None:
            return [task for task in self.sample(count, seed) for _ in range(group_size)]
        rng = random.Random(f"curriculum/{seed}")
        places = int(self.config.share * count)
        probes: list[Task] = []
        if places > 1 or (places and (not self._passed() or rng.random() < 0.5)):
            new = list(self.generated.values())
            probes = self._probes.rows(new, group_size, lambda task: posterior.draw_variance(task, rng))
        taken = bool(probes)
        full = self._sample_by_posterior(posterior, count - taken, places - taken, rng)
        return [task for task in full for _ in range(group_size)] + probes

    def _passed(self) -> list[Task]:
        return [task for task in self.generated.values() if not self._probes.is_waiting(task)]

    def _sample_by_posterior(
        self, posterior: SuccessPosterior, count: int, places: int, rng: random.Random
    ) -> list[Task]:
        """The tasks with the largest drawn variances, at most `places` of them generated."""
        drawn = [(posterior.draw_variance(task, rng), task) for task in (*self.originals, *self._passed())]
        drawn.sort(key=lambda pair: -pair[0])
        batch: list[Task] = []
        for _, task in drawn:
            if len(batch) == count:
                break
            if not task.generated or places > 0:
                batch.append(task)
                places -= task.generated
        return batch

    def report(self, returns: GroupReturns, seed: int) -> dict[str, float]:
        """Record the returns of an iteration, then vary the most valuable tasks.

        Returns:
            Metrics of the pool: `tasks_proposed`, `tasks_accepted`, `tasks_pool`; by posterior also
            `tasks_probed`, `tasks_rejected` (by their probes) and `rollouts_with_variance`.
        """
        probe_counts: dict[str, int] = {}
        figures: dict[str, float] = {}
        if self._posterior is not None:
            self._posterior.update(returns.values())
            probed, rejected = self._probes.record(returns.values())
            self._remove(rejected)
            probe_counts = {"probed": probed, "rejected": len(rejected)}
            figures["rollouts_with_variance"] = rollouts_with_variance(
                values for _, values in returns.values()
            )
        for task_id, values in self._pool_returns(returns, seed).items():
            self.task_values[task_id] = return_variance(values)
        parents = self._parents([task for task, _ in returns.values()]) if self.config.share else []
        accepted, refused = self._generate_tasks(parents[: self.config.seeds], seed)
        self._prune()
        counts = {"proposed": accepted + refused.total(), "accepted": accepted, "pool": len(self.generated)}
        counts |= probe_counts
        self.life.append({**counts, "refused": dict(refused), **_summarise_outcomes(returns)})
        return figures | {f"tasks_{name}": float(count) for name, count in counts.items()}

    def _parents(self, played: Sequence[Task]) -> list[Task]:
        """The played tasks that may be varied, the best first.

        They are those whose returns differed, by value; by posterior all, by their expected variance.
        """
        posterior = self._posterior
        if posterior is None:
            informative = [task for task in played if self.task_values[task.id] > 0]
            return sorted(informative, key=lambda task: -self.task_values[task.id])
        return sorted(played, key=lambda task: abs(posterior.mean(task) - 0.5))

    def _pool_returns(self, returns: GroupReturns, seed: int) -> dict[str, list[float]]:
        """Task id -> the returns of its group."""
        if self._cluster is None:
            return {task_id: values for task_id, (_, values) in returns.items()}
        clusters = self._cluster([task for task, _ in returns.values()], seed)
        pooled: dict[int, list[float]] = {}
        for cluster, (_, values) in zip(clusters, returns.values(), strict=True):
            pooled.setdefault(cluster, []).extend(values)
        return {task_id: pooled[cluster] for cluster, task_id in zip(clusters, returns, strict=True)}

    def _value(self, task: Task) -> float:
        return self.task_values.get(task.id, 0.0)

    def _generate_tasks(self, parents: Sequence[Task], seed: int) -> tuple[int, Counter[str]]:
        """Vary each parent and accept at most one candidate of it.

        Returns:
            The number of accepted tasks, and reason -> number of refused candidates.
        """
        candidate_count = self.config.candidates
        proposals = self._vary([task for task in parents for _ in range(candidate_count)], seed)
        refused = Counter[str]()
        accepted = 0
        rng = random.Random(f"variations/{seed}")
        for number, parent in enumerate(parents):
            texts = proposals[number * candidate_count : (number + 1) * candidate_count]
            candidates = [self._candidate(parent, text) for text in texts]
            refusal_reasons = {task.id: self._refusal_reason(task) for task in candidates}
            valid = {task.id: task for task in candidates if not refusal_reasons[task.id]}
            refused.update(refusal_reasons[task.id] for task in candidates if refusal_reasons[task.id])
            if valid:
                self._accept(self._choose(list(valid.values()), parent, rng), parent)
                accepted += 1
                valid_count = sum(not refusal_reasons[task.id] for task in candidates)
                refused.update({OTHER_CANDIDATE_ACCEPTED: valid_count - 1})
        return accepted, +refused

    def _choose(self, candidates: Sequence[Task], parent: Task, rng: random.Random) -> Task:
        """The candidate whose instruction is rarest; by posterior, that of the largest drawn variance.

        By posterior, candidates harder than an easy parent, or easier than a hard one, come first.
        """
        posterior = self._posterior
        if posterior is None:
            return min(candidates, key=lambda task: self._instruction_counts[task.instruction])
        success = posterior.mean(parent)
        towards_half = [task for task in candidates if (posterior.mean(task) - success) * (0.5 - success) > 0]
        return max(towards_half or candidates, key=lambda task: posterior.draw_variance(task, rng))

    def _accept(self, task: Task, parent: Task) -> None:
        self.generated[task.id] = task
        if self._posterior is not None:
            self._probes.add(task)
        self._existing_pairs.add((task.initial_state, task.instruction))
        self._instruction_counts[task.instruction] += 1
        self.task_values[task.id] = self.task_values[parent.id]

    def _candidate(self, parent: Task, instruction: str) -> Task:
        """The task of `instruction` in the room of `parent`; a variation of a variation keeps the root."""
        root = parent.parent or parent.id
        digest = hashlib.sha256(f"{root}\n{instruction}".encode()).hexdigest()[:10]
        family = parent.family if parent.environment == MIXED else ""  # there it is the world
        return replace(
            parent, id=f"{root}{VARIED}{digest}", instruction=instruction, parent=root, family=family
        )

    def _refusal_reason(self, task: Task) -> str:
        """Why a candidate is refused; "" if it is valid."""
        if not task.instruction:
            return "malformed"
        if (task.initial_state, task.instruction) in self._existing_pairs:
            return "not new"
        return self._feasible(task)

    def _prune(self) -> None:
        """Remove generated tasks without value, and the least valuable ones above the limit.

        By posterior only the limit counts: probes have removed those that are always or never won.
        """
        posterior = self._posterior
        if posterior is None:
            values = {task_id: self._value(task) for task_id, task in self.generated.items()}
            worthless = [task_id for task_id, value in values.items() if value == 0.0]
        else:
            means = {task_id: posterior.mean(task) for task_id, task in self.generated.items()}
            values = {task_id: mean * (1 - mean) for task_id, mean in means.items()}
            worthless = []
        ranked = sorted(values, key=lambda task_id: -values[task_id])
        self._remove({*worthless, *ranked[MAX_GENERATED_TASKS:]})

    def _remove(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            del self.generated[task_id]
            self._probes.forget(task_id)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "generated": [asdict(task) for task in self.generated.values()],
            "value": dict(self.task_values),
            "known": sorted(list(pair) for pair in self._existing_pairs),
            "archive": dict(self._instruction_counts),
            "life": list(self.life),
            "posterior": self._posterior.state_dict() if self._posterior else {},
            "probes": self._probes.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.generated = {values["id"]: Task(**values) for values in state["generated"]}
        self.task_values = dict(state["value"])
        self.life = list(state["life"])
        self._probes.load_state_dict(state["probes"])
        if self._posterior is not None:
            self._posterior.load_state_dict(state["posterior"])
        self._instruction_counts = Counter(state["archive"])
        self._existing_pairs = {(room, instruction) for room, instruction in state["known"]}


def _summarise_outcomes(returns: GroupReturns) -> dict[str, Any]:
    """How many generated tasks were played and solved, and how difficult all groups were."""
    generated = [values for task, values in returns.values() if task.generated]
    training = [values for task, values in returns.values() if not task.generated]
    classes = {
        name: Counter(difficulty(values) for values in groups)
        for name, groups in (("training", training), ("generated", generated))
    }
    return {
        "played": len(generated),
        "solved": sum(any(values) for values in generated),
        "difficulty": {name: [count[level] for level in DIFFICULTIES] for name, count in classes.items()},
    }
