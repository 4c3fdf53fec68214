"""Registers the models of a run in MLflow, with the code and the example that MLflow needs to serve them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any

from components.records import Trajectory
from components.tracking.manifest import RegisteredModel
from components.tracking.pyfunc.served_models import served_experience_model, served_policy
from flows.run.pipeline_run import Run
from flows.run.run_data import stream_training_episodes

SERVED_MODELS: dict[str, Callable[..., Any]] = {
    "policy": served_policy,
    "experience-model": served_experience_model,
}
EXAMPLE_STEPS = 2
"""Steps of the history in a model's input example."""


def register(run: Run, name: str, stage: str, output: str, tags: Mapping[str, str]) -> RegisteredModel:
    """Register the model that `stage` made, or return the existing version with the same files.

    Its source is the parent run in MLflow, whose page shows it; the stage's run links to it too.
    """
    result = run.results[stage]
    alias = f"stage-{result.key[:12]}"
    version = run.tracker.alias(name, alias)
    if version is None:
        weights = result.outputs[output]
        served = SERVED_MODELS[name](
            run.config, weights, input_example(run, with_action=name != "policy"), _provenance(run, stage)
        )
        version = run.tracker.register_model(run.parent, name, weights, tags, served)
        run.tracker.set_alias(name, alias, version)
    for linked in (run.child(stage), run.parent):
        run.tracker.link_model(linked, name, version)
    model = RegisteredModel(name=run.tracker.model_name(name), version=version, mlflow_run_id=run.parent)
    run.manifest.models.append(model)
    return model


def register_experience_model(run: Run, tags: Mapping[str, str]) -> None:
    """Register the run's experience model; a prompted one has no weights to register."""
    if run.config.experience_model.kind == "trained":
        register(run, "experience-model", "experience_model", "model", tags)


def _provenance(run: Run, stage: str) -> dict[str, str]:
    """Return what the model was made from, as text for its page."""
    git = run.manifest.environment.git
    return {
        "environment": run.config.environment.name,
        "run": run.manifest.run_id,
        "stage": f"{stage} {run.results[stage].key[:12]}",
        "seed": str(run.config.seed),
        "commit": git.commit + (" with changes" if git.dirty else ""),
        "data": run.manifest.data.dvc_in,
    }


def input_example(run: Run, *, with_action: bool) -> list[dict[str, Any]]:
    """Return two rows of a model's input: a recorded training episode at its start and after some steps."""
    episodes = stream_training_episodes(run, run.results["validate"].outputs["train"])
    first = next(episodes)
    candidates = (one for one in chain([first], episodes) if one.success and len(one.steps) > EXAMPLE_STEPS)
    episode = next(candidates, first)
    lengths = range(min(EXAMPLE_STEPS, len(episode.steps) - 1) + 1)
    return [_input_row(episode, length, with_action) for length in (lengths[0], lengths[-1])]


def _input_row(episode: Trajectory, length: int, with_action: bool) -> dict[str, Any]:
    history = [{"action": step.action, "state": step.next_state} for step in islice(episode.steps, length)]
    row = {"task": episode.task.instruction, "initial_state": episode.task.initial_state, "history": history}
    return row | ({"action": episode.steps[length].action} if with_action else {})
