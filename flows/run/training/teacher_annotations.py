"""Adds the teacher's reasoning to the episodes that the experience model is trained on.

The `programmatic` teacher's reasoning is recorded with the data. The `llm` teacher is the model at
`endpoint`. The `self` teacher is the chat model that is about to be fine-tuned.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from components.config import Config
from components.evaluation.metrics.intervals import Estimate, exact_value, proportion
from components.experience.formats.choose import world_format
from components.experience.formats.world_format import WorldFormat, recorded_answer
from components.experience.teachers.llm_teacher import VERSION, Annotated, annotate
from components.experience.teachers.self_teacher import VERSION as SELF_VERSION
from components.experience.teachers.self_teacher import ReasonBatch, SelfTeacher
from components.files import append_line, write_json, write_text
from components.language.compute import Compute
from components.language.endpoint.chat_completions import Usage
from components.language.endpoint.json_endpoint import Endpoint
from components.language.threads import decoding
from components.language.vocabulary.vocabulary import Vocabulary
from components.records import Trajectory, Transition
from flows.run.stage import Outcome
from flows.training_log import tenths_logger

ANSWERS = Path(".dreamgym", "answers")
"""Directory of the endpoints' answers, below the repository; kept across runs, so none is paid twice."""
RECORD = "annotations.json"
UNFINISHED = "annotations.unfinished.jsonl"
"""Batches of the `self` teacher's reasons, one a line, until all are there."""


def endpoint_slice(config: Config) -> dict[str, Any]:
    """Return the options of the endpoint that change a result; its address and retries do not."""
    names = {"model", "temperature", "max_tokens", "json_mode", "corrections"}
    return config.endpoint.model_dump(include=names)


def self_teacher(config: Config, model: Any, vocabulary: Vocabulary, compute: Compute) -> SelfTeacher | None:
    """Return the teacher that writes with the untrained `model`; None if the config names another one."""
    settings = config.experience_model
    if settings.teacher != "self":
        return None
    return SelfTeacher(
        model,
        vocabulary,
        compute,
        world_format(vocabulary, settings),
        world_format(vocabulary, settings.model_copy(update={"reasoning": False})),
        longest_answer=settings.max_new_tokens,
        seed=config.seed,
    )


def teach(
    config: Config,
    root: Path,
    work: Path,
    text: WorldFormat,
    episodes: list[Trajectory],
    teacher: SelfTeacher | None = None,
) -> tuple[list[Trajectory], Outcome]:
    """Return the episodes with the teacher's reasoning, and the outcome of annotating them.

    Episodes that the teacher could not annotate are left out.

    Args:
        root: of the repository, below which the answers are kept.
        work: work directory of the stage.
        text: of the experience model.
        episodes: in the order of training; a repeated episode is annotated once.
        teacher: the `self` teacher, if the config names it.

    Raises:
        EndpointError: the `llm` teacher does not answer, or leaves more than `max_unannotated_share` of the
            episodes without an annotation.
    """
    settings = config.experience_model
    if settings.teacher == "programmatic":
        return episodes, Outcome({})
    if teacher is not None:
        return _teach_itself(config, work, episodes, teacher)
    left_out = _left_out_earlier(work)
    by_id = {episode.steps[0].episode_id: episode for episode in episodes}
    to_annotate = [episode for name, episode in by_id.items() if name not in left_out]
    get_run_logger().info("%s annotates %d episodes", config.endpoint.model, len(to_annotate))

    def refuse(step: Transition) -> str:
        tokens = len(text.answer(recorded_answer(step)))
        limit = settings.max_new_tokens
        if tokens <= limit:
            return ""
        return f"it makes an answer of {tokens} tokens, more than experience_model.max_new_tokens={limit}"

    with Endpoint(config.endpoint, root / ANSWERS) as endpoint:
        annotations = annotate(
            endpoint, to_annotate, most_left_out=settings.max_unannotated_share, refuse=refuse
        )
    annotations.left_out.update(left_out)
    _write_record(work, config.endpoint.model, annotations)
    annotated_by_id = {episode.steps[0].episode_id: episode for episode in annotations.episodes}
    names = (episode.steps[0].episode_id for episode in episodes)
    annotated = [annotated_by_id[name] for name in names if name in annotated_by_id]
    metrics = _annotation_metrics(annotations, len(by_id), endpoint.usage)
    return annotated, Outcome({"annotations": RECORD}, metrics, costs=endpoint.usage.costs())


def _teach_itself(
    config: Config, work: Path, episodes: list[Trajectory], teacher: SelfTeacher
) -> tuple[list[Trajectory], Outcome]:
    """Return the episodes with the model's own reasons. An interrupted training goes on with those it has."""
    log, path = get_run_logger(), work / RECORD
    if not path.is_file():
        by_id = {episode.steps[0].episode_id: episode for episode in episodes}
        log.info("The model writes a reason for each step of %d episodes", len(by_id))
        unfinished = work / UNFINISHED
        finished = _finished_batches(unfinished)
        if finished:
            log.info("%d batches of an interrupted training are kept", len(finished))
        with decoding(config):
            reasons = teacher.teach(
                list(by_id.values()),
                tenths_logger("steps were asked for a reason"),
                finished=finished,
                on_batch=lambda batch: append_line(unfinished, json.dumps(asdict(batch))),
            )
        record = {"version": SELF_VERSION, "reasoning": reasons.kept, "tokens": reasons.tokens}
        write_json(path, record)
        unfinished.unlink(missing_ok=True)
    record = json.loads(path.read_text(encoding="utf-8"))
    kept = [bool(reason) for reasons in record["reasoning"].values() for reason in reasons]
    log.info("%d of %d reasons make the recorded state likelier and are kept", sum(kept), len(kept))
    taught = [_with_reasons(one, record["reasoning"][one.steps[0].episode_id]) for one in episodes]
    metrics = {"teacher/kept_rate": proportion(sum(kept), len(kept))}
    return taught, Outcome({"annotations": RECORD}, metrics, costs={"tokens_generated": record["tokens"]})


def _finished_batches(path: Path) -> list[ReasonBatch]:
    """Return the batches in `path`; a last line that was not written whole is removed."""
    if not path.is_file():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    write_text(path, "".join(f"{line}\n" for line in lines))
    return [ReasonBatch(**json.loads(line)) for line in lines]


def _with_reasons(episode: Trajectory, reasons: list[str]) -> Trajectory:
    steps = zip(episode.steps, reasons, strict=True)
    return replace(episode, steps=tuple(replace(step, reasoning=reason) for step, reason in steps))


def _left_out_earlier(work: Path) -> dict[str, str]:
    """Return the episodes that an interrupted training had left out, with the reasons.

    Its checkpoint can only be continued with the same examples.
    """
    if not (work / "checkpoint.pt").is_file() or not (work / RECORD).is_file():
        return {}
    return dict(json.loads((work / RECORD).read_text(encoding="utf-8"))["left_out"])


def _write_record(work: Path, model: str, annotations: Annotated) -> None:
    reasoning = {
        episode.steps[0].episode_id: [step.reasoning for step in episode.steps]
        for episode in annotations.episodes
    }
    record = {
        "version": VERSION,
        "model": model,
        "reasoning": reasoning,
        "tutorials": annotations.tutorials,
        "left_out": annotations.left_out,
    }
    (work / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")


def _annotation_metrics(annotations: Annotated, episodes: int, usage: Usage) -> dict[str, Estimate]:
    counts = {"calls": usage.calls, "cached_calls": usage.cached_calls, "rejected_answers": usage.rejected}
    counts |= {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    rate = {"teacher/unannotated_rate": proportion(len(annotations.left_out), episodes)}
    return rate | {f"teacher/{name}": exact_value(value) for name, value in counts.items()}
