"""Stage of studies: DPO on pairs of recorded episodes, from the cloned policy. No world is played."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path

from components.errors import TrainingError
from components.policy.policy import Policy
from components.policy.rl.players.logged_player import LoggedPlayer
from components.policy.rl.task_source import EvenTasks
from components.policy.rollout import Rollout, Stamp
from components.records import Trajectory
from flows.run.pipeline_run import Run
from flows.run.run_data import families_config, stream_training_episodes
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.rl_training import build_loop, finish_training, run_loop, snapshots_config

OF_THE_LOGS = ("success_rate", "return_mean", "episode_length", "broken_episodes")
"""Figures of the loop that tell nothing of the policy: they are those of the recorded episodes."""


@stage_flow("logged-rl")
def train_on_logged_pairs(run: Run) -> Stage:
    """Stage: DPO on successes and failures that the cloned behaviours have of the same task."""
    config = run.slice("environment", "rl.baseline") | run.computing(training=True)
    config |= families_config(run) | snapshots_config(run)
    config |= {"cloning": run.config.cloning.model_dump(include={"behaviours", "thoughts"})}
    return Stage(
        "logged_rl",
        work=partial(_train, run),
        inputs={"policy": StageOutput("clone", "policy"), "train": StageOutput("validate", "train")},
        config=config,
        code=__name__,
    )


def _train(run: Run, inputs: Inputs, work: Path) -> Outcome:
    settings = run.config.rl.baseline
    policy = Policy.load(inputs["policy"], compute=run.compute)
    behaviours = run.config.cloning.behaviours
    recorded = stream_training_episodes(run, inputs["train"])
    logged = [episode for episode in recorded if episode.steps[0].behaviour in behaviours]
    episodes = comparable_episodes(logged)
    most = max(map(len, episodes.values()))
    settings = settings.model_copy(update={"num_generations": min(settings.num_generations, most)})
    loop = build_loop(
        run,
        settings,
        policy=policy,
        player=LoggedPlayer(episodes),
        tasks=EvenTasks([some[0].task for some in episodes.values()]),
        stamp=Stamp(),
        seed=run.config.seed + 1,
        train=inputs["train"],
        work=work,
        tokens=lambda: policy.tokens,
    )
    state = run_loop(run, "logged_rl", loop, _no_figures)
    for name in OF_THE_LOGS:
        state.series.pop(name, None)
    return finish_training("logged_rl", policy, state, work)


def comparable_episodes(episodes: list[Trajectory]) -> dict[str, list[Trajectory]]:
    """Return task id -> its episodes of a known outcome, for the tasks that have a success and a failure.

    Raises:
        TrainingError: there is no such task.
    """
    by_task: dict[str, list[Trajectory]] = defaultdict(list)
    for episode in episodes:
        if episode.outcome is not None:
            by_task[episode.task.id].append(episode)
    comparable = {task: some for task, some in by_task.items() if len({one.success for one in some}) == 2}
    if not comparable:
        raise TrainingError(
            f"None of the {len(by_task)} recorded tasks with a known outcome has both a success and a "
            "failure.",
            "Expected pairs to learn a preference from.",
            "Record several episodes a task (data.noisy, data.near_miss), or leave this method out.",
        )
    return comparable


def _no_figures(_iteration: int, _rollouts: list[Rollout]) -> dict[str, float]:
    return {}
