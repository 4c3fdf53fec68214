"""Step 9: refine the policy in the real environment, under a budget of interactions.

Studies also train in the real environment only, from the cloned policy (`train_in_reality`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from components.config import BaselineRLConfig, RealRLConfig
from components.evaluation.metrics.intervals import exact_value
from components.policy.policy import Policy
from components.policy.rl.players.player import LocalPlayer
from components.policy.rl.task_source import EvenTasks
from components.policy.rollout import Rollout, Stamp
from components.records import REAL
from flows.run.pipeline_run import Run
from flows.run.run_data import EXPERIENCE, families_config, training_tasks
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.rl_training import (
    build_loop,
    delay_config,
    finish_training,
    impossible_actions,
    keep_transitions,
    run_loop,
    snapshots_config,
    training_adapter,
)


@stage_flow("sim-to-real")
def refine_in_reality(run: Run) -> Stage:
    """Stage: RL on real training tasks, from the policy that was trained in the dream."""
    return _real_training(run, "sim_to_real", "synthetic_rl", "real")


@stage_flow("real-rl")
def train_in_reality(run: Run) -> Stage:
    """Stage: RL on real training tasks, from the cloned policy; the baseline without a dream."""
    return _real_training(run, "real_rl", "clone", "baseline")


def _real_training(run: Run, name: str, start: str, section: Literal["real", "baseline"]) -> Stage:
    """Args: start: stage of the policy to start from; section: of `rl` with the settings."""
    settings = run.config.rl.real if section == "real" else run.config.rl.baseline
    config = run.slice("environment", f"rl.{section}") | run.computing(training=True)
    config |= families_config(run) | snapshots_config(run) | delay_config(run)
    return Stage(
        name,
        work=partial(_train, run, name, settings, run.results[start].key[:12]),
        inputs={
            "policy": StageOutput(start, "policy"),
            "tasks": run.data.tasks("train"),
            "train": StageOutput("validate", "train"),
        },
        config=config,
        code=__name__,
    )


def _train(
    run: Run,
    name: str,
    settings: RealRLConfig | BaselineRLConfig,
    policy_version: str,
    inputs: Inputs,
    work: Path,
) -> Outcome:
    adapter = training_adapter(run.config)
    policy = Policy.load(inputs["policy"], compute=run.compute)
    world = adapter.open(settings.budget)

    def figures(iteration: int, rollouts: list[Rollout]) -> dict[str, float]:
        keep_transitions(work / EXPERIENCE, iteration, rollouts)
        return impossible_actions(adapter, rollouts)

    try:
        loop = build_loop(
            run,
            settings,
            policy=policy,
            player=LocalPlayer(world),
            tasks=EvenTasks(training_tasks(run)),
            stamp=Stamp(REAL, policy_version, prefix="real"),  # no run: a repeated one has the same output
            seed=run.round_seed + 1,
            train=inputs["train"],
            work=work,
            tokens=lambda: policy.tokens,
        )
        state = run_loop(run, name, loop, figures, budget=settings.budget)
    finally:
        world.close()
    outcome = finish_training(name, policy, state, work)
    outcome.metrics[f"{name}/real_interactions"] = exact_value(state.interactions)
    (work / EXPERIENCE).mkdir(exist_ok=True)  # with no iteration there is no real step
    outcome.outputs[EXPERIENCE] = EXPERIENCE
    outcome.costs = {"real_interactions": state.interactions, "tokens_generated": state.tokens}
    return outcome
