"""Files with which MLflow loads a registered model: `MLmodel`, signature, input example and requirements.

The weights are in the folder `weights/`.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

WEIGHTS = "weights"
"""Folder of a version that holds the registered files. Older versions hold them at the top level."""
_PACKAGES = ("mlflow", "torch", "transformers", "tokenizers", "safetensors", "peft", "pandas", "pydantic")
_PAGE_WIDTH = 90
_HELP_PAGE = "docs/guides/mlflow-models.md"


@dataclass(frozen=True)
class ServedModel:
    """How MLflow loads a model, and the text of its page.

    `settings` are the keyword values of the module's `_load_pyfunc`. `facts` are listed on the page.
    """

    title: str
    module: str
    signature: Any
    example: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    prompt_format: str
    prompt_example: str
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, str]:
        """The parameters that MLflow lists for the logged model."""
        return dict(self.facts)

    @property
    def description(self) -> str:
        """The text of the model's page, in Markdown."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        return (
            f"{self.title}\n\n{facts}\n\n**Prompt format** (lines are broken for the "
            f"page)\n\n{_block(self.prompt_format)}\n\n"
            f"**The prompt of the input example**\n\n{_block(self.prompt_example)}\n\nHow to load and serve "
            f"it: {_HELP_PAGE}."
        )


def _block(text: str) -> str:
    """A Markdown code block of the text, in lines that fit MLflow's page."""
    lines = textwrap.wrap(text, _PAGE_WIDTH, break_long_words=False, break_on_hyphens=False)
    return "```\n" + "\n".join(lines) + "\n```"


def write_model(directory: Path, weights: Path, model: ServedModel, run_id: str, model_id: str) -> None:
    """Write the files of an MLflow model into the new `directory`.

    The weights are hard links where the file system supports them, else copies.
    """
    import mlflow.pyfunc  # takes a second, and most users of the registry write no model
    from mlflow.models import Model

    metadata = {"prompt_format": model.prompt_format, "prompt_example": model.prompt_example, **model.facts}
    mlflow_model = Model(run_id=run_id, model_id=model_id)
    mlflow.pyfunc.save_model(
        directory,
        loader_module=model.module,
        mlflow_model=mlflow_model,
        signature=model.signature,
        input_example=[dict(row) for row in model.example],
        pip_requirements=_requirements(),
        metadata=metadata,
        model_config=dict(model.settings),
    )
    mlflow_model.flavors[mlflow.pyfunc.FLAVOR_NAME][mlflow.pyfunc.DATA] = WEIGHTS
    mlflow_model.save(directory / "MLmodel")
    shutil.copytree(weights, directory / WEIGHTS, copy_function=_link)


def weights_of(directory: Path) -> Path:
    """The folder of a downloaded version that holds the registered files."""
    has_weights_folder = (directory / "MLmodel").is_file() and (directory / WEIGHTS).is_dir()
    return directory / WEIGHTS if has_weights_folder else directory


def _requirements() -> list[str]:
    """Pins of the packages that loading needs. This project itself is not on a package index."""
    pins = []
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            pins.append(f"{name}=={version(name).partition('+')[0]}")
    return pins


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)
