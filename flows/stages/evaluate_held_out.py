"""Evaluation on the test split, for studies: of one policy, or of the copies kept during its training.

Each reading of the test split is recorded in its ledger. This is no step of the main job.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from components.tracking.held_out_ledger import note_held_out_read
from flows.run.games.policy_games import games_config, held_out_tasks, play_games, success_rates
from flows.run.pipeline_run import Run
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.rl_training import SNAPSHOTS


@stage_flow("evaluate-policy")
def evaluate_policy(run: Run, policy_stage: str) -> Stage:
    """Stage: the policy of `policy_stage` plays the test games once (`evaluate/success_rate`)."""
    return Stage(
        "evaluate_policy",
        work=partial(_evaluate_policy, run, policy_stage),
        inputs={"policy": StageOutput(policy_stage, "policy"), "tasks": run.data.tasks("test")},
        config=games_config(run),
        code=__name__,
    )


def _evaluate_policy(run: Run, policy_stage: str, inputs: Inputs, work: Path) -> Outcome:
    settings = run.config.evaluation
    tasks = held_out_tasks(inputs["tasks"], settings.tasks)
    _record_reading(run, f"study, {policy_stage}")
    games = play_games(run, {"policy": inputs["policy"]}, tasks)
    (work / "games.json").write_text(json.dumps(games.won["policy"], indent=1))
    rates = success_rates(games.won["policy"], tasks, "evaluate", settings)
    return Outcome({"games": "games.json"}, rates, costs=games.costs)


@stage_flow("evaluate-snapshots")
def evaluate_snapshots(run: Run, policy_stage: str) -> Stage:
    """Stage: each copy of the policy kept by `policy_stage` plays the test games, as a learning curve."""
    return Stage(
        f"snapshots_{policy_stage}",
        work=partial(_evaluate_snapshots, run, policy_stage),
        inputs={"policies": StageOutput(policy_stage, SNAPSHOTS), "tasks": run.data.tasks("test")},
        config=games_config(run),
        code=__name__,
    )


def _evaluate_snapshots(run: Run, policy_stage: str, inputs: Inputs, work: Path) -> Outcome:
    tasks = held_out_tasks(inputs["tasks"], run.config.evaluation.tasks)
    _record_reading(run, f"study, learning curve of {policy_stage}")
    policies = {directory.name: directory for directory in sorted(inputs["policies"].iterdir())}
    games = play_games(run, policies, tasks)
    (work / "snapshots.json").write_text(json.dumps(games.won, indent=1))
    rates = [sum(won.values()) / len(tasks) for won in games.won.values()]
    series = {f"{policy_stage}/held_out_success": rates}
    return Outcome({"games": "snapshots.json"}, {}, series, costs=games.costs)


def _record_reading(run: Run, job: str) -> None:
    tasks = run.data.tasks("test")
    count = run.config.evaluation.tasks
    note_held_out_read(run.root, tasks, job, run.manifest.run_id, count)
