"""Stage 6: refine the dreamed policy in the real environment, under a budget of interactions; and RL in
reality alone, for studies.
"""

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
from components.training_config import RealRLConfig, SimToRealConfig
from flows.experience_model import families_of, taught_tasks
from flows.synthetic_rl import (
    demonstrations_of,
    rl_outcome,
    run_loop,
    snapshots_in,
    snapshots_made,
    snapshots_of,
    told,
)
from flows.threads import training
from flows.workspace import OF_RUN, Outcome, Workspace

CODE = ["flows.sim_to_real"]


@flow(name="sim-to-real", flow_run_name=OF_RUN, validate_parameters=False)
def refine_in_reality(run: Workspace) -> StageResult:
    """RL on real training games, from the dreamed policy."""
    return _in_reality(run, "sim_to_real", "synthetic_rl", run.config.sim_to_real)


@flow(name="real-rl", flow_run_name=OF_RUN, validate_parameters=False)
def train_in_reality(run: Workspace) -> StageResult:
    """RL on real training games, from the cloned policy: no dream at all."""
    return _in_reality(run, "real_rl", "clone", run.config.real_rl)


def _in_reality(
    run: Workspace, name: str, start: str, settings: SimToRealConfig | RealRLConfig
) -> StageResult:
    inputs = {
        "policy": run.results[start].output_hashes["policy"],
        "tasks": file_hash(run.data.tasks("train")),
    }
    config = (
        run.slice("environment", name) | run.computing(training=True) | families_of(run) | snapshots_of(run)
    )
    return run.stage(
        name, lambda work: _learn(run, work, name, start, settings), inputs=inputs, config=config, code=CODE
    )


def _learn(
    run: Workspace, work: Path, name: str, start: str, settings: SimToRealConfig | RealRLConfig
) -> Outcome:
    config, adapter = run.config, make_adapter(run.config.environment)
    policy = Policy.load(run.results[start].outputs["policy"], compute=run.compute)
    world = adapter.open(settings.budget)
    stamp = Stamp(REAL, run.results[start].key[:12], run.manifest.run_id, "real")
    algorithm = make_algorithm(settings, policy, adapter.progress)
    loop = Loop(
        policy,
        OneProcess(world),
        EvenTasks(taught_tasks(run)),
        algorithm,
        settings,
        max_steps=config.environment.max_steps,
        seed=config.seed + 1,
        stamp=stamp,
        checkpoint=work / "checkpoint.pt",
        updating=lambda: training(config),
        demonstrations=demonstrations_of(run, policy, settings),
        snapshots=snapshots_in(run, work),
        tokens=lambda: policy.tokens,
    )
    try:
        state = run_loop(
            run, name, loop, lambda number, rollouts: told(adapter, rollouts), budget=settings.budget
        )
    finally:
        world.close()
    policy.save(work / "policy")
    (work / "checkpoint.pt").unlink(missing_ok=True)
    outcome = rl_outcome(name, state, {})
    outcome.outputs |= {"policy": "policy"} | snapshots_made(work)
    outcome.metrics[f"{name}/real_interactions"] = exact(state.interactions)
    outcome.costs = {"real_interactions": state.interactions, "tokens_generated": state.tokens}
    return outcome
