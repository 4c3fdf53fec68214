"""Step 10 without a live world: what logs and the dream say about the cloned and the dreamed policy.

Neither number is a success rate in the real world: a dream may grant what the world would not, and a policy
that differs from the agent of the logs may be better or worse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from components.evaluation.metrics.intervals import clustered_proportion, exact_value, proportion
from components.experience.dream import Dream
from components.language.threads import decoding
from components.policy.logged_actions import same_actions
from components.policy.policy import Policy
from components.policy.rollout import play
from components.records import Task, Trajectory
from components.trajectories.store import read_tasks
from flows.run.pipeline_run import Run
from flows.run.run_data import encoder_input, families_config, stream_episodes
from flows.run.run_dream import open_dream
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.system_turns import policy_system

POLICIES = {"cloned": "clone", "dreamed": "synthetic_rl"}
"""Name of a policy -> the stage that trains it."""


@stage_flow("evaluate-on-logs")
def evaluate_on_logs(run: Run) -> Stage:
    """Stage: success of both policies in the dream on held-out tasks; share of held-out logged actions."""
    config = run.slice("experience_model", "retrieval", "environment", "evaluation")
    config |= {"max_new_tokens": run.config.rl.dream.max_new_tokens}
    return Stage(
        "evaluate_on_logs",
        work=partial(_evaluate, run),
        inputs={
            **{name: StageOutput(stage, "policy") for name, stage in POLICIES.items()},
            "model": StageOutput("experience_model", "model"),
            "train": StageOutput("validate", "train"),
            "fidelity": StageOutput("validate", "fidelity"),
            "tasks": run.data.tasks("test"),
            **encoder_input(run),
        },
        config=config | run.computing() | families_config(run),
        code=__name__,
    )


def _evaluate(run: Run, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    tasks = read_tasks(inputs["tasks"])[: config.evaluation.tasks]
    solved, known = logged_successes(stream_episodes(run, "fidelity", inputs["fidelity"]))
    outcome = Outcome(
        {}, {"logs/logged_success_rate": proportion(len(solved), known, config.evaluation.confidence)}
    )
    model, buffer, dream = open_dream(run, inputs)
    tokens = 0
    with decoding(config):
        for name in POLICIES:
            policy = Policy.load(
                inputs[name],
                max_new_tokens=config.rl.dream.max_new_tokens,
                compute=run.compute,
                system=policy_system(config),
            )
            outcome.metrics |= _dreamed_success(run, name, policy, dream, tasks, work)
            outcome.metrics |= _logged_actions(run, name, policy, solved)
            outcome.outputs[name] = f"{name}.json"
            tokens += policy.tokens
    buffer.close()
    outcome.metrics["logs/real_interactions"] = exact_value(0)
    outcome.costs = {"tokens_generated": tokens + model.tokens, **model.endpoint_costs}
    return outcome


def logged_successes(episodes: Iterable[Trajectory]) -> tuple[list[Trajectory], int]:
    """Return the successes, and the number of episodes of a known outcome. One episode is read at a time."""
    solved: list[Trajectory] = []
    known = 0
    for episode in episodes:
        known += episode.outcome is not None
        if episode.success:
            solved.append(episode)
    return solved, known


def _dreamed_success(
    run: Run, name: str, policy: Policy, dream: Dream, tasks: list[Task], work: Path
) -> dict[str, Any]:
    """Play each task once in the dream, with the sampling of the evaluation; a step without answer fails."""
    settings = run.config.evaluation
    rollouts = play(
        policy,
        dream,
        tasks,
        max_steps=run.config.environment.max_steps,
        temperature=settings.temperature,
        seed=run.config.seed,
    )
    won = {task.id: rollout.trajectory.success for task, rollout in zip(tasks, rollouts, strict=True)}
    (work / f"{name}.json").write_text(json.dumps(won, indent=1))
    unanswered = sum(rollout.unparsable for rollout in rollouts)
    return {
        f"logs/{name}/dreamed_success_rate": proportion(sum(won.values()), len(tasks), settings.confidence),
        f"logs/{name}/unanswered_episodes": proportion(unanswered, len(tasks), settings.confidence),
    }


def _logged_actions(run: Run, name: str, policy: Policy, solved: Sequence[Trajectory]) -> dict[str, Any]:
    """Compare the policy's most probable action with that of held-out successful logs, step by step."""
    steps = same_actions(policy, solved, run.config.seed)
    pairs = [(same, episode.task.id) for episode, row in zip(solved, steps, strict=True) for same in row]
    shares = clustered_proportion([same for same, _ in pairs], [task for _, task in pairs])
    return {f"logs/{name}/same_action_rate": shares}
