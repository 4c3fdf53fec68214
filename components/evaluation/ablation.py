"""Ablations of the experience model: the same measurement of models that lack one thing each, pooled over seeds (Table 2, Figure 4, 5).

Every variant faces the same questions: the same held-out offline steps, and the same real steps of the same policies. A task's outcome is
first averaged over the seeds, so that a difference is paired by task and its n is the number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.config import Config, ExperienceModelConfig
from components.evaluation.axes import axes_metrics, axis_scores
from components.evaluation.fidelity import EXAMINED, examined_policies, fidelity_metrics
from components.evaluation.intervals import Estimate, mean
from components.evaluation.open_loop import Rehearsal, open_loop_metrics
from components.experience.fidelity import Judgement

FULL = "full"
_RECALL = ExperienceModelConfig.model_fields["recall"].default
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    FULL: {},
    "no-history": {"experience_model": {"history": False, "recall": _RECALL}},
    "no-retrieval": {"retrieval": {"k": 0}},
    "no-reasoning": {"experience_model": {"reasoning": False}},
    "expert-only": {"experience_model": {"behaviours": ["expert"]}},
}
"""Name -> what it changes in the config. The first takes nothing away."""
SWITCHED = ("retrieval", "curriculum")
"""Sections that a variant turns off as a whole."""
SIZES = (500, 2000, 5000, 10000)
"""Offline transitions of the data-size curve (Figure 5)."""


def variants(sizes: Sequence[int] = SIZES) -> dict[str, dict[str, dict[str, Any]]]:
    """All ablations, and a variant `data-N` for each size."""
    return VARIANTS | {f"data-{size}": {"experience_model": {"transitions": size}} for size in sizes}


def varied(config: Config, changes: Mapping[str, Mapping[str, Any]], seed: int) -> Config:
    """`config` with the sections' `changes` and another seed; a section that is turned off loses the options that it makes idle."""
    values = config.model_dump(mode="json")
    for section, changed in changes.items():
        values[section] = dict(changed) if section in SWITCHED else values[section] | changed
    return Config.model_validate(values | {"seed": seed})


def pooled(judgements: Sequence[Judgement], rehearsals: Sequence[Rehearsal]) -> dict[str, Estimate]:
    """All metrics of one variant over all its seeds; the intervals are those of clusters by task, so seeds do not make them narrower
    than the tasks allow."""
    offline = [j for j in judgements if j.transition.behaviour not in EXAMINED]
    policies = [j for j in judgements if j.transition.behaviour in EXAMINED]
    return fidelity_metrics(offline) | examined_policies(policies) | open_loop_metrics(rehearsals) | axes_metrics(offline)


Score = Callable[[Judgement], float | None]
SCORES: dict[str, Score] = {
    "next_state_exact/determined": lambda j: None if j.revealing else float(j.exact),
    "fact_recall": lambda j: j.right / j.truths if j.truths else None,
    "hallucination_rate": lambda j: j.contradicted / j.claims if j.claims else None,
    "reward_right": lambda j: float(j.reward == j.predicted_reward),
    "unparsable_rate": lambda j: float(not j.parsed),
    "consistency": lambda j: axis_scores(j)["consistency"],
    "diversity": lambda j: axis_scores(j)["diversity"],
    "informativeness": lambda j: axis_scores(j)["informativeness"],
    "hallucination": lambda j: axis_scores(j)["hallucination"],
}
"""What is compared step by step: name -> score of a judgement, None where it does not apply."""
HEADLINE = "next_state_exact/determined"
"""The score that is compared seed by seed too."""


def differences(full: Sequence[Judgement], other: Sequence[Judgement]) -> dict[str, Estimate]:
    """`difference/<score>` of `other` minus `full`, paired by task: the mean over tasks of the difference of their means."""
    return {f"difference/{name}": _difference(full, other, score) for name, score in SCORES.items()}


def by_seed(pairs: Mapping[int, tuple[Sequence[Judgement], Sequence[Judgement]]]) -> dict[str, Estimate]:
    """`difference/<HEADLINE>/seed_<n>` for each seed's (full, other).

    The interval of the pooled difference is one over tasks: it does not know that another seed trains another model. Seeds that
    disagree in sign say that the variant's worth was not shown.
    """
    return {f"difference/{HEADLINE}/seed_{seed}": _difference(full, other, SCORES[HEADLINE]) for seed, (full, other) in pairs.items()}


def _difference(full: Sequence[Judgement], other: Sequence[Judgement], score: Score) -> Estimate:
    sides = [_by_task(judgements, score) for judgements in (full, other)]
    return mean([sides[1][task] - sides[0][task] for task in sides[0] if task in sides[1]])


def _by_task(judgements: Sequence[Judgement], score: Score) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for judgement in judgements:
        value = score(judgement)
        if value is not None:
            found.setdefault(judgement.transition.task_id, []).append(value)
    return {task: sum(values) / len(values) for task, values in found.items()}
