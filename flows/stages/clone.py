"""Step 4: clone a policy from expert demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from components.config import Config
from components.environments.capabilities import Adapter
from components.evaluation.metrics.intervals import exact_value
from components.language.threads import training
from components.policy.behaviour_cloning import clone
from components.policy.early_experience import explore, reflections, world_examples
from components.policy.policy import Policy
from components.records import Trajectory
from flows.run.live_adapter import live_adapter
from flows.run.pipeline_run import Run
from flows.run.run_data import episodes_to_clone, families_config, policy_backbone
from flows.run.stage import Inputs, Outcome, Stage, StageOutput, stage_flow
from flows.run.training.system_turns import policy_system
from flows.training_log import curve_logger, progress_logger, speed_metrics

ALTERNATIVES = 3
"""K of Early Experience: actions that are tried at each state in addition to the expert's."""


@stage_flow("clone")
def clone_policy(run: Run) -> Stage:
    """Stage: clone a policy from the first demonstrations of the behaviours in `cloning.behaviours`."""
    config = run.slice("cloning", "environment") | run.computing(training=True) | families_config(run)
    return Stage(
        "clone",
        work=partial(_clone, run),
        inputs={"backbone": policy_backbone(run), "train": StageOutput("validate", "train")},
        config=config | {"format": run.config.backbone.format, "system": policy_system(run.config)},
        code=__name__,
    )


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
    extra_examples, real_steps = _early_experience(config, adapter, policy, demonstrations)
    with training(config):
        record = clone(
            policy,
            demonstrations,
            config.cloning,
            config.seed,
            work / "checkpoint.pt",
            **extra_examples,
            lora=config.lora,
            on_figures=curve_logger("clone", run.log_curves),
            on_world_figures=curve_logger("clone/world", run.log_curves),
            progress=progress_logger,
        )
    policy.save(work / "policy")
    for checkpoint in work.glob("*.pt"):
        checkpoint.unlink()
    metrics = {
        "clone/loss": exact_value(record.final_loss),
        "clone/demonstrations": exact_value(len(demonstrations)),
        "clone/real_interactions": exact_value(real_steps),
    }
    metrics |= speed_metrics("clone", record)
    costs = {"tokens_trained": record.tokens, "real_interactions": real_steps}
    return Outcome({"policy": "policy"}, metrics, {"clone/loss": record.losses}, costs=costs)


def _early_experience(
    config: Config, adapter: Adapter, policy: Policy, demonstrations: Sequence[Trajectory]
) -> tuple[dict[str, Any], int]:
    """Return further training examples of `clone` as keyword arguments, and the real steps that they cost."""
    if config.cloning.early_experience == "none":
        return {}, 0
    world = adapter.open()
    try:
        explored = explore(world, demonstrations, ALTERNATIVES, config.seed)
    finally:
        world.close()
    if config.cloning.early_experience == "world_modelling":
        return {"world": world_examples(policy.text, explored)}, world.interactions
    return {"reflections": reflections(explored, adapter.reflect)}, world.interactions
