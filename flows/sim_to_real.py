"""Stage 6: refine the dreamed policy in the real environment, under a budget of interactions."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from components.environments import make_adapter
from components.evaluation.intervals import exact
from components.policy.algorithms import make_algorithm
from components.policy.loop import EvenTasks, Loop
from components.policy.players import OneProcess
from components.policy.policy import Policy
from components.policy.rollout import Stamp
from components.records import REAL
from components.tracking.hashes import file_hash
from components.tracking.stages import StageResult
from components.trajectories.store import read_tasks
from flows.synthetic_rl import rl_outcome, run_loop
from flows.threads import training
from flows.workspace import Outcome, Workspace

CODE = ["flows.sim_to_real"]


@flow(name="sim-to-real", validate_parameters=False)
def refine_in_reality(run: Workspace) -> StageResult:
    """RL on real training games, from the dreamed policy."""
    inputs = {"policy": run.results["synthetic_rl"].output_hashes["policy"], "tasks": file_hash(run.data.tasks("train"))}
    config = run.slice("environment", "sim_to_real") | run.computing(training=True)
    return run.stage("sim_to_real", lambda work: _refine(run, work), inputs=inputs, config=config, code=CODE)


def _refine(run: Workspace, work: Path) -> Outcome:
    config, settings = run.config, run.config.sim_to_real
    policy = Policy.load(run.results["synthetic_rl"].outputs["policy"], compute=run.compute)
    adapter = make_adapter(config.environment)
    world = adapter.open(settings.budget)
    stamp = Stamp(REAL, run.results["synthetic_rl"].key[:12], run.manifest.run_id, "real")
    tasks = EvenTasks(read_tasks(run.data.tasks("train")))
    algorithm = make_algorithm(settings, policy, adapter.progress)
    loop = Loop(
        policy, OneProcess(world), tasks, algorithm, settings,
        max_steps=config.environment.max_steps, seed=config.seed + 1, stamp=stamp,
        checkpoint=work / "checkpoint.pt", updating=lambda: training(config),
    )  # fmt: skip
    try:
        state = run_loop(config, loop, budget=settings.budget)
    finally:
        world.close()
    policy.save(work / "policy")
    (work / "checkpoint.pt").unlink(missing_ok=True)
    outcome = rl_outcome("sim_to_real", state, {})
    outcome.outputs["policy"] = "policy"
    outcome.metrics["sim_to_real/real_interactions"] = exact(state.interactions)
    outcome.costs = {"real_interactions": state.interactions, "tokens_generated": policy.tokens}
    return outcome
