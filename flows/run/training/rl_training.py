"""Shared parts of the RL stages, in the dream and in the real environment: the loop and its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from prefect import get_run_logger

from components.config import Config, RLConfig
from components.config.algorithm_config import GRPOConfig
from components.environments import make_adapter
from components.environments.capabilities import Adapter
from components.environments.delayed import delay_steps
from components.evaluation.metrics.intervals import exact_value
from components.language.threads import decoding, training
from components.language.training.examples import Example
from components.policy.formats.demonstrations import render_demonstration
from components.policy.policy import Policy
from components.policy.policy_snapshots import Snapshots
from components.policy.rl.algorithms.choose import make_algorithm
from components.policy.rl.loop import Loop
from components.policy.rl.loop_state import LoopState
from components.policy.rl.players.player import Player
from components.policy.rl.rewards.outcome_rewards import Progress
from components.policy.rl.rewards.reward_model import RewardModel
from components.policy.rl.task_source import TaskSource
from components.policy.rollout import Rollout, Stamp
from components.records import Transition
from components.trajectories.replay_log import append_once
from flows.checks.reward_checks import has_progress
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.run_data import cloned_behaviours, episodes_to_clone
from flows.run.stage import Outcome

SNAPSHOTS = "snapshots"
"""Output of an RL stage: copies of the policy, one directory after every `study.curve_every` iterations."""
CHECKPOINT = "checkpoint.pt"

OnRollouts = Callable[[int, list[Rollout]], dict[str, float]]
"""Called with an iteration's number and rollouts; returns further figures of the iteration."""


def build_loop(
    run: Run,
    settings: RLConfig,
    *,
    policy: Policy,
    player: Player,
    tasks: TaskSource,
    stamp: Stamp,
    seed: int,
    train: Path,
    work: Path,
    tokens: Callable[[], int],
) -> Loop:
    """Build the RL loop of a stage, for a dream or for the real environment.

    Args:
        player: plays the rollouts in the stage's environment.
        stamp: the origin that is written into the transitions.
        train: validated training transitions, from which demonstrations are taken.
        work: work directory of the stage, with its checkpoint.
        tokens: returns the number of tokens generated so far.
    """
    every = run.config.study.curve_every
    return Loop(
        policy,
        player,
        tasks,
        make_algorithm(settings, policy, *_progress(run, policy, settings, train)),
        settings,
        max_steps=run.config.environment.max_steps,
        seed=seed,
        lora=run.config.lora,
        stamp=stamp,
        checkpoint=work / CHECKPOINT,
        training_context=lambda: training(run.config),
        demonstrations=_demonstrations(run, policy, settings, train),
        snapshots=Snapshots(work / SNAPSHOTS, every) if every else None,
        tokens=tokens,
    )


def _progress(
    run: Run, policy: Policy, settings: RLConfig, train: Path
) -> tuple[Progress | None, dict[str, float]]:
    """Return the score by which HERO ranks episodes: the adapter's, or a model's that the logs trained.

    None if nothing is ranked, or if the world measures no progress, which `make_algorithm` refuses.
    Also returned is a figure of such a model, `reward_model/auc`: how well it tells held-out logged episodes
    apart. It is the same in all iterations, since the model is trained once.

    Raises:
        DataError: all logged episodes have the same outcome.
    """
    options = settings.algorithm
    if not isinstance(options, GRPOConfig) or options.reward == "outcome":
        return None, {}
    if options.reward == "hero":
        return make_adapter(run.config.environment).progress if has_progress(run.config) else None, {}
    model = RewardModel(policy)
    with training(run.config):
        record = model.learn_from_logs(cloned_behaviours(run, train), run.round_seed)
    losses = record.losses
    get_run_logger().info(
        "Reward model: loss %.3f in the first step, %.3f in the last of %d; AUC %.3f on %d held-out "
        "episodes.",
        *(losses[0], losses[-1], len(losses), record.auc, record.held_out),
    )
    return model.score, {"reward_model/auc": record.auc}


def _demonstrations(run: Run, policy: Policy, settings: RLConfig, train: Path) -> list[Example]:
    """Return the first expert demonstrations as training examples; none if RL does not mix them in."""
    if not settings.demonstration_weight:
        return []
    return [
        render_demonstration(policy.text, episode) for episode in episodes_to_clone(run, train, ["expert"])
    ]


def keep_transitions(log: Path, iteration: int, rollouts: Sequence[Rollout]) -> list[Transition]:
    """Append an iteration's transitions to a stage's log and return them.

    Episodes that infrastructure ended, or to which a dream had no answer, are left out. So are steps whose
    action was lost on purpose.
    """
    transitions = [
        step
        for rollout in undisturbed(rollouts)
        if not (rollout.unparsable or rollout.broken)
        for step in rollout.trajectory.steps
    ]
    write_iteration(log, iteration, transitions)
    return transitions


def undisturbed(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts without the steps whose action was lost on purpose: reality would not lose them."""
    return [replace(one, trajectory=one.trajectory.without_lost_actions()) for one in rollouts]


def write_iteration(log: Path, iteration: int, transitions: Sequence[Transition]) -> None:
    """Append an iteration's transitions to a stage's log, unless a resumed iteration already has."""
    append_once(log, transitions, f"iteration-{iteration:04d}")


def run_loop(
    run: Run,
    stage: str,
    loop: Loop,
    on_rollouts: OnRollouts,
    budget: int | None = None,
    on_played_again: Callable[[int], None] | None = None,
) -> LoopState:
    """Run the loop, with a log line and points of MLflow's curves for each iteration.

    Args:
        budget: most real interactions; None: no limit.
        on_played_again: see `Loop.run`.
    """
    log = get_run_logger()

    def log_iteration(iteration: int, figures: dict[str, float]) -> None:
        log.info(
            "iteration %d: success %.2f, length %.1f, entropy %.3f, groups without variance %.2f, generated "
            "tasks %.2f",
            iteration,
            figures["success_rate"],
            figures["episode_length"],
            figures.get("policy_entropy", float("nan")),
            figures["zero_variance_groups"],
            figures["generated_task_share"],
        )
        run.log_curves(iteration - 1, {f"{stage}/{name}": value for name, value in figures.items()})

    with decoding(run.config):
        return loop.run(
            budget=budget,
            on_rollouts=on_rollouts,
            on_iteration=log_iteration,
            on_played_again=on_played_again,
        )


def finish_training(stage: str, policy: Policy, state: LoopState, work: Path) -> Outcome:
    """Save the policy and return the stage's outcome.

    Its metrics are the means of the last five values of each curve; a curve without a value has no metric.
    """
    policy.save(work / "policy")
    (work / CHECKPOINT).unlink(missing_ok=True)
    series = {f"{stage}/{name}": values for name, values in state.series.items()}
    last_values = {
        name: [value for value in values if not math.isnan(value)][-5:] for name, values in series.items()
    }
    metrics = {name: exact_value(sum(last) / len(last)) for name, last in last_values.items() if last}
    outputs = {"policy": "policy"}
    if (work / SNAPSHOTS).is_dir():
        outputs[SNAPSHOTS] = SNAPSHOTS
    return Outcome(outputs, metrics, series)


def training_adapter(config: Config) -> Adapter:
    """Return the adapter of the environment, with slow steps if a study asks for them."""
    study = config.study
    return delay_steps(live_adapter(config), study.real_step_seconds, study.real_rows)


def delay_config(run: Run) -> dict[str, float]:
    """Return the delay of real steps as part of a stage's config; empty if there is none."""
    study = run.config.study
    if not study.real_step_seconds:
        return {}
    return {"real_step_seconds": study.real_step_seconds, "real_rows": study.real_rows}


def snapshots_config(run: Run) -> dict[str, int]:
    """Return `study.curve_every` as part of a stage's config; empty if no snapshots are kept."""
    return {"snapshots": run.config.study.curve_every} if run.config.study.curve_every else {}


def impossible_actions(adapter: Adapter, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return `impossible_actions`: the share of an iteration's actions that the environment refused."""
    steps = [step for rollout in rollouts for step in rollout.trajectory.steps]
    refused = sum(adapter.refused(step.next_state) for step in steps)
    return {"impossible_actions": refused / max(1, len(steps))}
