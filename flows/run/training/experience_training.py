"""Training of the experience model, in the first round or a further one, and its single-step fidelity."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.config import Config
from components.environments import make_adapter
from components.evaluation.metrics.calibration import reliability
from components.evaluation.metrics.fidelity_metrics import fidelity_metrics
from components.evaluation.metrics.intervals import exact_value
from components.evaluation.metrics.judgements import write_judgements
from components.evaluation.metrics.retrieval_recall import recall_metrics
from components.experience.dataset import (
    assume_premises,
    premise_examples,
    repeat_evenly,
    sample_training_episodes,
    transition_examples,
    variation_examples,
)
from components.experience.formats.choose import world_format
from components.experience.model import save_prompt_form
from components.experience.prompted_model import PromptedModel
from components.experience.retrieval.replay_buffer import ReplayBuffer
from components.experience.step_judgements import judge_predictions
from components.experience.tasks.task_feasibility import task_feasibility
from components.experience.teachers.self_teacher import SelfTeacher
from components.language.adapters import add_lora
from components.language.backbone import load_backbone, save_model
from components.language.exercises.rehearsal import rehearsal_examples
from components.language.threads import decoding, training
from components.language.training.examples import Example
from components.language.training.fine_tuning import supervised_finetune
from components.language.vocabulary.vocabulary import Vocabulary
from components.records import TEST, TRAIN, Trajectory
from components.trajectories.augmentation.hindsight import hindsight
from components.trajectories.augmentation.renaming import original_task_id, rename_episodes
from flows.run.pipeline_run import Run
from flows.run.run_data import (
    families_config,
    open_buffer,
    read_episodes,
)
from flows.run.run_dream import load_experience_model, quotation_check
from flows.run.stage import Inputs, Outcome
from flows.run.training.system_turns import experience_model_system
from flows.run.training.teacher_annotations import endpoint_slice, self_teacher, teach
from flows.training_log import curve_logger, progress_logger, speed_metrics, tenths_logger

MISSING_REPLIES = "missing_replies"
"""Detail of the stage: what a prompted model's endpoint did not reply to, and why."""
EXERCISE_KINDS = 4
"""Kinds of exercises (compare, edit, copy, recall) that have equal shares of the rehearsal."""


def experience_model_config(run: Run) -> dict[str, Any]:
    """Return the config values that change an experience model's training or its fidelity."""
    config: dict[str, Any] = run.slice("experience_model", "retrieval", "environment")
    config |= {
        "tasks": run.config.fidelity.tasks,
        "format": run.config.backbone.format,
        "system": experience_model_system(run.config),
    }
    config |= run.computing(training=True) | families_config(run)
    settings = run.config.experience_model
    if settings.kind == "prompted" or settings.teacher == "llm":
        config["endpoint"] = endpoint_slice(run.config)
    return config


def train_and_measure(
    run: Run,
    config: Config,
    inputs: Inputs,
    work: Path,
    *,
    start: Path,
    episodes: list[Trajectory],
    known: list[Trajectory] | None = None,
) -> Outcome:
    """Train the model in `start` on `episodes`, and measure its fidelity on held-out transitions.

    Args:
        config: that of the run, or with other passes.
        known: episodes that it retrieves from; None: those that it is trained on.
    """
    quotation_check(config)  # refuses a missing capability of the adapter before the training
    buffer = open_buffer(run, episodes if known is None else known)
    backbone, vocabulary = load_backbone(
        start,
        run.compute.device,
        text_format=config.backbone.format,
        system=experience_model_system(config),
    )
    teacher = self_teacher(config, backbone, vocabulary, run.compute)
    examples, annotation = training_examples(config, run.root, work, vocabulary, buffer, episodes, teacher)
    settings = config.experience_model
    seed = run.round_seed
    model = add_lora(backbone, config.lora, added=vocabulary.added, seed=seed, frozen=run.compute.frozen)
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
            on_step=progress_logger(sum(map(len, examples))),
            compute=run.compute,
            on_figures=curve_logger("experience_model", run.log_curves),
        )
    save_model(model, vocabulary, work / "model")
    save_prompt_form(work / "model", settings)
    fidelity_episodes = read_episodes(run, "fidelity", inputs["fidelity"])
    outcome = measure_fidelity(run, work, buffer, fidelity_episodes)
    (work / "checkpoint.pt").unlink(missing_ok=True)  # until here, a run that is killed need not train again
    outcome.metrics |= recall_metrics(buffer, fidelity_episodes)
    buffer.close()
    outcome.metrics |= {
        "experience_model/loss": exact_value(record.final_loss),
        "experience_model/tokens": exact_value(record.tokens),
    }
    outcome.metrics |= speed_metrics("experience_model", record)
    outcome.series["experience_model/loss"] = record.losses
    outcome.costs |= {"tokens_trained": record.tokens, **annotation.costs}
    outcome.metrics |= annotation.metrics
    outcome.outputs |= annotation.outputs
    return outcome


def training_examples(
    config: Config,
    root: Path,
    work: Path,
    vocabulary: Vocabulary,
    buffer: ReplayBuffer,
    episodes: list[Trajectory],
    teacher: SelfTeacher | None = None,
) -> tuple[list[Example], Outcome]:
    """Return all training examples of the experience model, and the outcome of the teacher's annotation.

    They include copies of episodes with another instruction or other names, premises, task variations and
    rehearsed exercises.

    Args:
        root: of the repository.
        work: work directory of the stage.
        buffer: that demonstrations are retrieved from.
        teacher: the `self` teacher, if the config names it.
    """
    settings = config.experience_model
    seed = config.seed
    adapter = make_adapter(config.environment)
    text = world_format(vocabulary, settings)
    augmented = episodes + hindsight(episodes, adapter, settings.hindsight, seed)
    augmented += rename_episodes(augmented, adapter, settings.renamed, seed)
    annotated, annotation = teach(
        config, root, work, text, sample_training_episodes(augmented, settings, seed), teacher
    )
    if settings.premise:
        annotated = assume_premises(annotated, adapter, seed, taught=settings.teacher == "programmatic")
    further = premise_examples(text, augmented, adapter) if settings.premise else []
    tasks = list({episode.task.id: episode.task for episode in augmented}.values())
    further += variation_examples(text, tasks, task_feasibility(adapter, tasks), seed)
    examples = transition_examples(text, annotated, buffer, settings, own=original_task_id)
    examples += repeat_evenly(further, settings.epochs, seed)
    if not settings.rehearsal:
        return examples, annotation
    each = int(settings.rehearsal * sum(map(len, examples)) / EXERCISE_KINDS)
    return examples + rehearsal_examples(vocabulary, each, each, each, seed), annotation


def measure_fidelity(run: Run, work: Path, buffer: ReplayBuffer, episodes: Sequence[Trajectory]) -> Outcome:
    """Judge the model in `work` on steps of held-out tasks, each from its real history."""
    config = run.config
    tasks = list({episode.task.id: episode.task for episode in episodes}.values())
    measured_tasks: set[str] = set()
    for split in (TRAIN, TEST):
        measured_tasks |= set([task.id for task in tasks if task.split == split][: config.fidelity.tasks])
    model = load_experience_model(config, work / "model", run.root)
    began = time.monotonic()
    with decoding(config):
        judgements = judge_predictions(
            model,
            buffer,
            make_adapter(config.environment),
            [episode for episode in episodes if episode.task.id in measured_tasks],
            progress=tenths_logger("held-out steps were dreamed"),
        )
    write_judgements(work / "judgements.parquet", judgements)
    metrics = fidelity_metrics(judgements)
    if config.experience_model.grounded:
        metrics["fidelity/misquoting_answers_a_step"] = exact_value(
            model.ungrounded_answers / max(1, len(judgements))
        )
    metrics["fidelity/steps_per_second"] = exact_value(len(judgements) / (time.monotonic() - began))
    details: dict[str, Any] = {"reliability": reliability(judgements)}
    if isinstance(model, PromptedModel) and model.missing.count:
        details[MISSING_REPLIES] = str(model.missing)
    return Outcome(
        {"model": "model", "judgements": "judgements.parquet"},
        metrics,
        details=details,
        costs={"tokens_generated": model.tokens, **model.endpoint_costs},
    )
