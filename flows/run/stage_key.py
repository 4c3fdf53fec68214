"""Parts of a stage's key that a run provides: its inputs' hashes, config values, code, packages and seed.

`components/tracking/stage_store/stage_keys.py` makes the key of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.config import Config
from components.environments import adapter_modules
from components.environments.text_world.import_path import look_here
from components.language.compute import Compute
from components.language.engines.open_engine import engine_identity
from components.tracking.stage_store.hashes import tree_hash, with_imports
from components.tracking.stage_store.stage_keys import key_parts, read_pins
from components.tracking.stage_store.stage_result import StageResult
from flows.run.stage import Fingerprint, Stage, StageOutput

BOOKKEEPING = [
    "components.tracking",
    "components.files",
    "components.config",
    "components.errors",
    "flows.dead_flow_runs",
    "flows.training_log",
    "flows.run.pipeline_run",
    "flows.run.run_manifest",
    "flows.run.stage",
    "flows.run.stage_curves",
    "flows.run.stage_key",
]
"""Modules that record results and change none, so no key depends on them.

A stage's own part of the config is in its key as values.
"""


def code_key_parts(
    config: Config, root: Path, inputs: Mapping[str, str], values: Mapping[str, Any], code: str
) -> dict[str, Any]:
    """Return the parts of a key. Of the environments, only the selected one's code counts.

    Args:
        root: of the repository, with constraints.txt.
        inputs: name -> hash.
        values: the config values that change the result.
        code: module whose imports are followed.
    """
    modules = [code]
    if "environment" in values:
        look_here()
        modules += adapter_modules(config.environment)
    pins = read_pins(root / "constraints.txt")
    return key_parts(inputs, values, with_imports(modules, BOOKKEEPING), pins, config.seed)


def input_hashes(stage: Stage, results: Mapping[str, StageResult]) -> dict[str, str]:
    """Return input -> hash of its content. Args: results: stage -> result, of the stages before."""
    return {name: _input_hash(source, results) for name, source in stage.inputs.items()}


def _input_hash(source: StageOutput | Path | Fingerprint, results: Mapping[str, StageResult]) -> str:
    match source:
        case StageOutput():
            return results[source.stage].output_hashes[source.name]
        case Fingerprint():
            return source.hash
        case _:
            return tree_hash(source)


def input_paths(stage: Stage, results: Mapping[str, StageResult]) -> dict[str, Path]:
    """Return input -> its file or directory; fingerprints have none.

    Args:
        results: stage -> result, of the stages before.
    """
    paths: dict[str, Path] = {}
    for name, source in stage.inputs.items():
        if isinstance(source, StageOutput):
            paths[name] = results[source.stage].outputs[source.name]
        elif isinstance(source, Path):
            paths[name] = source
    return paths


def compute_settings(compute: Compute, *, training: bool) -> dict[str, Any]:
    """Return what of the hardware and its arithmetic changes a stage's numbers.

    Each device rounds differently. So does each number of processes that train together; it is in the
    manifest and not here, so that a stage that was begun on two goes on on one.

    Args:
        training: whether the stage trains a model.
    """
    values: dict[str, Any] = {"device": compute.device, "precision": compute.precision}
    engine = engine_identity(compute)
    if engine:
        values["engine"] = engine
    if not training:
        return values
    return values | {"gradient_checkpointing": compute.gradient_checkpointing}


def config_sections(config: Config, sections: tuple[str, ...]) -> dict[str, Any]:
    """Return sections of the config as JSON values, without keys that change no result (workers, paths).

    Args:
        sections: names; one of `rl` is named with its stage, such as `rl.dream`.
    """
    names = {name for name in sections if not name.startswith("rl.")}
    values = config.model_dump(mode="json", include=names)
    for name in set(sections) - names:
        values[name] = config.rl.model_dump(mode="json")[name.removeprefix("rl.")]
    if "environment" in values:
        values["environment"] = config.environment.decisive()
    for key in ("encoder_path", "server"):
        values.get("retrieval", {}).pop(key, None)
    values.get("experience_model", {}).pop("path", None)
    return values
