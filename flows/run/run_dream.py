"""The dream of a run: its experience model over its replay buffer."""

from __future__ import annotations

from pathlib import Path

from components.config import Config
from components.environments import make_adapter
from components.environments.capabilities import Grounding
from components.errors import ConfigError
from components.experience.decoding.answer_checks import GroundingCheck
from components.experience.dream import Dream
from components.experience.dreaming_model import DreamingModel
from components.experience.model import ExperienceModel
from components.experience.prompted_model import CARD, PromptedModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.language.compute import compute_of
from components.language.endpoint.json_endpoint import Endpoint
from components.records import Transition
from flows.run.pipeline_run import Run
from flows.run.run_data import index_directories, known_episodes, open_buffer
from flows.run.stage import Inputs
from flows.run.training.system_turns import world_description
from flows.run.training.teacher_annotations import ANSWERS


def load_experience_model(config: Config, directory: Path, root: Path) -> DreamingModel:
    """Load the experience model in `directory` with the settings of `config`; a prompted one has no weights.

    Args:
        root: of the repository, below which the answers of an endpoint are kept.

    Raises:
        ConfigError: its quotations are to be checked, and the adapter cannot do it.
    """
    _require_kind(config, directory)
    if config.experience_model.kind == "prompted":
        return PromptedModel(
            Endpoint(config.endpoint, root / ANSWERS),
            config.experience_model,
            world_description(config),
            config.data.max_text_chars,
        )
    compute = compute_of(config)
    settings = config.experience_model
    return ExperienceModel.load(
        directory, settings, seed=config.seed, compute=compute, grounded=quotation_check(config)
    )


def _require_kind(config: Config, directory: Path) -> None:
    """Raise ConfigError if the directory holds a model of the other kind."""
    kind = "prompted" if (directory / CARD).is_file() else "trained"
    if kind != config.experience_model.kind:
        raise ConfigError(
            f"The experience model in {directory} is {kind}, and experience_model.kind is "
            f"{config.experience_model.kind}.",
            "Expected the same kind.",
            f"Give the run's config (--config runs/RUN/config.json), or set experience_model.kind={kind}.",
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


def open_dream(run: Run, inputs: Inputs) -> tuple[DreamingModel, ReplayBuffer, Dream]:
    """Open the experience model, the buffer of the episodes that it knows, and the dream over both.

    Args:
        inputs: of a stage: `model`, `train` and those of `experience_input`.
    """
    buffer = open_buffer(run, known_episodes(run, inputs))
    experience_model = load_experience_model(run.config, inputs["model"], run.root)
    return experience_model, buffer, _make_dream(run.config, experience_model, buffer)


def dream_over(
    config: Config, directory: Path, buffer: ReplayBuffer, root: Path, lost_actions: float = 0.0
) -> Dream:
    """Open the dream of the experience model in `directory` over a buffer.

    Args:
        root: of the repository.
        lost_actions: share of the steps that are disturbed on purpose (`Dream`).
    """
    return _make_dream(config, load_experience_model(config, directory, root), buffer, lost_actions)


def _make_dream(
    config: Config, model: DreamingModel, buffer: ReplayBuffer, lost_actions: float = 0.0
) -> Dream:
    adapter = make_adapter(config.environment)
    settings = config.experience_model
    contradiction = adapter.contradiction if settings.coherent else None
    objection = adapter.objection if settings.premise and settings.kind == "trained" else None
    return Dream(model, buffer, contradiction, objection, adapter.revealing, lost_actions)


def dream_with(
    model: Path,
    config: Config,
    recorded: list[Transition],
    dreamed: list[Transition],
    hidden: set[str],
    root: Path,
    lost_actions: float = 0.0,
) -> Dream:
    """Open the dream of the experience model in `model` over a buffer of recorded and dreamed transitions.

    Args:
        hidden: ids of held-out tasks, which the buffer refuses.
        root: of the repository, with the stored index and embeddings.
        lost_actions: share of the steps that are disturbed on purpose (`Dream`).
    """
    buffer = ReplayBuffer(config.retrieval, recorded, hidden=hidden, **index_directories(root))
    buffer.add(dreamed)
    return dream_over(config, model, buffer, root, lost_actions)
