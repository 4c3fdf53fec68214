"""Ablations of the experience model: the same measurement of models that lack one thing each, pooled over
seeds (Table 2, Figure 4, 5).

Every variant faces the same questions: the same held-out offline steps, and the same real steps of the same
policies. A difference is paired by task and seed, its n is the number of tasks, and its interval speaks of
further tasks and further seeds (`crossed_mean`): another seed trains another model. Intervals of a variant's
own metrics are those of clusters by task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.config import OF_REASONING, Config, ExperienceModelConfig
from components.evaluation.metrics.fidelity_metrics import EXAMINED, examined_policies, fidelity_metrics
from components.evaluation.metrics.intervals import Estimate, crossed_mean
from components.evaluation.metrics.judge_axes import axes_metrics, axis_scores
from components.evaluation.metrics.open_loop import Rehearsal, open_loop_metrics
from components.experience.step_judgements import Judgement

FULL = "full"
_IDLE = {
    name: ExperienceModelConfig.model_fields[name].default
    for name in ("recall", "near_miss_weight", *OF_REASONING)
}
"""Options that some variants make idle, and that are left alone then."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    FULL: {},
    "no-history": {"experience_model": {"history": False, "recall": _IDLE["recall"]}},
    "no-retrieval": {"retrieval": {"k": 0}},
    "no-reasoning": {
        "experience_model": {"reasoning": False, **{name: _IDLE[name] for name in OF_REASONING}}
    },
    "expert-only": {
        "experience_model": {"behaviours": ["expert"], "near_miss_weight": _IDLE["near_miss_weight"]}
    },
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
    """`config` with the sections' `changes` and another seed; a section that is turned off loses the options
    that it makes idle.
    """
    values = config.model_dump(mode="json")
    for section, changed in changes.items():
        values[section] = dict(changed) if section in SWITCHED else values[section] | changed
    return Config.model_validate(values | {"seed": seed})


def pooled(judgements: Sequence[Judgement], rehearsals: Sequence[Rehearsal]) -> dict[str, Estimate]:
    """All metrics of one variant over all its seeds; the intervals are those of clusters by task, so seeds do
    not make them narrower than the tasks allow.
    """
    offline = [j for j in judgements if j.transition.behaviour not in EXAMINED]
    policies = [j for j in judgements if j.transition.behaviour in EXAMINED]
    return (
        fidelity_metrics(offline)
        | examined_policies(policies)
        | open_loop_metrics(rehearsals)
        | axes_metrics(offline)
    )


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


Pair = tuple[Sequence[Judgement], Sequence[Judgement]]
"""The judgements of the full model and of another, of one seed."""


def differences(pairs: Mapping[int, Pair]) -> dict[str, Estimate]:
    """`difference/<score>` of the variant minus the full model, seed -> (full, variant): paired by task, over
    the tasks of all seeds.

    `difference/<HEADLINE>/seed_<n>` is each seed's own.
    """
    found = {f"difference/{name}": _difference(list(pairs.values()), score) for name, score in SCORES.items()}
    return found | {
        f"difference/{HEADLINE}/seed_{seed}": _difference([pair], SCORES[HEADLINE])
        for seed, pair in pairs.items()
    }


def _difference(pairs: Sequence[Pair], score: Score) -> Estimate:
    sides = [(_by_task(full, score), _by_task(other, score)) for full, other in pairs]
    tasks = sorted(set.intersection(*({*full} & {*other} for full, other in sides))) if sides else []
    return crossed_mean([[other[task] - full[task] for task in tasks] for full, other in sides])


def _by_task(judgements: Sequence[Judgement], score: Score) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for judgement in judgements:
        value = score(judgement)
        if value is not None:
            found.setdefault(judgement.transition.task_id, []).append(value)
    return {task: sum(values) / len(values) for task, values in found.items()}
