"""The directory of a model that a config names: one of this machine, or a model on the Hugging Face hub.

    backbone.path=models/smollm2                                a directory
    backbone.path=Qwen/Qwen2.5-0.5B-Instruct                    the newest version on the hub
    backbone.path=Qwen/Qwen2.5-0.5B-Instruct@7ae557604adf67be   one version

A model of the hub is downloaded once into the cache of `huggingface_hub` ($HF_HOME). A run records the commit
that it used, so that it can be reproduced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import ConfigError

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[0-9a-f]{7,40})?")
FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""Files that are downloaded: weights in safetensors, settings, tokenizer; never code or pickled weights."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model lies on this machine.

    Attributes:
        directory: of its files.
        revision: commit of the hub's repository; empty for a directory that is no download.
    """

    directory: Path
    revision: str = ""


def is_hub_name(name: str) -> bool:
    """Return True if `name` is the name of a model on the hub, and no directory here."""
    return bool(HUB_NAME.fullmatch(name)) and not Path(name).is_dir()


def find_model(name: str) -> ModelSource:
    """Return where the model `name` lies; a model of the hub is downloaded if it is not in the cache.

    Raises:
        ConfigError: the hub does not answer and the model is not in the cache, or the hub has no such model.
    """
    if not is_hub_name(name):
        return ModelSource(Path(name))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    repository, _, revision = name.partition("@")
    options: dict[str, Any] = {"revision": revision or None, "allow_patterns": list(FILES)}
    if revision:
        try:
            directory = Path(snapshot_download(repository, **options, local_files_only=True))
            return ModelSource(directory, directory.name)
        except LocalEntryNotFoundError:
            pass  # not in the cache yet
    try:
        directory = Path(snapshot_download(repository, **options))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ConfigError(
            f"The Hugging Face hub has no model {name}, or it is private.",
            "Expected OWNER/NAME or OWNER/NAME@COMMIT.",
            "Correct the name; for a private model set HF_TOKEN.",
        ) from error
    except Exception as error:  # the hub's client raises many kinds, of httpx and its own
        raise ConfigError(
            f"There is no directory {name!r}, and no model of that name could be downloaded from the Hugging "
            f"Face hub: {' '.join(str(error).split())[:160]} ...",
            "Expected a directory, or a model of the hub and a network.",
            f"On a machine with a network: hf download {repository} --local-dir models/base; then "
            "backbone.path=models/base. Without one: make model, then backbone.path=models/smollm2.",
        ) from error
    return ModelSource(directory, directory.name)
