"""Whose reasoning the experience model learns: as recorded with the data, or what the model at `endpoint`
says of the episodes.
"""

from __future__ import annotations

import json
from pathlib import Path

from prefect import get_run_logger

from components.config import Config
from components.evaluation.metrics.intervals import Estimate, exact, proportion
from components.experience.prompts import answer
from components.experience.teacher import VERSION, Annotated, annotate
from components.language.endpoint.chat_completions import Usage
from components.language.endpoint.json_endpoint import Endpoint
from components.language.tokenizer import Vocabulary
from components.records import Trajectory, Transition
from flows.run.stage import Outcome

ANSWERS = Path(".dreamgym", "answers")
"""What endpoints have answered, below the root of the repository: kept across runs, so that no answer is paid
for twice.
"""
RECORD = "annotations.json"


def teach(
    config: Config, root: Path, work: Path, vocabulary: Vocabulary, episodes: list[Trajectory]
) -> tuple[list[Trajectory], Outcome]:
    """The episodes with the chosen teacher's reasoning; and as a part of the stage's outcome what it wrote,
    left out and cost.

    Args:
        root: of the repository, below which the answers are kept; work: the stage's own directory.
        episodes: in the order of training; one that is there several times is asked about once.

    Raises:
        EndpointError: the `llm` teacher cannot be asked, or leaves more than `max_unannotated_share` without
            an annotation.
    """
    settings = config.experience_model
    if settings.teacher == "programmatic":
        return episodes, Outcome({})
    left_out = _left_out_before(work)
    single = {episode.steps[0].episode_id: episode for episode in episodes}
    asked = [episode for name, episode in single.items() if name not in left_out]
    get_run_logger().info("%s annotates %d episodes", config.endpoint.model, len(asked))

    def refuse(step: Transition) -> str:
        tokens, most = len(vocabulary.encode(answer(step, reasoning=True))), settings.max_new_tokens
        return (
            f"it makes an answer of {tokens} tokens, more than experience_model.max_new_tokens={most}"
            if tokens > most
            else ""
        )

    with Endpoint(config.endpoint, root / ANSWERS) as endpoint:
        found = annotate(endpoint, asked, most_left_out=settings.max_unannotated_share, refuse=refuse)
    found.left_out.update(left_out)
    _record(work, config.endpoint.model, found)
    annotated = {episode.steps[0].episode_id: episode for episode in found.episodes}
    taught = [
        annotated[name] for name in (episode.steps[0].episode_id for episode in episodes) if name in annotated
    ]
    return taught, Outcome(
        {"annotations": RECORD}, _metrics(found, len(single), endpoint.usage), costs=endpoint.usage.costs()
    )


def _left_out_before(work: Path) -> dict[str, str]:
    """Episodes that a training which was broken off had left out: its checkpoint goes on with the same
    examples only.
    """
    if not (work / "checkpoint.pt").is_file() or not (work / RECORD).is_file():
        return {}
    return dict(json.loads((work / RECORD).read_text(encoding="utf-8"))["left_out"])


def _record(work: Path, model: str, found: Annotated) -> None:
    reasoning = {
        episode.steps[0].episode_id: [step.reasoning for step in episode.steps] for episode in found.episodes
    }
    record = {
        "version": VERSION,
        "model": model,
        "reasoning": reasoning,
        "tutorials": found.tutorials,
        "left_out": found.left_out,
    }
    (work / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")


def _metrics(found: Annotated, episodes: int, usage: Usage) -> dict[str, Estimate]:
    counts = {"calls": usage.calls, "cached_calls": usage.cached_calls, "rejected_answers": usage.rejected}
    counts |= {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    rate = {"teacher/unannotated_rate": proportion(len(found.left_out), episodes)}
    return rate | {f"teacher/{name}": exact(value) for name, value in counts.items()}
