"""The whole examination of an experience model: may this dream be trusted, and where not?

    dreamgym fidelity --config configs/quick.yaml

Single steps of held-out offline data and of policies at hand (an untrained one, the cloned one, the one
trained in the dream), and whole dreamed episodes replayed in the real engine. Everything is held out: no
model has seen these tasks. The real steps that the policies take here are check interactions: counted, but
not training.
"""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow

from components.config import Config
from components.environments import make_adapter
from components.evaluation.judge import VERSION, judge_transitions
from components.evaluation.metrics.bound import bound_metrics
from components.evaluation.metrics.fidelity_metrics import EXAMINED, examined_policies, fidelity_metrics
from components.evaluation.metrics.intervals import exact, proportion
from components.evaluation.metrics.judge_axes import axes_metrics
from components.evaluation.metrics.judgements import read_judgements, write_judgements
from components.evaluation.metrics.open_loop import Rehearsal, open_loop_metrics, write_rehearsals
from components.experience.real_replay import Replay, replay
from components.experience.step_judgements import measure
from components.language.endpoint.json_endpoint import Endpoint
from components.language.threads import decoding
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play_whole
from components.records import Task
from components.tracking.stage_store.stage_store import StageResult
from components.trajectories.store import read_tasks, read_transitions, trajectories, write_transitions
from flows.run.pipeline_run import Run
from flows.run.run_data import encoder_input, policy_backbone
from flows.run.run_dream import open_dream
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.teacher_annotations import ANSWERS
from flows.stages.clone import clone_policy
from flows.stages.experience_model import fine_tune_experience_model
from flows.stages.synthetic_rl import train_in_dream
from flows.stages.validate import validate_data

OPEN_LOOP_STEPS = 20
"""Step limit of the dreamed episodes that are replayed."""
ROWS = 64


@flow(name="fidelity", validate_parameters=False)
def examine(config: Config, root: Path = Path(), model: StageResult | None = None) -> Run:
    """Everything that the examination needs, made or reused, then the examination; the run with its metrics.

    Args: model: the finished stage of the experience model to examine; None: the one of this config, made if
    it is not there.
    """
    run = Run(config, root.resolve())
    run.start("fidelity")
    try:
        # 1. Check the offline data.
        validate_data(run)
        # 2. Fine-tune the experience model; its single steps on held-out offline data are judged there.
        if model is None:
            fine_tune_experience_model(run)
        else:
            run.adopt(model)
        # 3. The policies whose actions it must also get right.
        clone_policy(run)
        train_in_dream(run)
        # 4. Let them play held-out tasks in the real environment.
        play_policies(run)
        # 5. Judge the dream on their steps, and whole dreams of theirs in the real engine.
        examine_dream(run)
        # 6. Let a language model judge some of the steps, if one is named.
        if config.fidelity.judged:
            judge_dream(run)
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    return run


def policy_inputs(run: Run) -> dict[str, StageOutput | Path]:
    """Name -> weights of the policies that a dream is examined with."""
    trained = [StageOutput("clone", "policy"), StageOutput("synthetic_rl", "policy")]
    return dict(zip(EXAMINED, [policy_backbone(run), *trained], strict=True))


@stage_flow("play-policies")
def play_policies(run: Run) -> Stage:
    """Real episodes of each policy on held-out tasks, as transitions whose behaviour is the policy's name."""
    config = run.slice("environment") | {"tasks": run.config.fidelity.open_loop_tasks, **_sampling(run)}
    return Stage(
        "policy_episodes",
        work=partial(_play, run),
        inputs={**policy_inputs(run), "fidelity": StageOutput("validate", "fidelity")},
        config=config,
        code=__name__,
    )


def _sampling(run: Run) -> dict[str, Any]:
    return run.config.rl.dream.model_dump(include={"temperature", "max_new_tokens"}) | run.computing()


def _play(run: Run, inputs: Inputs, work: Path) -> Outcome:
    config, tasks = run.config, examined_tasks(run)
    metrics, steps, restarts = {}, [], 0
    with closing(make_adapter(config.environment).open()) as world, decoding():
        for name in EXAMINED:
            rollouts = _rollouts(run, name, inputs[name], world, tasks, config.environment.max_steps)
            episodes = [rollout.trajectory for rollout in rollouts]
            restarts += sum(rollout.tries - 1 for rollout in rollouts)
            metrics[f"fidelity/real_success_rate/held_out/{name}"] = proportion(
                sum(e.success for e in episodes), len(episodes)
            )
            steps += [replace(step, behaviour=name) for episode in episodes for step in episode.steps]
    write_transitions(work / "episodes.parquet", steps)
    costs = {"check_interactions": world.interactions, "replayed_episodes": restarts}
    return Outcome({"episodes": "episodes.parquet"}, metrics, costs=costs)


def _rollouts(
    run: Run, name: str, directory: Path, world: Any, tasks: list[Task], max_steps: int
) -> list[Rollout]:
    length, template = run.config.rl.dream.max_new_tokens, run.config.backbone.chat_template
    policy, stamp = (
        Policy.load(directory, max_new_tokens=length, compute=run.compute, chat_template=template),
        Stamp(prefix=name),
    )
    played: list[Rollout] = []
    for start in range(0, len(tasks), ROWS):
        part, temperature = tasks[start : start + ROWS], run.config.rl.dream.temperature
        played += play_whole(
            policy,
            world,
            part,
            max_steps=max_steps,
            temperature=temperature,
            seed=run.config.seed,
            stamp=stamp,
        )
    return played


def examined_tasks(run: Run) -> list[Task]:
    """The held-out tasks that the policies play: of known and of unseen worlds in turn, so that a few are of
    both.
    """
    tasks, adapter = read_tasks(run.data.tasks("fidelity")), make_adapter(run.config.environment)
    parts = [[task for task in tasks if adapter.unseen(task) == unseen] for unseen in (False, True)]
    mixed = [part[place] for place in range(len(tasks)) for part in parts if place < len(part)]
    return mixed[: run.config.fidelity.open_loop_tasks]


@stage_flow("examine-dream")
def examine_dream(run: Run) -> Stage:
    """Judgements of the policies' real steps, their dreamed episodes in the real engine, and all metrics."""
    config = run.slice("experience_model", "retrieval", "environment")
    config |= {"tasks": run.config.fidelity.open_loop_tasks} | _sampling(run)
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
    config, adapter, tasks = run.config, make_adapter(run.config.environment), examined_tasks(run)
    played = read_transitions(inputs["episodes"])
    model, buffer, dream = open_dream(run, inputs["model"], inputs["train"])
    with decoding():
        judged = measure(model, buffer, adapter, trajectories(tasks, played))
        max_steps = min(OPEN_LOOP_STEPS, config.environment.max_steps)
        dreamed_rollouts = [
            (name, rollout)
            for name in EXAMINED
            for rollout in _rollouts(run, name, inputs[name], dream, tasks, max_steps)
        ]
    buffer.close()
    dreamed = [(name, rollout.trajectory) for name, rollout in dreamed_rollouts if rollout.trajectory.steps]
    replays, real_steps = replay(adapter, [episode for _, episode in dreamed])
    rehearsals = [Rehearsal.of(name, found) for (name, _), found in zip(dreamed, replays, strict=True)]
    write_rehearsals(work / "rehearsals.jsonl", rehearsals)
    offline = read_judgements(inputs["judgements"])
    write_judgements(work / "judgements.parquet", [*offline, *judged])
    denied = [transcript(found) for found in replays if found.dreamed.success and not found.confirmed]
    (work / "denied.json").write_text(json.dumps(denied, indent=1))
    metrics = (
        fidelity_metrics(offline)
        | examined_policies(judged)
        | open_loop_metrics(rehearsals)
        | axes_metrics(offline)
    )
    metrics |= bound_metrics(
        [*offline, *judged], discount=config.rl.dream.discount, max_steps=config.environment.max_steps
    )
    metrics["fidelity/denied_successes"] = exact(len(denied))
    metrics["fidelity/open_loop_unanswered"] = proportion(
        sum(rollout.unparsable for _, rollout in dreamed_rollouts), len(dreamed_rollouts)
    )
    costs = {"check_interactions": real_steps, "tokens_generated": model.tokens}
    outputs = {"judgements": "judgements.parquet", "rehearsals": "rehearsals.jsonl", "denied": "denied.json"}
    return Outcome(outputs, metrics, costs=costs)


@stage_flow("judge-dream")
def judge_dream(run: Run) -> Stage:
    """The paper's four rubrics by a language model, and its agreement with the same rubrics from facts."""
    config = {"judged": run.config.fidelity.judged, "version": VERSION}
    config |= run.config.endpoint.model_dump(include={"model", "temperature", "max_tokens", "json_mode"})
    return Stage(
        "judge",
        work=partial(_judge, run),
        inputs={"judgements": StageOutput("fidelity", "judgements")},
        config=config,
        code=__name__,
    )


def _judge(run: Run, inputs: Inputs, work: Path) -> Outcome:
    judgements = read_judgements(inputs["judgements"])
    count = min(run.config.fidelity.judged, len(judgements))
    sample = random.Random(run.config.seed).sample(judgements, count)
    with Endpoint(run.config.endpoint, run.root / ANSWERS) as endpoint:
        metrics, records = judge_transitions(endpoint, sample, read_tasks(run.data.tasks("fidelity")))
    lines = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    (work / "verdicts.jsonl").write_text(lines, encoding="utf-8")
    return Outcome({"verdicts": "verdicts.jsonl"}, metrics, costs=endpoint.usage.costs())


def transcript(found: Replay) -> dict[str, Any]:
    """A dreamed success that the real engine denies, step by step beside what the engine says: where a policy
    would learn to cheat.
    """
    real = [*found.real_states, *[""] * (len(found.dreamed.steps) - len(found.real_states))]
    steps = [
        {
            "action": step.action,
            "reasoning": step.reasoning,
            "dreamed": step.next_state,
            "real": state,
            "same": same,
        }
        for step, state, same in zip(found.dreamed.steps, real, found.same, strict=True)
    ]
    return {
        "task": found.dreamed.task.instruction,
        "task_id": found.dreamed.task.id,
        "why": found.reason,
        "steps": steps,
    }
