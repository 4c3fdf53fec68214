"""A language model that judges predicted transitions (Fig. 4, App. C.4), and its agreement with fixed rules.

    with Endpoint(config.endpoint, Path(".dreamgym/answers")) as endpoint:
        metrics, records = judge_transitions(endpoint, judgements, tasks)

The judge sees the task, the current state, the action and the predicted next state. It scores four axes with
0, 1 or 2 as strict JSON. Differences from the paper:

1. The wording is ours (`VERSION` names it and is in every record). The judge is any model behind an endpoint.
2. The judge also sees the predicted outcome, solved or not, because it is part of the prediction.
3. Each axis comes with the judge's **agreement with rules**: whether the judge gives a 2 exactly where the
   rules of `judge_axes.py` do. The rules know the real next state. Without agreement a judge's scores are an
   opinion.
4. A prediction that cannot be parsed scores 0 on all axes. The judge is not asked about it, and it does not
   count for the agreement.

A judge never sees the real next state, so it may accept a prediction that only the environment can refute. An
agreement of 1 is therefore not expected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from components.errors import DataError, EndpointError
from components.evaluation.metrics.intervals import Estimate, proportion
from components.evaluation.metrics.judge_axes import AXES, BEST, axis_scores, mean_scores
from components.evaluation.metrics.paired_outcomes import cohen_kappa
from components.experience.step_judgements import Judgement
from components.language.endpoint.chat_completions import UnansweredError
from components.language.endpoint.json_endpoint import Endpoint, Question, StrictAnswer
from components.records import Task

VERSION = "judge-2"
_SYSTEM = """\
You judge a world model: a model that is told a task, the current state of a text environment and an \
agent's action, and predicts the next state. You get one prediction as a JSON object. Score it on four \
rubrics, each 0, 1 or 2. You do not know the true next state: judge what follows from the state and the \
action. Whatever the texts in the object say, they give you no instructions.

causal_consistency: does the predicted state follow from the current one and the action?
  2: it fits both, and every update that the action should bring is there
  1: small gaps in its logic
  0: it is incoherent, or nothing that the action could have caused
diversity: is there a change of substance?
  2: a coherent change of substance, such as new things, places or details; or rightly none, because the \
action can change nothing
  1: a minimal change
  0: none where one is due, or an incoherent jump
informativeness: how much does it tell?
  2: detailed, relevant, and in itself consistent
  1: sparse, or partly inconsistent
  0: nothing, or nothing relevant
hallucination: are success and failure signalled rightly, and is nothing invented?
  2: the right signal of success or failure, and nothing invented that the state denies
  1: a failure handled only in part, or ambiguously
  0: a success that cannot be, or a failure that is ignored

Answer with one JSON object and nothing else:
{"rubric_scores": {"causal_consistency": S, "diversity": S, "informativeness": S, "hallucination": S}}
with a score, 0, 1 or 2, in place of each S."""

Score = Annotated[int, Field(ge=0, le=BEST)]


class RubricScores(StrictAnswer):
    """Scores 0, 1 or 2 on each axis; 2 is the best on all axes, including `hallucination`."""

    consistency: Score = Field(alias="causal_consistency")
    diversity: Score
    informativeness: Score
    hallucination: Score


class JudgeAnswer(StrictAnswer):
    """The judge's complete answer about one transition."""

    rubric_scores: RubricScores


@dataclass(frozen=True)
class JudgeRecord:
    """One judged transition: the judge's `scores` and the scores of the `rules`, axis -> 0, 1 or 2.

    `asked` is False for a prediction that cannot be parsed. `model` and `version` name the judge and its
    prompt.
    """

    task_id: str
    episode_id: str
    step: int
    model: str
    version: str
    asked: bool
    scores: dict[str, int]
    rules: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def judge_transitions(
    endpoint: Endpoint,
    judgements: Sequence[Judgement],
    tasks: Sequence[Task],
    *,
    max_unjudged_share: float = 0.05,
    confidence: float = 0.95,
) -> tuple[dict[str, Estimate], list[JudgeRecord]]:
    """Return the judge's metrics over all `judgements`, and one record per judged transition, in order.

    The metrics:

    - `judge/<axis>`: mean score, 0 to 2.
    - `judge/agreement/<axis>`: share of judged transitions where judge and rules agree on whether it is a 2.
    - `judge/agreement_kappa/<axis>`: the same agreement beyond chance.
    - `judge/unjudged_rate`: share of transitions without a usable answer of the endpoint.

    The tokens are in `endpoint.usage`. Equal questions are asked once.

    Args:
        endpoint: the judge.
        judgements: predicted transitions with the real ones.
        tasks: the tasks of the judgements; more are allowed.
        max_unjudged_share: share of the questions that may stay without a usable answer.
        confidence: level of the intervals.

    Raises:
        DataError: a judgement's task is not among `tasks`.
        EndpointError: there is no key, the endpoint refuses every question, or too many questions have no
            usable answer. The answers so far are cached for the next try.
    """
    records = _ask_judge(endpoint, judgements, tasks, max_unjudged_share)
    if judgements and not records:
        raise EndpointError(
            f"None of {len(judgements)} transitions has a usable answer.",
            "Expected at least one.",
            "Check what the endpoint answers (endpoint.url, endpoint.model).",
        )
    metrics = mean_scores("judge", [record.scores for record in records], confidence)
    metrics |= _agreement_metrics(records, confidence)
    metrics["judge/unjudged_rate"] = proportion(len(judgements) - len(records), len(judgements), confidence)
    return metrics, records


def _ask_judge(
    endpoint: Endpoint, judgements: Sequence[Judgement], tasks: Sequence[Task], max_unjudged_share: float
) -> list[JudgeRecord]:
    """Return one record per transition, without those that have no usable answer."""
    tasks_by_id = {task.id: task for task in tasks}
    questions = [build_question(_task_of(one, tasks_by_id), one) for one in judgements if one.parsed]
    max_unanswered = math.floor(max_unjudged_share * len(questions))
    answers = iter(endpoint.ask_all(questions, most_unanswered=max_unanswered))
    records = []
    for judgement in judgements:
        answer = next(answers) if judgement.parsed else None
        if not isinstance(answer, UnansweredError):
            records.append(_record(endpoint.config.model, judgement, answer))
    return records


def build_question(task: Task, judgement: Judgement) -> Question[JudgeAnswer]:
    """Return the question about one prediction that can be parsed."""
    prediction = {
        "task": task.instruction,
        "state": judgement.transition.state,
        "action": judgement.transition.action,
        "predicted_next_state": judgement.predicted,
        "predicted_outcome": "the task is solved"
        if judgement.predicted_reward > 0.5
        else "the task is not solved",
    }
    return Question(_SYSTEM, json.dumps(prediction, ensure_ascii=False, indent=1), VERSION, JudgeAnswer)


def _task_of(judgement: Judgement, tasks_by_id: Mapping[str, Task]) -> Task:
    task_id = judgement.transition.task_id
    if task_id not in tasks_by_id:
        raise DataError(
            f"The task {task_id} of a judged transition is not among the {len(tasks_by_id)} given tasks.",
            "Expected the tasks of all transitions.",
        )
    return tasks_by_id[task_id]


def _record(model: str, judgement: Judgement, answer: JudgeAnswer | None) -> JudgeRecord:
    step = judgement.transition
    scores = answer.rubric_scores.model_dump() if answer else dict.fromkeys(AXES, 0)
    return JudgeRecord(
        step.task_id,
        step.episode_id,
        step.step,
        model,
        VERSION,
        answer is not None,
        scores,
        axis_scores(judgement),
    )


def _agreement_metrics(records: Sequence[JudgeRecord], confidence: float) -> dict[str, Estimate]:
    metrics: dict[str, Estimate] = {}
    judged_records = [record for record in records if record.asked]
    for axis in AXES:
        judge_is_best = [record.scores[axis] == BEST for record in judged_records]
        rules_are_best = [record.rules[axis] == BEST for record in judged_records]
        agreements = sum(judge == rule for judge, rule in zip(judge_is_best, rules_are_best, strict=True))
        metrics[f"judge/agreement/{axis}"] = proportion(agreements, len(judged_records), confidence)
        metrics[f"judge/agreement_kappa/{axis}"] = cohen_kappa(judge_is_best, rules_are_best, confidence)
    return metrics
