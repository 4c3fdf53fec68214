"""The files by which MLflow loads a registered model: `MLmodel`, signature, input example, requirements; the
weights lie in `weights/`.
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
"""The folder of a version that holds what was registered; a version of before holds it at its top."""
_PACKAGES = ("mlflow", "torch", "transformers", "tokenizers", "safetensors", "peft", "pandas", "pydantic")
_PAGE_COLUMNS = 90
_HELP = "docs/guides/mlflow-models.md"


@dataclass(frozen=True)
class ServedModel:
    """How MLflow loads a model and what its page says."""

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
        """What MLflow lists as the parameters of the logged model."""
        return dict(self.facts)

    @property
    def description(self) -> str:
        """The text of the model's page, in Markdown."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        return (
            f"{self.title}\n\n{facts}\n\n**Prompt format** (lines are broken for the "
            f"page)\n\n{_block(self.prompt_format)}\n\n"
            f"**The prompt of the input example**\n\n{_block(self.prompt_example)}\n\nHow to load and serve "
            f"it: {_HELP}."
        )


def _block(text: str) -> str:
    """Text as Markdown shows it unchanged, in lines that fit MLflow's page."""
    lines = textwrap.wrap(text, _PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "```\n" + "\n".join(lines) + "\n```"


def write_model(directory: Path, weights: Path, model: ServedModel, run_id: str, model_id: str) -> None:
    """Write the files of an MLflow model into the new `directory`; weights are linked where the file system
    can, else copied.
    """
    import mlflow.pyfunc  # takes a second, and not all who open the registry write a model
    from mlflow.models import Model

    metadata = {"prompt_format": model.prompt_format, "prompt_example": model.prompt_example, **model.facts}
    described = Model(run_id=run_id, model_id=model_id)
    mlflow.pyfunc.save_model(
        directory,
        loader_module=model.module,
        mlflow_model=described,
        signature=model.signature,
        input_example=[dict(row) for row in model.example],
        pip_requirements=_requirements(),
        metadata=metadata,
        model_config=dict(model.settings),
    )
    described.flavors[mlflow.pyfunc.FLAVOR_NAME][mlflow.pyfunc.DATA] = WEIGHTS
    described.save(directory / "MLmodel")
    shutil.copytree(weights, directory / WEIGHTS, copy_function=_link)


def weights_of(directory: Path) -> Path:
    """Where the registered files of a downloaded version lie."""
    return (
        directory / WEIGHTS
        if (directory / "MLmodel").is_file() and (directory / WEIGHTS).is_dir()
        else directory
    )


def _requirements() -> list[str]:
    """The packages that loading needs, as installed here; this project itself is on no package index."""
    found = []
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{name}=={version(name).partition('+')[0]}")
    return found


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)
