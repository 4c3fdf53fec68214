"""Plays real games with policies, and computes their success rates."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.config import EvaluationConfig
from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, proportion
from components.language.threads import decoding
from components.policy.policy import Policy
from components.policy.whole_episodes import play_whole
from components.records import Task
from components.trajectories.store import read_tasks
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.training.system_turns import policy_system

ROWS = 64
"""Tasks that are played as one batch."""


def success_rates(
    won: dict[str, bool], tasks: list[Task], prefix: str, settings: EvaluationConfig
) -> dict[str, Estimate]:
    """Return `prefix/success_rate` on all tasks and `prefix/success_rate/<family>` on those of each family.

    Args:
        won: task id -> success.
    """
    rates = {f"{prefix}/success_rate": proportion(sum(won.values()), len(tasks), settings.confidence)}
    by_family = family_rates(won, tasks, settings.confidence)
    return rates | {f"{prefix}/success_rate/{family}": rate for family, rate in by_family.items()}


def family_rates(won: dict[str, bool], tasks: list[Task], confidence: float) -> dict[str, Estimate]:
    """Return family -> success rate on its tasks; tasks without a family are left out.

    Args:
        won: task id -> success.
    """
    rates: dict[str, Estimate] = {}
    for family in sorted({task.family for task in tasks if task.family}):
        of_family = [won[task.id] for task in tasks if task.family == family]
        rates[family] = proportion(sum(of_family), len(of_family), confidence)
    return rates


def held_out_tasks(path: Path, count: int) -> list[Task]:
    """Return the first `count` tasks of the test split.

    Raises:
        DataError: there are fewer.
    """
    tasks = read_tasks(path)
    if len(tasks) < count:
        raise DataError(
            f"evaluation.tasks is {count}.",
            f"{path} lists {len(tasks)} held-out tasks.",
            "Lower evaluation.tasks.",
        )
    return tasks[:count]


def games_config(run: Run) -> dict[str, Any]:
    """Return the config values that real games of policies depend on, as part of a stage's config."""
    length = {"max_new_tokens": run.config.rl.dream.max_new_tokens}
    return run.slice("environment", "evaluation") | length | run.computing()


@dataclass(frozen=True)
class Games:
    """Real games of several policies.

    Args:
        won: policy -> task id -> success.
        steps: real steps of all games.
        restarts: episodes that were restarted because infrastructure failed.
    """

    won: dict[str, dict[str, bool]]
    steps: int
    restarts: int

    @property
    def costs(self) -> dict[str, int]:
        """The costs by their names in a stage's outcome."""
        return {"check_interactions": self.steps, "replayed_episodes": self.restarts}


def play_games(
    run: Run, policies: dict[str, Path], tasks: list[Task], max_new_tokens: int | None = None
) -> Games:
    """Play all tasks once with each policy.

    Args:
        policies: name -> directory.
        max_new_tokens: longest reply in tokens; None: as in RL.
    """
    config = run.config
    length = max_new_tokens or config.rl.dream.max_new_tokens
    won: dict[str, dict[str, bool]] = {name: {} for name in policies}
    restarts = 0
    with closing(live_adapter(config).open()) as world, decoding(config):
        for name, directory in policies.items():
            policy = Policy.load(
                directory, max_new_tokens=length, compute=run.compute, system=policy_system(config)
            )
            for start in range(0, len(tasks), ROWS):
                rollouts = play_whole(
                    policy,
                    world,
                    tasks[start : start + ROWS],
                    max_steps=config.environment.max_steps,
                    temperature=config.evaluation.temperature,
                    seed=config.seed,
                )
                restarts += sum(rollout.tries - 1 for rollout in rollouts)
                won[name] |= {
                    task.id: rollout.trajectory.success
                    for task, rollout in zip(tasks[start : start + ROWS], rollouts, strict=True)
                }
        return Games(won, world.interactions, restarts)
