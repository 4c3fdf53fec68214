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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prefect import flow

from components.config import Config
from components.environments import make_adapter
from components.evaluation.axes import axes_metrics
from components.evaluation.bound import bound_metrics
from components.evaluation.fidelity import EXAMINED, examined_policies, fidelity_metrics
from components.evaluation.intervals import exact, proportion
from components.evaluation.judge import VERSION, judge_transitions
from components.evaluation.judgements import read_judgements, write_judgements
from components.evaluation.open_loop import Rehearsal, open_loop_metrics, write_rehearsals
from components.experience.agreement import Replay, replay
from components.experience.fidelity import measure
from components.language.endpoint import Endpoint
from components.policy.policy import Policy
from components.policy.rollout import Rollout, Stamp, play_whole
from components.records import Task
from components.tracking.hashes import tree_hash
from components.tracking.stages import StageResult
from components.trajectories.store import read_tasks, read_transitions, trajectories, write_transitions
from flows.experience_model import backbone_of, encoder_of, fine_tune_experience_model
from flows.synthetic_rl import clone_policy, open_dream, train_in_dream
from flows.teaching import ANSWERS
from flows.threads import decoding
from flows.validate import validate_data
from flows.workspace import OF_RUN, Outcome, Workspace

CODE = ["flows.fidelity"]
OPEN_LOOP_STEPS = 20
"""Step limit of the dreamed episodes that are replayed."""
ROWS = 64


@flow(name="fidelity", validate_parameters=False)
def examine(config: Config, root: Path = Path(), model: StageResult | None = None) -> Workspace:
    """Everything that the examination needs, made or reused, then the examination; the run with its metrics.

    Args: model: the finished stage of the experience model to examine; None: the one of this config, made if
    it is not there.
    """
    run = Workspace(config, root.resolve())
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


def policies_of(run: Workspace) -> dict[str, tuple[Path, str]]:
    """Name -> directory and hash of the policies that a dream is examined with."""
    trained = [run.results[stage] for stage in ("clone", "synthetic_rl")]
    found = [(backbone_of(run), tree_hash(backbone_of(run)))]
    found += [(result.outputs["policy"], result.output_hashes["policy"]) for result in trained]
    return dict(zip(EXAMINED, found, strict=True))


@flow(name="play-policies", flow_run_name=OF_RUN, validate_parameters=False)
def play_policies(run: Workspace) -> StageResult:
    """Real episodes of each policy on held-out tasks, as transitions whose behaviour is the policy's name."""
    policies = policies_of(run)
    inputs = {name: key for name, (_, key) in policies.items()} | {
        "fidelity": run.results["validate"].output_hashes["fidelity"]
    }
    config = run.slice("environment") | {"tasks": run.config.fidelity.open_loop_tasks, **_sampling(run)}
    directories = {name: directory for name, (directory, _) in policies.items()}
    return run.stage(
        "policy_episodes", lambda work: _play(run, work, directories), inputs=inputs, config=config, code=CODE
    )


def _sampling(run: Workspace) -> dict[str, Any]:
    return run.config.synthetic_rl.model_dump(include={"temperature", "max_new_tokens"}) | run.computing()


def _play(run: Workspace, work: Path, policies: dict[str, Path]) -> Outcome:
    world, steps, tasks = make_adapter(run.config.environment).open(), [], examined_tasks(run)
    metrics, replayed = {}, 0
    try:
        with decoding():
            for name, directory in policies.items():
                rollouts = _rollouts(run, name, directory, world, tasks, run.config.environment.max_steps)
                episodes = [rollout.trajectory for rollout in rollouts]
                replayed += sum(rollout.tries - 1 for rollout in rollouts)
                metrics[f"fidelity/real_success_rate/held_out/{name}"] = proportion(
                    sum(e.success for e in episodes), len(episodes)
                )
                steps += [replace(step, behaviour=name) for episode in episodes for step in episode.steps]
    finally:
        world.close()
    write_transitions(work / "episodes.parquet", steps)
    costs = {"check_interactions": world.interactions, "replayed_episodes": replayed}
    return Outcome({"episodes": "episodes.parquet"}, metrics, costs=costs)


def _rollouts(
    run: Workspace, name: str, directory: Path, world: Any, tasks: list[Task], max_steps: int
) -> list[Rollout]:
    length, template = run.config.synthetic_rl.max_new_tokens, run.config.backbone.chat_template
    policy, stamp = (
        Policy.load(directory, max_new_tokens=length, compute=run.compute, chat_template=template),
        Stamp(prefix=name),
    )
    played: list[Rollout] = []
    for start in range(0, len(tasks), ROWS):
        part, temperature = tasks[start : start + ROWS], run.config.synthetic_rl.temperature
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


def examined_tasks(run: Workspace) -> list[Task]:
    """The held-out tasks that the policies play: of known and of unseen worlds in turn, so that a few are of
    both.
    """
    tasks, adapter = read_tasks(run.data.tasks("fidelity")), make_adapter(run.config.environment)
    parts = [[task for task in tasks if adapter.unseen(task) == unseen] for unseen in (False, True)]
    mixed = [part[place] for place in range(len(tasks)) for part in parts if place < len(part)]
    return mixed[: run.config.fidelity.open_loop_tasks]


@flow(name="examine-dream", flow_run_name=OF_RUN, validate_parameters=False)
def examine_dream(run: Workspace) -> StageResult:
    """Judgements of the policies' real steps, dreamed episodes of theirs in the real engine, and all
    metrics.
    """
    model, policies = run.results["experience_model"], policies_of(run)
    inputs = {name: key for name, (_, key) in policies.items()}
    inputs |= {name: model.output_hashes[name] for name in ("model", "judgements")}
    inputs["episodes"] = run.results["policy_episodes"].output_hashes["episodes"]
    inputs |= {"train": run.results["validate"].output_hashes["train"], **encoder_of(run)}
    config = run.slice("experience_model", "retrieval", "environment") | {
        "tasks": run.config.fidelity.open_loop_tasks
    }
    config |= _sampling(run) | {"discount": run.config.synthetic_rl.discount}
    return run.stage("fidelity", lambda work: _examine(run, work), inputs=inputs, config=config, code=CODE)


def _examine(run: Workspace, work: Path) -> Outcome:
    config, adapter, tasks = run.config, make_adapter(run.config.environment), examined_tasks(run)
    played = read_transitions(run.results["policy_episodes"].outputs["episodes"])
    model, buffer, dream = open_dream(run)
    with decoding():
        judged = measure(model, buffer, adapter, trajectories(tasks, played))
        steps = min(OPEN_LOOP_STEPS, config.environment.max_steps)
        parts = [
            (name, _rollouts(run, name, directory, dream, tasks, steps))
            for name, (directory, _) in policies_of(run).items()
        ]
    buffer.close()
    played_on = [(name, rollout) for name, rollouts in parts for rollout in rollouts]
    dreamed = [(name, rollout.trajectory) for name, rollout in played_on if rollout.trajectory.steps]
    replays, spent = replay(adapter, [episode for _, episode in dreamed])
    rehearsals = [Rehearsal.of(name, found) for (name, _), found in zip(dreamed, replays, strict=True)]
    write_rehearsals(work / "rehearsals.jsonl", rehearsals)
    offline = read_judgements(run.results["experience_model"].outputs["judgements"])
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
        [*offline, *judged], discount=config.synthetic_rl.discount, max_steps=config.environment.max_steps
    )
    metrics["fidelity/denied_successes"] = exact(len(denied))
    metrics["fidelity/open_loop_unanswered"] = proportion(
        sum(rollout.unparsable for _, rollout in played_on), len(played_on)
    )
    costs = {"check_interactions": spent, "tokens_generated": model.tokens}
    outputs = {"judgements": "judgements.parquet", "rehearsals": "rehearsals.jsonl", "denied": "denied.json"}
    return Outcome(outputs, metrics, costs=costs)


@flow(name="judge-dream", flow_run_name=OF_RUN, validate_parameters=False)
def judge_dream(run: Workspace) -> StageResult:
    """The paper's four rubrics by a language model, and its agreement with the same rubrics computed from
    facts.
    """
    inputs = {"judgements": run.results["fidelity"].output_hashes["judgements"]}
    config = {"judged": run.config.fidelity.judged, "version": VERSION}
    config |= run.config.endpoint.model_dump(include={"model", "temperature", "max_tokens", "json_mode"})
    return run.stage("judge", lambda work: _judge(run, work), inputs=inputs, config=config, code=CODE)


def _judge(run: Workspace, work: Path) -> Outcome:
    found = read_judgements(run.results["fidelity"].outputs["judgements"])
    asked = random.Random(run.config.seed).sample(found, min(run.config.fidelity.judged, len(found)))
    with Endpoint(run.config.endpoint, run.root / ANSWERS) as endpoint:
        metrics, records = judge_transitions(endpoint, asked, read_tasks(run.data.tasks("fidelity")))
    (work / "verdicts.jsonl").write_text(
        "".join(json.dumps(asdict(record)) + "\n" for record in records), encoding="utf-8"
    )
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
