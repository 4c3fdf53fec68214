"""Stage 2: fine-tune the experience model and measure its fidelity on held-out real transitions, before
anything trusts it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypedDict

from prefect import flow, get_run_logger

from components.config import Config
from components.environments import make_adapter
from components.environments.protocol import Grounding
from components.errors import ConfigError
from components.evaluation.fidelity import fidelity_metrics
from components.evaluation.intervals import exact
from components.evaluation.judgements import write_judgements
from components.evaluation.retrieval import recall_metrics
from components.experience.dataset import (
    chosen,
    drawn,
    drawn_episodes,
    of_families,
    premise_examples,
    transition_examples,
    variation_examples,
    with_premises,
)
from components.experience.encoders import encoder_identity
from components.experience.experience_model import ExperienceModel, Grounded, note_form
from components.experience.fidelity import measure
from components.experience.replay_buffer import ReplayBuffer
from components.language.backbone import add_lora, load_backbone, merge_lora, save_model
from components.language.compute import compute_of
from components.language.examples import Example
from components.language.rehearsal import rehearsal_examples
from components.language.tokenizer import Vocabulary
from components.language.training import supervised_finetune
from components.records import TEST, TRAIN, Task, Trajectory
from components.tracking.hashes import tree_hash
from components.tracking.stages import StageResult
from components.trajectories.hindsight import hindsight
from components.trajectories.renaming import retold, told_of
from components.trajectories.store import held_out, read_tasks, read_transitions, trajectories
from flows.progress import drawing, telling
from flows.teaching import teach
from flows.threads import decoding, training
from flows.workspace import OF_RUN, Outcome, Workspace

CODE = ["flows.experience_model"]
EXERCISES = 4
"""Comparing, editing, copying and recalling are rehearsed alike."""


def backbone_of(run: Workspace) -> Path:
    """Where the pretrained model of the policies is."""
    return Path(run.config.backbone.path) if run.config.backbone.path else run.data.backbone


def start_of(run: Workspace) -> Path:
    """Where the model is that the experience model starts from."""
    return Path(run.config.experience_model.path) if run.config.experience_model.path else backbone_of(run)


def episodes_of(run: Workspace, name: str) -> list[Trajectory]:
    """The validated trajectories of `train` or `fidelity`."""
    return trajectories(
        read_tasks(run.data.tasks(name)), read_transitions(run.results["validate"].outputs[name])
    )


def lessons_of(run: Workspace) -> list[Trajectory]:
    """The training episodes that the experience model learns from and retrieves, by its config."""
    return chosen(taught_episodes(run), run.config.experience_model, run.config.seed)


def taught_episodes(run: Workspace) -> list[Trajectory]:
    """The validated training episodes of the families that are learnt from."""
    return of_families(episodes_of(run, "train"), run.config.data.families)


def taught_tasks(run: Workspace) -> list[Task]:
    """The training tasks of the families that are learnt from.

    Raises:
        ConfigError: a family that no training task belongs to.
    """
    tasks, wanted = read_tasks(run.data.tasks("train")), run.config.data.families
    known = sorted({task.family for task in tasks})
    wrong = [family for family in wanted if family not in known]
    if wrong:
        raise ConfigError(
            f"No training task is of the family {wrong[0]!r}.", f"data.families may name {', '.join(known)}."
        )
    return [task for task in tasks if not wanted or task.family in wanted]


def families_of(run: Workspace) -> dict[str, list[str]]:
    """What a key must know of the families that are learnt from: nothing where it is all of them."""
    return {"families": sorted(run.config.data.families)} if run.config.data.families else {}


def buffer_of(run: Workspace, episodes: list[Trajectory]) -> ReplayBuffer:
    """A replay buffer seeded with the offline training transitions; held-out tasks are refused."""
    known = [step for episode in episodes for step in episode.steps]
    buffer = ReplayBuffer(run.config.retrieval, known, hidden=held_out(run.data), **kept_below(run.root))
    if buffer.opened:
        get_run_logger().info(buffer.opened)
    return buffer


class Kept(TypedDict):
    """Where the stored index of the log and the embeddings of slow encoders lie."""

    stored: Path
    embeddings: Path


def kept_below(root: Path) -> Kept:
    """Both can be made again, so they are no part of the data."""
    return {"stored": root / ".dreamgym" / "index", "embeddings": root / ".dreamgym" / "embeddings"}


def encoder_of(run: Workspace) -> dict[str, str]:
    """What a key must know of the encoder beside the config: the content of a model; nothing of hashed
    n-grams.
    """
    return (
        {}
        if run.config.retrieval.encoder == "hashing"
        else {"encoder": encoder_identity(run.config.retrieval)}
    )


@flow(name="experience-model", flow_run_name=OF_RUN, validate_parameters=False)
def fine_tune_experience_model(run: Workspace) -> StageResult:
    """The experience model, and `fidelity/*` of its single steps."""
    validated = run.results["validate"].output_hashes
    inputs = {
        "backbone": tree_hash(start_of(run)),
        "train": validated["train"],
        "fidelity": validated["fidelity"],
    }
    inputs |= encoder_of(run)
    config = run.slice("experience_model", "retrieval", "environment") | {"tasks": run.config.fidelity.tasks}
    config |= (
        run.computing(training=True) | {"chat_template": run.config.backbone.chat_template} | families_of(run)
    )
    if (
        run.config.experience_model.teacher == "llm"
    ):  # its address, and how patiently it is asked, change no result
        config["endpoint"] = run.config.endpoint.model_dump(
            include={"model", "temperature", "max_tokens", "json_mode"}
        )
    return run.stage(
        "experience_model", lambda work: _fine_tune(run, work), inputs=inputs, config=config, code=CODE
    )


def _fine_tune(run: Workspace, work: Path) -> Outcome:
    grounding_of(run.config)  # what cannot be checked is refused before the training, not behind it
    config, episodes = run.config, lessons_of(run)
    buffer = buffer_of(run, episodes)
    backbone, vocabulary = load_backbone(
        start_of(run), run.compute.device, chat_template=config.backbone.chat_template
    )
    examples, teaching = examples_of(config, run.root, work, vocabulary, buffer, episodes)
    settings, seed = config.experience_model, config.seed
    model = add_lora(backbone, settings.lora, added=vocabulary.added, seed=seed)
    with training(config):
        record = supervised_finetune(
            model,
            examples,
            epochs=1,
            learning_rate=settings.learning_rate,
            batch_tokens=settings.batch_tokens,
            seed=seed,
            optimizer=settings.optimizer,
            checkpoint=work / "checkpoint.pt",
            checkpoint_every=settings.checkpoint_every,
            on_step=telling(sum(map(len, examples))),
            compute=run.compute,
            on_figures=drawing("experience_model", run.log_curves),
        )
    save_model(merge_lora(model), vocabulary, work / "model")
    note_form(work / "model", settings)
    (work / "checkpoint.pt").unlink(missing_ok=True)
    outcome = _measure(run.config, work, buffer, episodes_of(run, "fidelity"))
    outcome.metrics |= recall_metrics(buffer, episodes_of(run, "fidelity"))
    buffer.close()
    outcome.metrics |= {
        "experience_model/loss": exact(record.final_loss),
        "experience_model/tokens": exact(record.tokens),
    }
    outcome.series["experience_model/loss"] = record.losses
    outcome.costs |= {"tokens_trained": record.tokens, **teaching.costs}
    outcome.metrics |= teaching.metrics
    outcome.outputs |= teaching.outputs
    return outcome


def examples_of(
    config: Config,
    root: Path,
    work: Path,
    vocabulary: Vocabulary,
    buffer: ReplayBuffer,
    episodes: list[Trajectory],
) -> tuple[list[Example], Outcome]:
    """All that the model learns from `episodes`, those told in hindsight or in other names and the exercises
    too; the teacher's outcome.

    Args: root: of the repository; work: the stage's own directory; buffer: where demonstrations come from.
    """
    settings, seed, adapter = config.experience_model, config.seed, make_adapter(config.environment)
    lessons = episodes + hindsight(episodes, adapter, settings.hindsight, seed)
    lessons += retold(lessons, adapter, settings.renamed, seed)
    taught, teaching = teach(config, root, work, vocabulary, drawn_episodes(lessons, settings, seed))
    if settings.premise:
        taught = with_premises(taught, adapter, seed, taught=settings.teacher == "programmatic")
    beside = premise_examples(vocabulary, lessons, adapter) if settings.premise else []
    tasks = list({episode.task.id: episode.task for episode in lessons}.values())
    beside += variation_examples(vocabulary, tasks, adapter.feasible, seed)
    examples = transition_examples(vocabulary, taught, buffer, settings, own=told_of) + drawn(
        beside, settings.epochs, seed
    )
    exercised = int(settings.rehearsal * sum(map(len, examples)) / EXERCISES)
    return examples + rehearsal_examples(vocabulary, exercised, exercised, exercised, seed), teaching


def model_of(config: Config, directory: Path) -> ExperienceModel:
    """The experience model in `directory` as `config` uses it.

    Raises:
        ConfigError: its quotations shall be checked, and the adapter cannot.
    """
    compute, settings = compute_of(config), config.experience_model
    return ExperienceModel.load(
        directory, settings, seed=config.seed, compute=compute, grounded=grounding_of(config)
    )


def grounding_of(config: Config) -> Grounded | None:
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


def _measure(config: Config, work: Path, buffer: ReplayBuffer, episodes: list[Trajectory]) -> Outcome:
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    parts = (
        [task.id for task in tasks if task.split == split][: config.fidelity.tasks] for split in (TRAIN, TEST)
    )
    measured = {name for part in parts for name in part}
    model = model_of(config, work / "model")
    began = time.monotonic()
    with decoding():
        judgements = measure(
            model, buffer, make_adapter(config.environment), [e for e in episodes if e.task.id in measured]
        )
    write_judgements(work / "judgements.parquet", judgements)
    metrics = fidelity_metrics(judgements)
    if config.experience_model.grounded:
        metrics["fidelity/misquoting_answers_a_step"] = exact(model.misquoting / max(1, len(judgements)))
    metrics["fidelity/steps_per_second"] = exact(len(judgements) / (time.monotonic() - began))
    return Outcome(
        {"model": "model", "judgements": "judgements.parquet"},
        metrics,
        costs={"tokens_generated": model.tokens},
    )
