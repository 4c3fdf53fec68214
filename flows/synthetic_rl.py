"""Stages 3 to 5: clone a policy, check the dream on it, train it in the dream, check the dream again,
snapshot the buffer.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Adapter
from components.errors import TrainingError
from components.evaluation.fidelity import Metrics, check_agreement, policy_metrics
from components.evaluation.intervals import Estimate, exact
from components.evaluation.watch import CHECKS, DreamWatch
from components.experience.agreement import replay
from components.experience.clusters import cluster_tasks
from components.experience.curriculum import Curriculum
from components.experience.dream import Dream
from components.experience.encoders import make_encoder
from components.experience.experience_model import ExperienceModel
from components.experience.fidelity import measure
from components.experience.replay_buffer import ReplayBuffer
from components.experience.replay_record import replay_record
from components.language.examples import Example
from components.language.weight_files import stored_weights
from components.policy.algorithms import make_algorithm
from components.policy.cloning import clone
from components.policy.early_experience import explore, reflections, world_examples
from components.policy.loop import EvenTasks, Loop, LoopState, Snapshots, TaskSource, reached
from components.policy.players import Processes
from components.policy.policy import Policy
from components.policy.prompt import render_demonstration
from components.policy.rollout import Rollout, Stamp, evenly, play, play_whole
from components.records import SYNTHETIC, Task, Trajectory, Transition
from components.tracking.hashes import tree_hash
from components.tracking.stages import StageResult
from components.training_config import RLConfig
from components.trajectories.store import append_transitions, held_out, read_log
from flows.agreement_batches import (
    AgreementCheck,
    agreement_metrics,
    batches_of,
    play_until_decided,
    undecided_note,
)
from flows.experience_model import (
    backbone_of,
    buffer_of,
    encoder_of,
    families_of,
    kept_below,
    lessons_of,
    model_of,
    taught_episodes,
    taught_tasks,
)
from flows.progress import drawing
from flows.threads import decoding, training
from flows.workspace import OF_RUN, Outcome, Workspace

CODE = ["flows.synthetic_rl"]
SNAPSHOTS = "snapshots"
"""Output of an RL stage: policies on the way, a directory an iteration."""


@flow(name="clone", flow_run_name=OF_RUN, validate_parameters=False)
def clone_policy(run: Workspace) -> StageResult:
    """Behaviour cloning on the first expert demonstrations, or on whatever `cloning.behaviours` names."""
    inputs = {
        "backbone": tree_hash(backbone_of(run)),
        "train": run.results["validate"].output_hashes["train"],
    }
    config = run.slice("cloning", "environment") | run.computing(training=True) | families_of(run)
    config |= {"chat_template": run.config.backbone.chat_template}
    return run.stage("clone", lambda work: _clone(run, work), inputs=inputs, config=config, code=CODE)


def _clone(run: Workspace, work: Path) -> Outcome:
    config, adapter = run.config, make_adapter(run.config.environment)
    shown = _episodes_by(run, config.cloning.behaviours)
    policy = Policy.load(backbone_of(run), compute=run.compute, chat_template=config.backbone.chat_template)
    warmth, spent = _early_experience(config, adapter, policy, shown)
    with training(config):
        record = clone(
            policy,
            shown,
            adapter.think,
            config.cloning,
            config.seed,
            work / "checkpoint.pt",
            **warmth,
            on_figures=drawing("clone", run.log_curves),
            on_world_figures=drawing("clone/world", run.log_curves),
        )
    policy.save(work / "policy")
    for checkpoint in work.glob("*.pt"):
        checkpoint.unlink()
    metrics = {"clone/loss": exact(record.final_loss), "clone/demonstrations": exact(len(shown))}
    metrics["clone/real_interactions"] = exact(spent)
    costs = {"tokens_trained": record.tokens, "real_interactions": spent}
    return Outcome({"policy": "policy"}, metrics, {"clone/loss": record.losses}, costs=costs)


def _episodes_by(run: Workspace, behaviours: Sequence[str]) -> list[Trajectory]:
    """The first `cloning.demonstrations` episodes of these behaviours; an expert's only where it won."""
    found = [
        e
        for e in taught_episodes(run)
        if e.steps[0].behaviour in behaviours and (e.success or e.steps[0].behaviour != "expert")
    ]
    if not found:
        raise TrainingError(
            f"The offline data holds no episode of {' or '.join(behaviours)} (of an expert: none that won).",
            "Cloning needs some.",
            "Set data.expert=1 and run `dreamgym collect`.",
        )
    return found[: run.config.cloning.demonstrations]


def demonstrations_of(run: Workspace, policy: Policy, settings: RLConfig) -> list[Example]:
    """The first expert demonstrations, as the policy reads them; none for RL that does not mix them in."""
    if not settings.demonstration_weight:
        return []
    adapter, shown = make_adapter(run.config.environment), _episodes_by(run, ["expert"])
    thoughts = (
        [adapter.think(episode.up_to(step.step), step.action) for step in episode.steps] for episode in shown
    )
    return [
        render_demonstration(policy.vocabulary, episode, said)
        for episode, said in zip(shown, thoughts, strict=True)
    ]


def _early_experience(
    config: Config, adapter: Adapter, policy: Policy, shown: Sequence[Trajectory]
) -> tuple[dict[str, Any], int]:
    """What `clone` learns from beside the demonstrations, and the real steps that it cost."""
    if config.cloning.early_experience == "none":
        return {}, 0
    world = adapter.open()
    try:
        explored = explore(world, shown, config.cloning.alternatives, config.seed)
    finally:
        world.close()
    if config.cloning.early_experience == "world_modelling":
        return {"world": world_examples(policy.vocabulary, explored)}, world.interactions
    return {"reflections": reflections(explored, adapter.reflect)}, world.interactions


@flow(name="check-dream", flow_run_name=OF_RUN, validate_parameters=False)
def check_dream(run: Workspace, policy: str, suffix: str) -> StageResult:
    """The dream held against the real engine on the episodes of the policy that stage `policy` made;
    gated.
    """
    inputs = {
        "model": run.results["experience_model"].output_hashes["model"],
        "policy": run.results[policy].output_hashes["policy"],
    }
    inputs |= {"train": run.results["validate"].output_hashes["train"], **encoder_of(run)}
    config = run.slice("experience_model", "retrieval", "environment") | {
        "tasks": run.config.fidelity.policy_tasks
    }
    config |= (
        run.config.synthetic_rl.model_dump(include={"temperature", "max_new_tokens"})
        | run.computing()
        | families_of(run)
    )
    config |= {"gate": run.config.fidelity.model_dump(include={"min_rollout_agreement", "max_batches"})}
    result = run.stage(
        f"check_{suffix}",
        lambda work: _check(run, work, policy, suffix),
        inputs=inputs,
        config=config,
        code=CODE,
    )
    check_agreement(
        {name: Estimate.from_json(entry) for name, entry in result.metrics.items()},
        run.config.fidelity,
        suffix,
    )
    return result


def _check(run: Workspace, work: Path, policy_stage: str, suffix: str) -> Outcome:
    config, adapter = run.config, make_adapter(run.config.environment)
    settings, known = config.fidelity, taught_tasks(run)
    drawn = evenly(known, settings.policy_tasks * settings.max_batches, config.seed)
    batches = batches_of(drawn, len(known), settings.policy_tasks)
    tasks = batches[0]
    model, buffer, dream = open_dream(run)
    policy_directory, length = run.results[policy_stage].outputs["policy"], config.synthetic_rl.max_new_tokens
    policy = Policy.load(policy_directory, max_new_tokens=length, compute=run.compute)
    options: dict[str, Any] = {
        "max_steps": config.environment.max_steps,
        "temperature": config.synthetic_rl.temperature,
    }

    def dream_batch(batch: Sequence[Task], seed: int) -> list[Rollout]:
        return play(policy, dream, batch, seed=seed, **options)

    check, replay_batch = AgreementCheck(), partial(replay, adapter)
    with decoding():
        check.add(dream_batch(tasks, config.seed), replay_batch)
        with closing(adapter.open()) as real_world:
            real = play_whole(policy, real_world, tasks, seed=config.seed, **options)
            spent = real_world.interactions
        judged = measure(model, buffer, adapter, [r.trajectory for r in real if r.trajectory.steps])
        play_until_decided(check, batches, settings, config.seed, dream_batch, replay_batch)
    buffer.close()
    spent += check.steps
    wins, dreamed = sum(r.trajectory.success for r in real), len(check.dreamed)
    metrics: Metrics = policy_metrics(judged, check.replays, dreamed, wins, suffix=suffix, played=len(real))
    metrics |= agreement_metrics(check, settings, suffix)
    (work / "replays.json").write_text(
        json.dumps([replay_record(adapter, r) for r in check.replays], indent=1)
    )
    metrics[f"fidelity/check_interactions/{suffix}"] = exact(spent)
    metrics[f"fidelity/refused_answers_a_step/{suffix}"] = exact(model.refused / max(1, dream.interactions))
    costs = {"check_interactions": spent, "replayed_episodes": sum(r.tries - 1 for r in real)}
    costs["tokens_generated"] = model.tokens + policy.tokens
    if note := undecided_note(check, settings, suffix):
        get_run_logger().warning(note)
    return Outcome(
        {"replays": "replays.json"}, metrics, details={"gate_note": note} if note else {}, costs=costs
    )


def open_dream(run: Workspace) -> tuple[ExperienceModel, ReplayBuffer, Dream]:
    """The dream of this run's experience model and offline data."""
    buffer = buffer_of(run, lessons_of(run))
    model = model_of(run.config, run.results["experience_model"].outputs["model"])
    return model, buffer, _dream(run.config, model, buffer)


def dream_over(config: Config, directory: Path, buffer: ReplayBuffer) -> Dream:
    """The dream of the experience model in `directory` over a buffer."""
    return _dream(config, model_of(config, directory), buffer)


def _dream(config: Config, model: ExperienceModel, buffer: ReplayBuffer) -> Dream:
    adapter, settings = make_adapter(config.environment), config.experience_model
    contradiction = adapter.contradiction if settings.coherent else None
    return Dream(
        model, buffer, contradiction, adapter.objection if settings.premise else None, adapter.revealing
    )


@flow(name="synthetic-rl", flow_run_name=OF_RUN, validate_parameters=False)
def train_in_dream(run: Workspace) -> StageResult:
    """RL inside the dream, zero real interactions, new transitions going back to the buffer."""
    inputs = {
        "model": run.results["experience_model"].output_hashes["model"],
        "policy": run.results["clone"].output_hashes["policy"],
    }
    inputs |= {"train": run.results["validate"].output_hashes["train"], **encoder_of(run)}
    config = run.slice(
        "experience_model", "retrieval", "environment", "curriculum", "synthetic_rl"
    ) | run.computing(training=True)
    config |= families_of(run)
    config |= (
        {"floor": run.config.fidelity.min_rollout_agreement} if run.config.synthetic_rl.check_every else {}
    )
    config |= snapshots_of(run)
    return run.stage(
        "synthetic_rl", lambda work: _dream_rl(run, work), inputs=inputs, config=config, code=CODE
    )


def _dream_rl(run: Workspace, work: Path) -> Outcome:
    config, log_dir = run.config, work / "replay"
    directory = run.results["experience_model"].outputs["model"]
    known = [step for episode in lessons_of(run) for step in episode.steps]
    weights = stored_weights(run.results["clone"].outputs["policy"]).count
    dreamed = read_log(
        log_dir, shards=reached(work / "checkpoint.pt", weights)
    )  # an iteration cut off is played and remembered again
    open_world = partial(dream_of, directory, config, known, dreamed, held_out(run.data), run.root)
    with Processes(config.synthetic_rl.processes, open_world) as dreams:
        return _learn(run, work, dreams, model_of(config, directory))


def dream_of(
    model: Path,
    config: Config,
    known: list[Transition],
    dreamed: list[Transition],
    hidden: set[str],
    root: Path,
) -> Dream:
    """The dream of the experience model in `model` over a buffer of the transitions `known`, and of those
    `dreamed` so far.
    """
    buffer = ReplayBuffer(config.retrieval, known, hidden=hidden, **kept_below(root))
    buffer.add(dreamed)
    return dream_over(config, model, buffer)


def _learn(run: Workspace, work: Path, dreams: Processes, model: ExperienceModel) -> Outcome:
    config, adapter, tasks = run.config, make_adapter(run.config.environment), taught_tasks(run)
    cluster = _clustering(run) if config.synthetic_rl.algorithm == "ppo" else None
    curriculum = Curriculum(
        tasks,
        config.curriculum,
        lambda parents, seed: model.vary(parents, seed=seed),
        adapter.feasible,
        cluster,
    )
    source: TaskSource = curriculum if config.curriculum.enabled else EvenTasks(tasks)
    policy = Policy.load(run.results["clone"].outputs["policy"], compute=run.compute)
    stamp = Stamp(SYNTHETIC, run.results["clone"].key[:12], run.manifest.run_id, "dream")
    algorithm = make_algorithm(config.synthetic_rl, policy, adapter.progress)
    loop = Loop(
        policy,
        dreams,
        source,
        algorithm,
        config.synthetic_rl,
        max_steps=config.environment.max_steps,
        seed=config.seed,
        stamp=stamp,
        checkpoint=work / "checkpoint.pt",
        updating=lambda: training(config),
        demonstrations=demonstrations_of(run, policy, config.synthetic_rl),
        snapshots=snapshots_in(run, work),
        tokens=lambda: model.tokens + dreams.tokens + policy.tokens,
    )

    settings = config.synthetic_rl
    every = min(
        settings.check_every, settings.iterations
    )  # a training shorter than the default is looked at once, in its end
    watch = DreamWatch(
        adapter, every=every, most=settings.check_replays, floor=config.fidelity.min_rollout_agreement
    )

    rejected = _RejectedAnswers(dreams)

    def keep(iteration: int, rollouts: list[Rollout]) -> dict[str, float]:
        fresh = [step for rollout in rollouts if not rollout.unparsable for step in rollout.trajectory.steps]
        _keep_shard(work / "replay", iteration, fresh)
        dreams.remember(fresh)
        return (
            told(adapter, rollouts) | rejected.figures() | watch.look(iteration, rollouts, loop.state.series)
        )

    state = run_loop(run, "synthetic_rl", loop, keep)
    policy.save(work / "policy")
    (work / "checkpoint.pt").unlink(missing_ok=True)
    generated = list(getattr(source, "generated", {}).values())
    details = {
        "curriculum": getattr(source, "life", []),
        "generated": [_described(task) for task in generated[:50]],
    }
    outcome = rl_outcome("synthetic_rl", state, details)
    outcome.metrics["synthetic_rl/real_interactions"] = exact(0)
    outcome.metrics["synthetic_rl/dreamed_interactions"] = exact(state.interactions)
    outcome.outputs |= {"policy": "policy", "replay": "replay"} | snapshots_made(work)
    spent = int(sum(state.series.get(CHECKS, [])))
    outcome.metrics[f"synthetic_rl/{CHECKS}"], outcome.costs[CHECKS] = exact(spent), spent
    outcome.costs["tokens_generated"] = state.tokens
    return outcome


def _clustering(run: Workspace) -> Callable[[Sequence[Task], int], list[int]]:
    """How tasks are brought into groups that PPO's curriculum compares."""
    encoder = make_encoder(run.config.retrieval, kept_below(run.root)["embeddings"])
    return lambda tasks, seed: cluster_tasks(tasks, encoder, run.config.synthetic_rl.ppo.clusters, seed)


def _keep_shard(log_dir: Path, iteration: int, transitions: list[Transition]) -> None:
    """Append an iteration's transitions to the stage's log, once: a resumed iteration that had already
    written them is the same.
    """
    name = f"iteration-{iteration:04d}"
    if not any(shard.stem.endswith(name) for shard in log_dir.glob("*.parquet")):
        append_transitions(log_dir, transitions, name)


def told(adapter: Adapter, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """What the adapter alone can say of an iteration's rollouts: the share of actions that the world did not
    carry out.
    """
    steps = [step for rollout in rollouts for step in rollout.trajectory.steps]
    return {
        "impossible_actions": sum(adapter.refused(step.next_state) for step in steps) / max(1, len(steps))
    }


def _described(task: Task) -> str:
    return f"{task.instruction} (varied from {task.parent})"


def snapshots_of(run: Workspace) -> dict[str, int]:
    """What a key must know of `study.curve_every`: nothing where no snapshot is asked for."""
    return {"snapshots": run.config.study.curve_every} if run.config.study.curve_every else {}


def snapshots_in(run: Workspace, work: Path) -> Snapshots | None:
    """Which policies an RL stage keeps on its way."""
    return Snapshots(work / SNAPSHOTS, run.config.study.curve_every) if run.config.study.curve_every else None


def snapshots_made(work: Path) -> dict[str, str]:
    """The output that holds them, if there are any."""
    return {SNAPSHOTS: SNAPSHOTS} if (work / SNAPSHOTS).is_dir() else {}


class _RejectedAnswers:
    """How many answers of the experience model a dream did not believe, by kind, a dreamed step: what it
    catches of its hallucinations.
    """

    def __init__(self, dreams: Processes) -> None:
        self._dreams, self._before, self._steps = dreams, Counter[str](dreams.rejected), dreams.interactions

    def figures(self) -> dict[str, float]:
        """Of the steps since the last call."""
        steps = max(1, self._dreams.interactions - self._steps)
        found = {name: (count - self._before[name]) / steps for name, count in self._dreams.rejected.items()}
        self._before, self._steps = Counter(self._dreams.rejected), self._dreams.interactions
        return found


def run_loop(
    run: Workspace, stage: str, loop: Loop, keep: Any = None, budget: int | None = None
) -> LoopState:
    """Run the RL loop of `stage` with a line of log an iteration, and its figures as curves in MLflow."""
    log = get_run_logger()

    def say(iteration: int, figures: dict[str, float]) -> None:
        entropy = figures.get("policy_entropy", float("nan"))
        log.info(
            "iteration %d: success %.2f, length %.1f, entropy %.3f, groups without variance %.2f, generated "
            "tasks %.2f",
            iteration,
            figures["success_rate"],
            figures["episode_length"],
            entropy,
            figures["zero_variance_groups"],
            figures["generated_task_share"],
        )
        run.log_curves(iteration - 1, {f"{stage}/{name}": value for name, value in figures.items()})

    with decoding():
        state = loop.run(budget=budget, on_rollouts=keep, on_iteration=say)
    loop.interpolate()
    return state


def rl_outcome(stage: str, state: LoopState, details: dict[str, Any]) -> Outcome:
    """Curves of an RL stage, and the mean of their last five values as its metrics; what no iteration had is
    no metric.
    """
    series = {f"{stage}/{name}": values for name, values in state.series.items()}
    known = {
        name: [value for value in values if not math.isnan(value)][-5:] for name, values in series.items()
    }
    metrics = {name: exact(sum(last) / len(last)) for name, last in known.items() if last}
    return Outcome({}, metrics, series, details)
