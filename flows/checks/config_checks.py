"""Checks of a config against the recorded data, the backbone, and this machine's hardware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.config import Config, PretrainPhase
from components.config.migration import migrate, migrate_pretrain
from components.errors import ConfigError, DataError
from components.experience.retrieval.encoders import encoder_identity
from components.files import parse_json, read_text
from components.trajectories.store import DataLayout
from flows.checks.data_checks import require_enough_data
from flows.checks.reward_checks import require_progress

USAGE_KEYS = ("path", "format", "chat_template", "gradient_checkpointing")
"""Keys of `backbone` that say how a backbone is used, not how it is pretrained."""


def check_settings(root: Path, config: Config, file: Path | None = None, *, training: bool = True) -> None:
    """Raise ConfigError for a config that does not fit the recorded data, the backbone or this machine.

    It must ask for the games and episodes that were recorded, for no more than there are, for a backbone that
    exists, for available hardware and an installed engine, and for a reward that the world can give.

    Args:
        file: the config's file, for the message.
        training: whether the run trains. Otherwise only what an evaluation uses is checked.

    Raises:
        ConfigError: the message names what differs with both values, or what a model cannot do.
        ClusterError: no Ray cluster answers, or it has fewer cores than the run wants workers.
        ExperienceModelError: the encoder of retrieval is missing.
        DataError: a file under `data/` or of a model is damaged.
    """
    require_device(config)
    if training:
        _require_one_process(config)
        _require_cluster(config)
        config.require_endpoint_user()
        require_backbone(config)
        encoder_identity(config.retrieval)  # refuses a missing encoder now, not after the first stage
        _require_pretrained_settings(root, config, file)
    sections = ("environment", "data") if training else ("environment",)
    _require_recorded_settings(root, config, file, sections)
    require_enough_data(root, config, training)
    if training:
        require_progress(config)
        from flows.checks.model_checks import check_models

        check_models(root, config)


def require_device(config: Config) -> None:
    """Raise ConfigError if this machine lacks the device of `config`, bf16 on it, or the engine."""
    if config.device != "cuda" and config.precision in ("fp32", "auto") and config.engine != "vllm":
        return  # works everywhere; importing torch takes seconds
    from components.language.compute import compute_of

    compute_of(config)


def _require_one_process(config: Config) -> None:
    """Raise ConfigError if several processes would share a GPU, or each start a vLLM."""
    from components.language.compute import compute_of

    if config.rl.dream.processes == 1 or not config.rl.dream.iterations:
        return
    if config.experience_model.kind == "prompted":
        reason = "experience_model.kind is prompted, whose answers one process asks for"
    elif config.engine == "vllm":
        reason = "engine is vllm, which decodes the rollouts of all episodes in one process"
    elif config.device != "cpu" and compute_of(config).device == "cuda":
        reason = "the processes would take turns on one GPU, each with both models"
    else:
        return
    raise ConfigError(
        f"rl.dream.processes is {config.rl.dream.processes}: {reason}.",
        "Expected 1.",
        "Set rl.dream.processes=1.",
    )


def _require_cluster(config: Config) -> None:
    """Raise ClusterError if the cluster of other machines is missing or too small for a later stage."""
    from components.cluster.ray_workers import LOCAL, connect

    if config.cluster and config.cluster != LOCAL:
        dream = config.rl.dream
        connect(config.cluster, max(config.environment.workers, dream.processes if dream.iterations else 1))


def require_backbone(config: Config) -> None:
    """Raise ConfigError if a `path` of the config is no directory with a model, and none of the hub's."""
    paths = {"backbone": config.backbone.path, "experience_model": config.experience_model.path}
    for section, name in paths.items():
        if not name:
            continue
        from components.language.pretrained.model_directory import find_model

        path = find_model(name).directory
        if not any(path.glob("*.safetensors")):
            problem = "it holds no *.safetensors" if path.is_dir() else "there is no such directory"
            raise ConfigError(
                f"{section}.path is {name!r}: {problem}.",
                "Expected a directory with a causal LM in safetensors and its tokenizer, or the name of a "
                "model on the Hugging Face hub, OWNER/NAME.",
                f"Correct the path (make model writes models/smollm2), or leave {section}.path empty.",
            )


def _require_pretrained_settings(root: Path, config: Config, file: Path | None) -> None:
    """Raise ConfigError if `backbone` or `pretrain` differ from what the backbone was first pretrained with.

    A key at its default is not compared. A backbone without a card is accepted.
    """
    path = DataLayout.of(root, config.environment.name).backbone / "card.json"
    if config.backbone.path or not path.is_file():
        return
    sections, environment = _first_pretraining(path)
    recorded = {
        f"{section}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
        if key not in USAGE_KEYS
    }
    values = _section_values(config, sections)
    if environment:
        recorded["environment.name"] = environment
        values["environment.name"] = config.environment.name
    differing = _differing_keys(recorded, values, _section_values(Config(), sections))
    if differing:
        origin = ", ".join(f"{key}={recorded[key]}" if key in recorded else f"no {key}" for key in differing)
        raise ConfigError(
            f"{path.parent.relative_to(root)} was made with {origin}; "
            f"this config asks for {', '.join(f'{key}={values[key]}' for key in differing)}.",
            "These keys have no effect on a backbone that exists.",
            f"Make it again: dreamgym pretrain{f' --config {file}' if file else ''}. Or leave them out.",
        )


def _first_pretraining(card_path: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the settings of a backbone's first pretraining, and its environment's name ("": unknown).

    The settings are those of the sections `backbone` and `pretrain`. Later pretrainings continued from them.
    """
    try:
        card = parse_json(read_text(card_path))
        first = [*card.get("went_on_from", []), card][0]
        sections = {
            "backbone": dict(first["backbone"]),
            "pretrain": _current_recipe(first.get("recipe", first["pretrain"])),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{card_path} cannot be read: {error!r}",
            "Expected the card of pretrain.",
            "Type `dvc checkout data.dvc`.",
        ) from None
    return sections, first.get("environment", {}).get("name") or ""


def _current_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `pretrain` of a card with the current keys; options that it lacks have their defaults."""
    recipe = migrate_pretrain(values)
    phases = [PretrainPhase(**phase).model_dump(mode="json") for phase in recipe.get("phases", [])]
    return recipe | ({"phases": phases} if phases else {})


def _section_values(config: Config, sections: Iterable[str]) -> dict[str, Any]:
    """Return `section.key` -> value of some sections, with values as JSON has them."""
    values = config.model_dump(mode="json", include=set(sections))
    return {f"{section}.{key}": value for section in sections for key, value in values[section].items()}


def _differing_keys(
    recorded: Mapping[str, Any], values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """Return the keys whose value is neither the recorded one nor the default.

    Keys that were not recorded follow, if they are not at their default.
    """
    changed = [
        key
        for key, value in recorded.items()
        if values.get(key, value) not in (value, defaults.get(key, value))
    ]
    added = [
        key
        for key, value in values.items()
        if key not in recorded and key.split(".")[1] not in USAGE_KEYS and value != defaults[key]
    ]
    return changed + added


def _require_recorded_settings(
    root: Path, config: Config, file: Path | None, sections: Sequence[str]
) -> None:
    """Raise ConfigError if the config's `sections` differ from those that the data was recorded with.

    Data without settings.json (recorded elsewhere) is accepted. `environment.max_steps` may differ: it only
    limits play.
    """
    path = DataLayout.of(root, config.environment.name).settings
    if not path.is_file():
        return
    try:
        recorded = [
            (section, *entry)
            for section, values in migrate(parse_json(read_text(path)), allow_removed=True).items()
            for entry in values.items()
        ]
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            "Expected the settings of collect.",
            "Type `dvc checkout data.dvc`.",
        ) from None
    values = config.model_dump(mode="json") | {"environment": config.environment.decisive()}
    differing = {
        f"{section}.{key}": (recorded_value, value)
        for section, key, recorded_value in recorded
        if section in sections
        and (value := values.get(section, {}).get(key, recorded_value)) != recorded_value
        and (section, key) != ("environment", "max_steps")
    }
    if differing:
        recorded_text = ", ".join(f"{key}={value}" for key, (value, _) in differing.items())
        config_text = ", ".join(f"{key}={value}" for key, (_, value) in differing.items())
        raise ConfigError(
            f"{path.parent.relative_to(root)} was recorded with {recorded_text}; "
            f"this config asks for {config_text}.",
            "A run on it would not be what the config says.",
            "Record the data again with the same config and overrides: dreamgym "
            f"collect{f' --config {file}' if file else ''} "
            "(the old data stays in DVC's cache). Or keep the data and give its values.",
        )
