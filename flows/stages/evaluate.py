"""Step 10: play validation games with the cloned, the dreamed and the refined policy.

The main job never reads the test split (`evaluate_held_out.py` does, for studies).
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from components.evaluation.metrics.intervals import exact_value
from components.evaluation.metrics.paired_outcomes import paired_difference
from components.trajectories.store import read_tasks
from flows.run.games.policy_games import games_config, play_games, success_rates
from flows.run.games.validation_games import validation_file
from flows.run.pipeline_run import Run
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow

POLICIES = {"cloned": "clone", "dreamed": "synthetic_rl", "refined": "sim_to_real"}
"""Name of a policy -> the stage that trains it."""


@stage_flow("evaluate")
def evaluate_policies(run: Run) -> Stage:
    """Stage: each policy plays the same validation games once."""
    policies = {name: StageOutput(stage, "policy") for name, stage in POLICIES.items()}
    return Stage(
        "evaluate",
        work=partial(_evaluate, run),
        inputs={**policies, "tasks": validation_file(run)},
        config=games_config(run),
        code=__name__,
    )


def _evaluate(run: Run, inputs: Inputs, work: Path) -> Outcome:
    settings = run.config.evaluation
    tasks = read_tasks(inputs["tasks"])
    shutil.copyfile(inputs["tasks"], work / "tasks.parquet")
    games = play_games(run, {name: inputs[name] for name in POLICIES}, tasks)
    outcome = Outcome({"tasks": "tasks.parquet"}, costs=games.costs)
    for name in POLICIES:
        outcome.metrics |= success_rates(games.won[name], tasks, f"evaluate/{name}", settings)
        (work / f"{name}.json").write_text(json.dumps(games.won[name], indent=1))
        outcome.outputs[name] = f"{name}.json"
    for later, earlier in (("dreamed", "cloned"), ("refined", "dreamed")):
        won_later, won_earlier = ([games.won[name][task.id] for task in tasks] for name in (later, earlier))
        gain = paired_difference(won_later, won_earlier, settings.confidence)
        outcome.metrics[f"evaluate/{later}_minus_{earlier}"] = gain
    outcome.metrics["evaluate/validation_games"] = exact_value(len(tasks))
    outcome.metrics["evaluate/real_interactions"] = exact_value(games.steps)
    return outcome
