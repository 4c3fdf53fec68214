"""Step 6: train the policy with RL in the dream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from components.config import Config
from components.environments import make_adapter
from components.evaluation.dream_watch import CHECK_INTERACTIONS, DreamWatch
from components.evaluation.metrics.intervals import exact_value
from components.experience.dream import Dream
from components.experience.dreaming_model import DreamingModel
from components.experience.real_replay import replayed_steps
from components.experience.retrieval.encoders import make_encoder
from components.experience.tasks.curriculum import Curriculum
from components.experience.tasks.judged_tasks import JudgedFeasibility
from components.experience.tasks.task_clusters import cluster_tasks
from components.experience.tasks.task_feasibility import task_feasibility
from components.language.checkpoint_files.weight_files import stored_weights
from components.language.endpoint.json_endpoint import Endpoint
from components.policy.policy import Policy
from components.policy.rl.loop import Loop
from components.policy.rl.loop_checkpoints import read_iteration_count
from components.policy.rl.players.player import DreamPlayer, LocalDreamPlayer
from components.policy.rl.players.rollout_workers import ProcessPoolPlayer, WorkersPlayer
from components.policy.rl.players.rollouts_ahead import remembered_iterations
from components.policy.rl.task_source import EvenTasks, TaskSource
from components.policy.rollout import Rollout, Stamp
from components.records import SYNTHETIC, Task
from components.trajectories.replay_log import read_log, read_shard
from components.trajectories.store import held_out
from flows.run.pipeline_run import Run
from flows.run.run_data import (
    EXPERIENCE,
    encoder_input,
    experience_input,
    families_config,
    index_directories,
    known_episodes,
    training_tasks,
)
from flows.run.run_dream import dream_with, load_experience_model
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.rl_training import (
    CHECKPOINT,
    OnRollouts,
    build_loop,
    delay_config,
    finish_training,
    impossible_actions,
    keep_transitions,
    run_loop,
    snapshots_config,
    training_adapter,
    undisturbed,
    write_iteration,
)
from flows.run.training.system_turns import world_description
from flows.run.training.teacher_annotations import ANSWERS, endpoint_slice

REPLAY = "replay"
"""Output of the stage: the dreamed transitions, one Parquet file for each iteration."""
TASK_CLUSTERS = 8
"""Clusters of an iteration's tasks whose returns PPO's curriculum compares."""
MAX_REPLAYS_PER_CHECK = 16
MAX_LISTED_TASKS = 50
"""Most generated tasks that the stage's record lists."""


@stage_flow("synthetic-rl")
def train_in_dream(run: Run, start: str = "clone") -> Stage:
    """Stage: RL in the dream with the curriculum, without real interactions.

    Dreamed transitions are added to the buffer.

    Args:
        start: stage of the policy to start from.
    """
    config = run.slice("experience_model", "retrieval", "environment", "curriculum", "rl.dream")
    config |= run.computing(training=True) | families_config(run) | snapshots_config(run)
    if run.config.curriculum.judge:
        config["endpoint"] = endpoint_slice(run.config)
    if run.config.rl.dream.check_every:
        config |= {"floor": run.config.fidelity.min_rollout_agreement} | delay_config(run)
    return Stage(
        "synthetic_rl",
        work=partial(_train, run, run.results[start].key[:12]),
        inputs={
            "model": StageOutput("experience_model", "model"),
            "policy": StageOutput(start, "policy"),
            "train": StageOutput("validate", "train"),
            **encoder_input(run),
            **experience_input(run),
        },
        config=config,
        code=__name__,
    )


def _train(run: Run, policy_version: str, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    recorded = [step for episode in known_episodes(run, inputs) for step in episode.steps]
    weights = stored_weights(inputs["policy"]).count
    staleness = config.rl.dream.staleness
    # An interrupted iteration runs again.
    finished_iterations = read_iteration_count(work / CHECKPOINT, weights, staleness)
    dreamed = read_log(work / REPLAY, shards=remembered_iterations(finished_iterations, staleness))
    open_world = partial(
        dream_with,
        inputs["model"],
        config,
        recorded,
        dreamed,
        held_out(run.data),
        run.root,
        config.rl.dream.lost_actions,
    )
    with (
        _open_dreams(run, inputs["model"], open_world) as (dreams, model),
        _open_judge(run) as judge,
    ):
        policy = Policy.load(inputs["policy"], compute=run.compute)
        tasks = _task_source(run, model, judge)
        loop = build_loop(
            run,
            config.rl.dream,
            policy=policy,
            player=dreams,
            tasks=tasks,
            stamp=Stamp(SYNTHETIC, policy_version, run.manifest.run_id, "dream"),
            seed=run.round_seed,
            train=inputs["train"],
            work=work,
            tokens=lambda: model.tokens + dreams.tokens + policy.tokens,
        )
        state = run_loop(
            run,
            "synthetic_rl",
            loop,
            _keep_rollouts(run, loop, dreams, work),
            on_played_again=lambda iteration: dreams.remember(read_shard(work / REPLAY, iteration)),
        )
    outcome = finish_training("synthetic_rl", policy, state, work)
    outcome.details = _curriculum_details(tasks)
    check_interactions = int(sum(state.series.get(CHECK_INTERACTIONS, [])))
    outcome.metrics["synthetic_rl/real_interactions"] = exact_value(0)
    outcome.metrics["synthetic_rl/dreamed_interactions"] = exact_value(state.interactions)
    outcome.metrics[f"synthetic_rl/{CHECK_INTERACTIONS}"] = exact_value(check_interactions)
    (work / REPLAY).mkdir(exist_ok=True)  # with no iteration there is no dreamed step
    (work / EXPERIENCE).mkdir(exist_ok=True)  # with no check there is no real step
    outcome.outputs |= {REPLAY: REPLAY, EXPERIENCE: EXPERIENCE}
    outcome.costs = {CHECK_INTERACTIONS: check_interactions, "tokens_generated": state.tokens}
    outcome.costs |= model.endpoint_costs
    if judge is not None:
        asked = judge.usage.costs()
        outcome.costs |= {name: outcome.costs.get(name, 0) + count for name, count in asked.items()}
    return outcome


@contextmanager
def _open_dreams(
    run: Run, model: Path, open_world: Callable[[], Dream]
) -> Iterator[tuple[DreamPlayer, DreamingModel]]:
    """Open the dreams of `rl.dream.processes` processes, and the experience model that writes tasks.

    One dream is played in this process, and shares its weights with the writer of tasks.
    """
    count = run.config.rl.dream.processes
    if count == 1:
        dream = open_world()
        yield LocalDreamPlayer(dream), dream.model.sharing_weights()
        return
    with _open_players(run.config, open_world) as dreams:
        yield dreams, load_experience_model(run.config, model, run.root)


def _open_players(config: Config, open_world: Callable[[], Dream]) -> WorkersPlayer:
    """Open the processes that rollouts are played in, on this machine or on the cluster."""
    count = config.rl.dream.processes
    if not config.cluster:
        return ProcessPoolPlayer(count, open_world)
    from components.policy.rl.players.ray_player import RayPlayer

    return RayPlayer(count, open_world, config.cluster)


def _open_judge(run: Run) -> AbstractContextManager[Endpoint | None]:
    """Open the judge of made-up tasks; None without `curriculum.judge`."""
    if not run.config.curriculum.judge:
        return nullcontext()
    return Endpoint(run.config.endpoint, run.root / ANSWERS)


def _curriculum_details(tasks: TaskSource) -> dict[str, list[Any]]:
    """Return the curriculum's record of each iteration and some of its generated tasks."""
    if not isinstance(tasks, Curriculum):
        return {"curriculum": [], "generated": []}
    generated = list(tasks.generated.values())[:MAX_LISTED_TASKS]
    instructions = [f"{task.instruction} (varied from {task.parent})" for task in generated]
    return {"curriculum": tasks.life, "generated": instructions}


def _task_source(run: Run, model: DreamingModel, judge: Endpoint | None) -> TaskSource:
    """Return the curriculum, or an even draw of the training tasks if it is turned off.

    Args:
        judge: of made-up tasks; None: no task is judged.
    """
    config = run.config
    tasks = training_tasks(run)
    if not config.curriculum.enabled:
        return EvenTasks(tasks)
    cluster = _cluster_function(run) if config.rl.dream.algorithm.needs_task_clusters else None
    feasible = task_feasibility(make_adapter(config.environment), tasks)
    if judge is not None:
        feasible = JudgedFeasibility(feasible, judge, world_description(config))
    return Curriculum(
        tasks, config.curriculum, lambda parents, seed: model.vary(parents, seed=seed), feasible, cluster
    )


def _cluster_function(run: Run) -> Callable[[Sequence[Task], int], list[int]]:
    """Return the function that clusters tasks; PPO's curriculum compares returns within a cluster."""
    encoder = make_encoder(run.config.retrieval, index_directories(run.root)["embeddings"])
    return lambda tasks, seed: cluster_tasks(tasks, encoder, TASK_CLUSTERS, seed)


def _keep_rollouts(run: Run, loop: Loop, dreams: DreamPlayer, work: Path) -> OnRollouts:
    """Return the callback for each iteration's rollouts.

    It writes them to the log, adds them to the buffer, and replays some in the real environment.
    """
    config = run.config
    adapter = training_adapter(config)
    settings = config.rl.dream
    watch = DreamWatch(
        adapter,
        # A short training is checked at its end, one without a live world never.
        interval=min(settings.check_every, settings.iterations) if adapter.is_live else 0,
        max_replays=MAX_REPLAYS_PER_CHECK,
        floor=config.fidelity.min_rollout_agreement,
    )
    rejected = _RejectedAnswers(dreams)

    def keep(iteration: int, rollouts: list[Rollout]) -> dict[str, float]:
        dreams.remember(keep_transitions(work / REPLAY, iteration, rollouts))
        figures = impossible_actions(adapter, rollouts) | rejected.figures()
        figures |= watch.check(iteration, undisturbed(rollouts), loop.state.series)
        write_iteration(work / EXPERIENCE, iteration, replayed_steps(watch.replays))
        return figures

    return keep


class _RejectedAnswers:
    """Answers of the experience model that the dream rejected, by kind, per dreamed step."""

    def __init__(self, dreams: DreamPlayer) -> None:
        self._dreams = dreams
        self._counts = Counter[str](dreams.rejected)
        self._steps = dreams.interactions

    def figures(self) -> dict[str, float]:
        """Return the rates over the steps since the last call."""
        steps = max(1, self._dreams.interactions - self._steps)
        rates = {name: (count - self._counts[name]) / steps for name, count in self._dreams.rejected.items()}
        self._counts = Counter(self._dreams.rejected)
        self._steps = self._dreams.interactions
        return rates
