"""Writes `runs/<id>/policy/`: the run's refined policy as a Hugging Face directory with a model card.

Any server of transformers models can load it. `examples/act.py` plays a game with it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from components.language.adapters import ADAPTER, merge_lora
from components.language.backbone import load_backbone, save_model
from components.tracking.stage_store.stage_result import StageResult
from flows.run.pipeline_run import Run

POLICY = "policy"
"""Directory below that of the run."""
CARD = "README.md"


def export_policy(run: Run) -> Path:
    """Write the refined policy and its card below the run's directory, and return that directory.

    Adapters are merged into the weights. Weights without adapters are linked to those of the stage where the
    file system allows it, so that they take no more room.
    """
    source = run.results["sim_to_real"].outputs["policy"]
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
    evaluated = run.results["evaluate"]
    rates = "\n".join(_rate_row(evaluated, name) for name in ("cloned", "dreamed", "refined"))
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [dreamgym, agent, {run.config.environment.name}]
---
# A policy trained in a dream

It acts in the environment `{run.config.environment.name}`. It was cloned from recorded episodes, trained by
RL in a learned model of the environment, and refined in the real one. `dreamgym.json` names its text format
and its system turn.

| | |
|---|---|
{facts}

| policy | success on held-out validation games (95 %) | n |
|---|---|---|
{rates}

The weights here are those of `refined`. Games, states and rewards are this project's, not a benchmark's.
"""


def _rate_row(evaluated: StageResult, policy: str) -> str:
    rate = evaluated.metrics[f"evaluate/{policy}/success_rate"]
    return f"| {policy} | {rate['value']:.3f} ({rate['low']:.3f} to {rate['high']:.3f}) | {rate['n']} |"
