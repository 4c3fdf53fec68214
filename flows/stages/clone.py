"""Step 4: clone a policy from expert demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from components.config import Config
from components.environments.capabilities import Adapter
from components.environments.replayed_forks import forkable
from components.evaluation.metrics.intervals import exact_value
from components.language.sequence_limits import longest_sequence
from components.language.threads import training
from components.language.training.examples import Example
from components.policy.behaviour_cloning import clone
from components.policy.early_experience import ExploredEpisode, explore, reflections, world_examples
from components.policy.judging_lessons import LESSONS_AN_EPISODE, judging_lessons
from components.policy.own_alternatives import count_origins, own_alternatives
from components.policy.own_reflections import own_reflections, require_conversations
from components.policy.policy import Policy
from components.records import Trajectory
from components.trajectories.store import iter_transitions
from flows.checks.token_limits import REPLY_LIMITS, limit_of, require_reflections_fit
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.run_data import cloned_behaviours, episodes_to_clone, families_config, policy_backbone
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.system_turns import policy_system
from flows.training_log import curve_logger, progress_logger, speed_metrics

OWN_FIGURES = ("alternatives_sampled", "alternatives_filled_up", "reflections_asked", "reflections_kept")
"""Metrics of a clone with its model's own alternatives and reflections."""
OWN_REPLY_LIMIT = "rl.dream.max_new_tokens"
"""Key of the limit at which a reply ends that proposes an alternative: that of evaluations."""
ALTERNATIVES = 3
"""K of Early Experience: actions that are tried at each state in addition to the expert's."""
Proposals = Sequence[Sequence[Sequence[str]]]
"""Alternatives per episode and step."""
Executed = tuple[list[ExploredEpisode], dict[str, int]]
"""Episodes with the alternatives that were executed, and what that cost."""


@stage_flow("clone")
def clone_policy(run: Run) -> Stage:
    """Stage: clone a policy from the first demonstrations of the behaviours in `cloning.behaviours`."""
    config = run.slice("cloning", "environment") | run.computing(training=True) | families_config(run)
    return Stage(
        "clone",
        work=partial(_clone, run),
        inputs={"backbone": policy_backbone(run), "train": StageOutput("validate", "train")},
        config=config
        | {"format": run.config.backbone.format, "system": policy_system(run.config)}
        | _limits_of_reflections(run.config),
        code=__name__,
    )


def _limits_of_reflections(config: Config) -> dict[str, int]:
    """Return the limits that reflections must fit, by key: smaller ones refuse the clone."""
    if not config.cloning.early_experience.endswith("reflection"):
        return {}
    return {key: limit_of(config, key) for key in REPLY_LIMITS}


def _clone(run: Run, inputs: Inputs, work: Path) -> Outcome:
    config = run.config
    adapter = live_adapter(config)
    demonstrations = episodes_to_clone(run, inputs["train"], config.cloning.behaviours)
    policy = Policy.load(
        inputs["backbone"],
        compute=run.compute,
        text_format=config.backbone.format,
        system=policy_system(config),
    )
    lessons = _judging_lessons(run, inputs["train"], policy)
    extra_examples, costs = _early_experience(
        config, adapter, policy, demonstrations, partial(_recorded_actions, inputs["train"], demonstrations)
    )
    series: dict[str, list[float]] = {}
    with training(config):
        record = clone(
            policy,
            demonstrations,
            config.cloning,
            config.seed,
            work / "checkpoint.pt",
            **extra_examples,
            lessons=lessons,
            lora=config.lora,
            on_figures=curve_logger("clone", run.log_curves),
            on_world_figures=curve_logger("clone/world", run.log_curves),
            on_world_record=lambda world: series.update({"clone/world/loss": world.losses}),
            progress=progress_logger,
        )
    policy.save(work / "policy")
    for checkpoint in work.glob("*.pt"):
        checkpoint.unlink()
    metrics = {
        "clone/loss": exact_value(record.final_loss),
        "clone/demonstrations": exact_value(len(demonstrations)),
        "clone/real_interactions": exact_value(costs["real_interactions"]),
    }
    metrics |= {f"clone/{name}": exact_value(costs.pop(name)) for name in OWN_FIGURES if name in costs}
    if config.cloning.judged_episodes:
        metrics["clone/judged_episodes"] = exact_value(len(lessons) // LESSONS_AN_EPISODE)
    metrics |= speed_metrics("clone", record)
    costs["tokens_trained"] = record.tokens
    series["clone/loss"] = record.losses
    return Outcome({"policy": "policy"}, metrics, series, costs=costs)


def _judging_lessons(run: Run, train: Path, policy: Policy) -> list[Example]:
    """Return the lessons of `cloning.judged_episodes`; none by default."""
    count = run.config.cloning.judged_episodes
    if not count:
        return []
    episodes, longest = cloned_behaviours(run, train), longest_sequence(policy.model.config)
    return judging_lessons(policy.text, episodes, count, run.config.seed, longest)


def _early_experience(
    config: Config,
    adapter: Adapter,
    policy: Policy,
    demonstrations: Sequence[Trajectory],
    recorded_actions: Callable[[], Mapping[str, Sequence[str]]],
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return further training examples of `clone` as keyword arguments, and what they cost.

    With the model's own reflections the costs also have `OWN_FIGURES`.

    Args:
        recorded_actions: id of a task -> actions that were recorded in it, which are alternatives where a
            world lists none.

    Raises:
        ConfigError: a demonstration with its reflection is longer than the replies that RL lets a policy
            write, or the model cannot write reflections.
    """
    if config.cloning.early_experience == "none":
        return {}, {"real_interactions": 0}
    execute = partial(_execute_alternatives, config, adapter, demonstrations, recorded_actions)
    if config.cloning.early_experience == "own_reflection":
        return _own_early_experience(config, adapter, policy, demonstrations, execute)
    explored, costs = execute(None)
    if config.cloning.early_experience == "world_modelling":
        return {"world": world_examples(policy.text, explored)}, costs
    thoughts = reflections(explored, adapter.reflect, adapter.progress)
    require_reflections_fit(config, policy.text, explored, thoughts)
    return {"reflections": thoughts}, costs


def _execute_alternatives(
    config: Config,
    adapter: Adapter,
    demonstrations: Sequence[Trajectory],
    recorded_actions: Callable[[], Mapping[str, Sequence[str]]],
    proposals: Proposals | None,
) -> Executed:
    world = forkable(adapter.open, recorded_actions())
    try:
        explored = explore(world, demonstrations, ALTERNATIVES, config.seed, proposals)
    finally:
        world.close()
    return explored, {"real_interactions": world.interactions}


def _own_early_experience(
    config: Config,
    adapter: Adapter,
    policy: Policy,
    demonstrations: Sequence[Trajectory],
    execute: Callable[[Proposals], Executed],
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return what `_early_experience` does, with alternatives and reflections of the policy's chat model."""
    log = get_run_logger()
    require_conversations(policy.text)  # before anything is sampled or executed
    limit = limit_of(config, OWN_REPLY_LIMIT)
    proposed = own_alternatives(policy, demonstrations, ALTERNATIVES, adapter.well_formed, limit, config.seed)
    explored, costs = execute(proposed.actions)
    sampled, filled_up = count_origins(explored, proposed.actions)
    log.info(
        "%d alternatives are the model's own, %d (%.0f %%) were filled up from the admissible actions",
        *(sampled, filled_up, 100 * filled_up / (sampled + filled_up)),
    )
    found = own_reflections(
        policy, explored, config.seed, lambda done, of: log.info("%d of %d reflections written", done, of)
    )
    log.info("%d of %d reflections make the expert's action likelier, and are kept", found.kept, found.asked)
    require_reflections_fit(config, policy.text, explored, found.thoughts)
    figures = dict(zip(OWN_FIGURES, (sampled, filled_up, found.asked, found.kept), strict=True))
    costs |= {"tokens_generated": proposed.tokens + found.tokens}
    return {"reflections": found.thoughts}, costs | figures


def _recorded_actions(train: Path, demonstrations: Sequence[Trajectory]) -> dict[str, list[str]]:
    """Return the distinct actions that were recorded for each task of the demonstrations, sorted."""
    actions: dict[str, set[str]] = {episode.task.id: set() for episode in demonstrations}
    for step in iter_transitions(train):
        if step.task_id in actions:
            actions[step.task_id].add(step.action)
    return {task: sorted(own) for task, own in actions.items()}
