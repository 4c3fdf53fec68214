"""Pins the hub's models of a config to the commits that this machine has of them."""

from __future__ import annotations

from components.config import Config
from components.language.pretrained.model_directory import find_model, is_hub_name
from components.language.vocabulary.load_vocabulary import read_card


def pin_models(config: Config) -> Config:
    """Return the config with `OWNER/NAME@COMMIT` for each model of the hub; other paths stay as they are.

    Raises:
        ConfigError: a model is neither in the cache nor can it be downloaded.
    """
    backbone = config.backbone.model_copy(update={"path": _pinned(config.backbone.path)})
    experience_model = config.experience_model.model_copy(
        update={"path": _pinned(config.experience_model.path)}
    )
    return config.model_copy(update={"backbone": backbone, "experience_model": experience_model})


def _pinned(name: str) -> str:
    if not name or not is_hub_name(name):
        return name
    return f"{name.partition('@')[0]}@{find_model(name).revision}"


def model_sources(config: Config) -> dict[str, str]:
    """Return section -> name of the pretrained model that it names, with the source in the model's card."""
    names = {"backbone": config.backbone.path, "experience_model": config.experience_model.path}
    return {section: _source(name) for section, name in names.items() if name}


def _source(name: str) -> str:
    source = read_card(find_model(name).directory).get("source", "")
    return f"{name}: {source}" if source else name
