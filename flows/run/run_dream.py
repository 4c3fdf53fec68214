"""The dream of a run: its experience model over its replay buffer."""

from __future__ import annotations

from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.capabilities import Grounding
from components.errors import ConfigError
from components.experience.decoding.answer_checks import GroundingCheck
from components.experience.dream import Dream
from components.experience.model import ExperienceModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.compute import compute_of
from components.records import Transition
from flows.run.pipeline_run import Run
from flows.run.run_data import index_directories, model_episodes, open_buffer


def load_experience_model(config: Config, directory: Path) -> ExperienceModel:
    """Load the experience model in `directory` with the settings of `config`.

    Raises:
        ConfigError: its quotations are to be checked, and the adapter cannot do it.
    """
    compute = compute_of(config)
    settings = config.experience_model
    return ExperienceModel.load(
        directory, settings, seed=config.seed, compute=compute, grounded=quotation_check(config)
    )


def quotation_check(config: Config) -> GroundingCheck | None:
    """Return the function that checks quotations in an answer's reasoning; None if it is turned off.

    Raises:
        ConfigError: the config asks for it, and the adapter cannot do it.
    """
    adapter = make_adapter(config.environment)
    if not config.experience_model.grounded:
        return None
    if not isinstance(adapter, Grounding):
        raise ConfigError(
            f"experience_model.grounded is true, and the environment {adapter.name} cannot check quotations "
            "in reasoning.",
            "Expected an adapter with `grounded`, or false.",
            "Set experience_model.grounded=false.",
        )
    return adapter.grounded


def open_dream(run: Run, model: Path, train: Path) -> tuple[ExperienceModel, ReplayBuffer, Dream]:
    """Open the experience model in `model`, the buffer of its training episodes, and the dream over both."""
    buffer = open_buffer(run, model_episodes(run, train))
    experience_model = load_experience_model(run.config, model)
    return experience_model, buffer, _make_dream(run.config, experience_model, buffer)


def dream_over(config: Config, directory: Path, buffer: ReplayBuffer) -> Dream:
    """Open the dream of the experience model in `directory` over a buffer."""
    return _make_dream(config, load_experience_model(config, directory), buffer)


def _make_dream(config: Config, model: ExperienceModel, buffer: ReplayBuffer) -> Dream:
    adapter = make_adapter(config.environment)
    settings = config.experience_model
    contradiction = adapter.contradiction if settings.coherent else None
    objection = adapter.objection if settings.premise else None
    return Dream(model, buffer, contradiction, objection, adapter.revealing)


def dream_with(
    model: Path,
    config: Config,
    recorded: list[Transition],
    dreamed: list[Transition],
    hidden: set[str],
    root: Path,
) -> Dream:
    """Open the dream of the experience model in `model` over a buffer of recorded and dreamed transitions.

    Args:
        hidden: ids of held-out tasks, which the buffer refuses.
        root: of the repository, with the stored index and embeddings.
    """
    buffer = ReplayBuffer(config.retrieval, recorded, hidden=hidden, **index_directories(root))
    buffer.add(dreamed)
    return dream_over(config, model, buffer)
