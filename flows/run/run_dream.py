"""The dream of a run: its experience model over its replay buffer."""

from __future__ import annotations

from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Grounding
from components.errors import ConfigError
from components.experience.dream import Dream
from components.experience.model import ExperienceModel, Grounded
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.compute import compute_of
from components.records import Transition
from flows.run.pipeline_run import Run
from flows.run.run_data import index_directories, model_episodes, open_buffer


def load_experience_model(config: Config, directory: Path) -> ExperienceModel:
    """The experience model in `directory` as `config` uses it.

    Raises:
        ConfigError: its quotations shall be checked, and the adapter cannot.
    """
    compute, settings = compute_of(config), config.experience_model
    return ExperienceModel.load(
        directory, settings, seed=config.seed, compute=compute, grounded=quotation_check(config)
    )


def quotation_check(config: Config) -> Grounded | None:
    """What says of an answer's reasoning how far it quotes rightly; None if that is not asked for.

    Raises:
        ConfigError: it is, and the adapter cannot tell.
    """
    adapter = make_adapter(config.environment)
    if not config.experience_model.grounded:
        return None
    if not isinstance(adapter, Grounding):
        given = (
            f"experience_model.grounded is true, and the environment {adapter.name} does not say what "
            "reasoning quotes wrongly."
        )
        raise ConfigError(
            given, "Expected an adapter with `grounded`, or false.", "Set experience_model.grounded=false."
        )
    return adapter.grounded


def open_dream(run: Run, model: Path, train: Path) -> tuple[ExperienceModel, ReplayBuffer, Dream]:
    """The experience model in `model`, the buffer of the episodes that it learnt from, and their dream."""
    buffer = open_buffer(run, model_episodes(run, train))
    experience_model = load_experience_model(run.config, model)
    return experience_model, buffer, _dream(run.config, experience_model, buffer)


def dream_over(config: Config, directory: Path, buffer: ReplayBuffer) -> Dream:
    """The dream of the experience model in `directory` over a buffer."""
    return _dream(config, load_experience_model(config, directory), buffer)


def _dream(config: Config, model: ExperienceModel, buffer: ReplayBuffer) -> Dream:
    adapter, settings = make_adapter(config.environment), config.experience_model
    contradiction = adapter.contradiction if settings.coherent else None
    return Dream(
        model, buffer, contradiction, adapter.objection if settings.premise else None, adapter.revealing
    )


def dream_with(
    model: Path,
    config: Config,
    known: list[Transition],
    dreamed: list[Transition],
    hidden: set[str],
    root: Path,
) -> Dream:
    """The dream of the experience model in `model` over a buffer of the transitions `known`, and of those
    `dreamed` so far.
    """
    buffer = ReplayBuffer(config.retrieval, known, hidden=hidden, **index_directories(root))
    buffer.add(dreamed)
    return dream_over(config, model, buffer)
