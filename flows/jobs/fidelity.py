"""The complete fidelity measurement of an experience model, on held-out tasks.

    dreamgym fidelity --config configs/quick.yaml

It compares single steps of held-out offline data and single steps of three policies (untrained, cloned,
trained in the dream). It also replays whole dreamed episodes in the real engine. No model was trained on
these tasks. The policies' real steps are counted as check interactions, apart from training. Of logs without
a live world only single steps of held-out data are compared, and judged; no policy is trained.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from components.config import Config
from components.environments import make_adapter
from components.evaluation.metrics.bound import bound_metrics
from components.evaluation.metrics.fidelity_metrics import (
    EXAMINED_POLICIES,
    examined_policy_metrics,
    fidelity_metrics,
)
from components.evaluation.metrics.intervals import exact_value, proportion
from components.evaluation.metrics.judge_axes import axes_metrics
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.evaluation.metrics.open_loop import (
    OpenLoopEpisode,
    open_loop_metrics,
    write_open_loop_episodes,
)
from components.experience.real_replay import Replay, replay
from components.experience.step_judgements import judge_predictions
from components.language.threads import decoding
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp
from components.policy.whole_episodes import play_whole
from components.records import Task, Transition
from components.tracking.stage_store.stage_result import StageResult
from components.trajectories.store import read_tasks, read_transitions, trajectories, write_transitions
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.run_data import encoder_input, has_live_world, policy_backbone
from flows.run.run_dream import open_dream
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.system_turns import policy_system
from flows.stages.clone import clone_policy
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.judge_dream import judge_dream
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data

OPEN_LOOP_STEPS = 20
"""Step limit of the dreamed episodes that are replayed."""
ROWS = 64
"""Tasks that are played as one batch."""


@flow(name="fidelity", validate_parameters=False)
def examine(config: Config, root: Path = Path(), model: StageResult | None = None) -> Run:
    """Measure the fidelity of an experience model; train the models and policies that are missing.

    Args:
        model: finished stage of the experience model; None: the config's own, trained if it is missing.

    Returns:
        the run, with its metrics.
    """
    run = Run(config, root.resolve())
    run.start("fidelity")
    try:
        validate_data(run)
        # This stage also judges single steps of held-out offline data.
        if model is None:
            fine_tune_experience_model(run)
        else:
            run.adopt(model)
        if has_live_world(run):
            clone_policy(run)
            train_in_dream(run)
            # Judge the dream on real steps of the policies, and their whole dreams in the real engine.
            play_policies(run)
            examine_dream(run)
        else:
            get_run_logger().warning(
                "left out: steps of policies, and dreams replayed in the real engine: there is no live world"
            )
        # Let a language model judge some of the steps.
        if config.fidelity.judged:
            judge_dream(run, "fidelity" if has_live_world(run) else "experience_model")
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return run


def policy_inputs(run: Run) -> dict[str, StageOutput | Path]:
    """Return name -> weights of the three policies: untrained, cloned, trained in the dream."""
    trained = [StageOutput("clone", "policy"), StageOutput("synthetic_rl", "policy")]
    return dict(zip(EXAMINED_POLICIES, [policy_backbone(run), *trained], strict=True))


@stage_flow("play-policies")
def play_policies(run: Run) -> Stage:
    """Stage: real episodes of each policy on held-out tasks; `behaviour` is the policy's name."""
    config = run.slice("environment") | {
        "tasks": run.config.fidelity.open_loop_tasks,
        **_sampling_config(run),
    }
    return Stage(
        "policy_episodes",
        work=partial(_play_policies, run),
        inputs={**policy_inputs(run), "fidelity": StageOutput("validate", "fidelity")},
        config=config,
        code=__name__,
    )


def _sampling_config(run: Run) -> dict[str, Any]:
    return run.config.rl.dream.model_dump(include={"temperature", "max_new_tokens"}) | run.computing()


def _play_policies(run: Run, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    tasks = examined_tasks(run)
    metrics = {}
    steps: list[Transition] = []
    restarts = 0
    with closing(live_adapter(config).open()) as world, decoding(config):
        for name in EXAMINED_POLICIES:
            rollouts = _play_in_batches(run, name, inputs[name], world, tasks, config.environment.max_steps)
            episodes = [rollout.trajectory for rollout in rollouts]
            restarts += sum(rollout.tries - 1 for rollout in rollouts)
            metrics[f"fidelity/real_success_rate/held_out/{name}"] = proportion(
                sum(episode.success for episode in episodes), len(episodes)
            )
            steps += [replace(step, behaviour=name) for episode in episodes for step in episode.steps]
    write_transitions(work / "episodes.parquet", steps)
    costs = {"check_interactions": world.interactions, "replayed_episodes": restarts}
    return Outcome({"episodes": "episodes.parquet"}, metrics, costs=costs)


def _play_in_batches(
    run: Run, name: str, directory: Path, world: Any, tasks: list[Task], max_steps: int
) -> list[Rollout]:
    """Play every task once with the policy in `directory`.

    Args:
        name: of the policy.
        world: the real environment or a dream.
    """
    settings = run.config.rl.dream
    policy = Policy.load(
        directory,
        max_new_tokens=settings.max_new_tokens,
        compute=run.compute,
        text_format=run.config.backbone.format,
        system=policy_system(run.config),
    )
    stamp = Stamp(prefix=name)
    rollouts: list[Rollout] = []
    for start in range(0, len(tasks), ROWS):
        rollouts += play_whole(
            policy,
            world,
            tasks[start : start + ROWS],
            max_steps=max_steps,
            temperature=settings.temperature,
            seed=run.config.seed,
            stamp=stamp,
        )
    return rollouts


def examined_tasks(run: Run) -> list[Task]:
    """Return the held-out tasks that the policies play.

    Tasks in known and in unseen worlds alternate, so that a small number contains both.
    """
    tasks = read_tasks(run.data.tasks("fidelity"))
    adapter = make_adapter(run.config.environment)
    parts = [[task for task in tasks if adapter.unseen(task) == unseen] for unseen in (False, True)]
    mixed = [part[number] for number in range(len(tasks)) for part in parts if number < len(part)]
    return mixed[: run.config.fidelity.open_loop_tasks]


@stage_flow("examine-dream")
def examine_dream(run: Run) -> Stage:
    """Stage: judgements of the policies' real steps, replays of their dreamed episodes, and all metrics."""
    config = run.slice("experience_model", "retrieval", "environment")
    config |= {"tasks": run.config.fidelity.open_loop_tasks} | _sampling_config(run)
    config |= {"discount": run.config.rl.dream.discount}
    return Stage(
        "fidelity",
        work=partial(_examine, run),
        inputs={
            **policy_inputs(run),
            "model": StageOutput("experience_model", "model"),
            "judgements": StageOutput("experience_model", "judgements"),
            "episodes": StageOutput("policy_episodes", "episodes"),
            "train": StageOutput("validate", "train"),
            **encoder_input(run),
        },
        config=config,
        code=__name__,
    )


def _examine(run: Run, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    adapter = make_adapter(config.environment)
    tasks = examined_tasks(run)
    real_episodes = trajectories(tasks, read_transitions(inputs["episodes"]))
    model, buffer, dream = open_dream(run, inputs)
    with decoding(config):
        judged = judge_predictions(model, buffer, adapter, real_episodes)
        max_steps = min(OPEN_LOOP_STEPS, config.environment.max_steps)
        dreamed_rollouts = [
            (name, rollout)
            for name in EXAMINED_POLICIES
            for rollout in _play_in_batches(run, name, inputs[name], dream, tasks, max_steps)
        ]
    buffer.close()
    dreamed = [(name, rollout.trajectory) for name, rollout in dreamed_rollouts if rollout.trajectory.steps]
    replays, real_steps = replay(adapter, [episode for _, episode in dreamed])
    rehearsals = [OpenLoopEpisode.of(name, one) for (name, _), one in zip(dreamed, replays, strict=True)]
    write_open_loop_episodes(work / "rehearsals.jsonl", rehearsals)
    offline = read_judgements(inputs["judgements"])
    write_judgements(work / "judgements.parquet", [*offline, *judged])
    denied = [transcript(one) for one in replays if one.dreamed.success and not one.confirmed]
    (work / "denied.json").write_text(json.dumps(denied, indent=1))
    metrics = (
        fidelity_metrics(offline)
        | examined_policy_metrics(judged)
        | open_loop_metrics(rehearsals)
        | axes_metrics(offline)
    )
    metrics |= bound_metrics(
        [*offline, *judged], discount=config.rl.dream.discount, max_steps=config.environment.max_steps
    )
    metrics["fidelity/denied_successes"] = exact_value(len(denied))
    metrics["fidelity/open_loop_unanswered"] = proportion(
        sum(rollout.unparsable for _, rollout in dreamed_rollouts), len(dreamed_rollouts)
    )
    costs = {"check_interactions": real_steps, "tokens_generated": model.tokens, **model.endpoint_costs}
    outputs = {"judgements": "judgements.parquet", "rehearsals": "rehearsals.jsonl", "denied": "denied.json"}
    return Outcome(outputs, metrics, costs=costs)


def transcript(replayed: Replay) -> dict[str, Any]:
    """Return a dreamed success that the real engine denies, with the engine's state at each step.

    In such dreams a policy would learn to exploit errors of the experience model.
    """
    missing = len(replayed.dreamed.steps) - len(replayed.real_states)
    real_states = [*replayed.real_states, *[""] * missing]
    steps = [
        {
            "action": step.action,
            "reasoning": step.reasoning,
            "dreamed": step.next_state,
            "real": state,
            "same": same,
        }
        for step, state, same in zip(replayed.dreamed.steps, real_states, replayed.same, strict=True)
    ]
    return {
        "task": replayed.dreamed.task.instruction,
        "task_id": replayed.dreamed.task.id,
        "why": replayed.reason,
        "steps": steps,
    }
