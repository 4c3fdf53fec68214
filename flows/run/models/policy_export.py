"""Writes `runs/<id>/policy/`: the run's last policy as a Hugging Face directory with a model card.

Any server of transformers models can load it. `examples/act.py` plays a game with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.language.adapters import ADAPTER, merge_lora
from components.language.backbone import load_backbone, save_model
from flows.run.pipeline_run import Run

POLICY = "policy"
"""Directory below that of the run."""
CARD = "README.md"


def export_policy(run: Run) -> Path:
    """Write the last policy and its card below the run's directory, and return that directory.

    It is the refined one, or the dreamed one of a run without a live world.

    Adapters are merged into the weights. Weights without adapters are linked to those of the stage where the
    file system allows it, so that they take no more room.
    """
    last = run.results.get("sim_to_real") or run.results["synthetic_rl"]
    source = last.outputs["policy"]
    target = run.directory / POLICY
    write_policy(source, target)
    (target / CARD).write_text(policy_card(run), encoding="utf-8")
    return target


def write_policy(source: Path, target: Path) -> None:
    """Write the policy of a stage's directory `source` to `target` as one whole model."""
    if (source / ADAPTER).is_dir():
        model, vocabulary = load_backbone(source)
        save_model(merge_lora(model), vocabulary, target)
    else:
        _link_files(source, target)


def _link_files(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        copied = target / file.name
        copied.unlink(missing_ok=True)
        if file.suffix == ".safetensors":
            _link(file, copied)
        else:
            shutil.copyfile(file, copied)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def policy_card(run: Run) -> str:
    """Return the model card: what the policy was made from, and what it was measured on."""
    manifest = run.manifest
    base = manifest.pretrained.get("backbone", "the small backbone of the data")
    git = manifest.environment.git
    rows = [
        ("base model", base),
        ("environment", run.config.environment.name),
        ("run", manifest.run_id),
        ("commit", git.commit + (" with changes" if git.dirty else "")),
        ("data (DVC)", manifest.data.dvc_in),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in manifest.seeds.items())),
        ("real interactions spent on training", f"{manifest.costs.real_interactions:,}"),
    ]
    facts = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [dreamgym, agent, {run.config.environment.name}]
---
# A policy trained in a dream

{_training_text(run)}

| | |
|---|---|
{facts}

{_measured_text(run)}
"""


def _training_text(run: Run) -> str:
    verified = "sim_to_real" in run.results
    last = "refined in the real one" if verified else "and never played in the real one"
    return (
        f"It acts in the environment `{run.config.environment.name}`. It was cloned from recorded episodes, "
        f"trained by RL in a learned model of the environment, {'and ' if verified else ''}{last}. "
        "`dreamgym.json` names its text format and its system turn."
    )


def _measured_text(run: Run) -> str:
    """Return what the policy was measured on, as Markdown."""
    if "evaluate" not in run.results:
        metrics = run.results["evaluate_on_logs"].metrics
        rows = "\n".join(
            f"| {name} | {_rate(metrics[f'logs/{name}/dreamed_success_rate'])} "
            f"| {_rate(metrics[f'logs/{name}/same_action_rate'])} |"
            for name in ("cloned", "dreamed")
        )
        return f"""**Nothing here was verified in a live world.**

| policy | success in the dream on held-out tasks (95 %), n | logged action taken (95 %), n |
|---|---|---|
{rows}

The weights here are those of `dreamed`."""
    metrics = run.results["evaluate"].metrics
    rates = "\n".join(
        f"| {name} | {_rate(metrics[f'evaluate/{name}/success_rate'])} |"
        for name in ("cloned", "dreamed", "refined")
    )
    return f"""| policy | success on held-out validation games (95 %), n |
|---|---|
{rates}

The weights here are those of `refined`. Games, states and rewards are this project's, not a benchmark's."""


def _rate(rate: Mapping[str, Any]) -> str:
    """Return a rate with its interval and n."""
    if not rate["n"]:
        return "not measured, 0"
    return f"{rate['value']:.3f} ({rate['low']:.3f} to {rate['high']:.3f}), {rate['n']}"
