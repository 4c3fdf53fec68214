"""Ablations of the experience model: models that each lack one part, measured alike and pooled over seeds
(Table 2, Figures 4 and 5 of the paper).

Every variant gets the same questions: the same held-out offline steps, and the same real steps of the same
policies. A difference is paired by task and seed. Its n is the number of tasks, and its interval covers
further tasks and further seeds (`crossed_mean`), because each seed trains its own model. The intervals of a
variant's own metrics are clustered by task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.config import NEEDS_TEACHER_REASONING, Config, ExperienceModelConfig
from components.evaluation.metrics.fidelity_metrics import (
    EXAMINED_POLICIES,
    examined_policy_metrics,
    fidelity_metrics,
)
from components.evaluation.metrics.intervals import Estimate, crossed_mean
from components.evaluation.metrics.judge_axes import axes_metrics, axis_scores
from components.evaluation.metrics.open_loop import OpenLoopEpisode, open_loop_metrics
from components.experience.step_judgements import Judgement

FULL = "full"
"""Name of the variant that lacks nothing."""
_DEFAULTS = {
    name: ExperienceModelConfig.model_fields[name].default
    for name in ("recall", "near_miss_weight", *NEEDS_TEACHER_REASONING)
}
"""Defaults of options that have no effect in some variants. These variants must leave them at the default."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    FULL: {},
    "no-history": {"experience_model": {"history": False, "recall": _DEFAULTS["recall"]}},
    "no-retrieval": {"retrieval": {"k": 0}},
    "no-reasoning": {
        "experience_model": {
            "reasoning": False,
            **{name: _DEFAULTS[name] for name in NEEDS_TEACHER_REASONING},
        }
    },
    "expert-only": {
        "experience_model": {"behaviours": ["expert"], "near_miss_weight": _DEFAULTS["near_miss_weight"]}
    },
}
"""Name -> its changes of the config, by section."""
REPLACED_SECTIONS = ("retrieval", "curriculum")
"""Config sections that a variant replaces as a whole."""
DATA_SIZES = (500, 2000, 5000, 10000)
"""Numbers of offline transitions of the data-size curve (Figure 5)."""


def variants(sizes: Sequence[int] = DATA_SIZES) -> dict[str, dict[str, dict[str, Any]]]:
    """Return all ablations, and a variant `data-N` for each size."""
    return VARIANTS | {f"data-{size}": {"experience_model": {"transitions": size}} for size in sizes}


def apply_variant(config: Config, changes: Mapping[str, Mapping[str, Any]], seed: int) -> Config:
    """Return `config` with the changes of a variant and another seed.

    Args:
        config: the full model's config.
        changes: section -> option -> value.
        seed: seed of the new config.
    """
    values = config.model_dump(mode="json")
    for section, options in changes.items():
        values[section] = dict(options) if section in REPLACED_SECTIONS else values[section] | options
    return Config.model_validate(values | {"seed": seed})


def pooled_metrics(
    judgements: Sequence[Judgement], open_loop_episodes: Sequence[OpenLoopEpisode]
) -> dict[str, Estimate]:
    """Return all metrics of one variant over all its seeds.

    The intervals are clustered by task, so more seeds do not make them narrower than the tasks allow.
    """
    offline = [j for j in judgements if j.transition.behaviour not in EXAMINED_POLICIES]
    policies = [j for j in judgements if j.transition.behaviour in EXAMINED_POLICIES]
    return (
        fidelity_metrics(offline)
        | examined_policy_metrics(policies)
        | open_loop_metrics(open_loop_episodes)
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
"""Name -> score of one judgement, None if it does not apply. These scores are compared step by step."""
PER_SEED_SCORE = "next_state_exact/determined"
"""The score that is also compared for each seed alone."""


JudgementPair = tuple[Sequence[Judgement], Sequence[Judgement]]
"""Judgements of the full model and of a variant, of one seed."""


def differences_from_full_model(pairs: Mapping[int, JudgementPair]) -> dict[str, Estimate]:
    """Return `difference/<score>`: variant minus full model, paired by task and seed.

    `difference/<PER_SEED_SCORE>/seed_<n>` is the difference of one seed.

    Args:
        pairs: seed -> judgements of the full model and of the variant.
    """
    metrics = {
        f"difference/{name}": _score_difference(list(pairs.values()), score) for name, score in SCORES.items()
    }
    return metrics | {
        f"difference/{PER_SEED_SCORE}/seed_{seed}": _score_difference([pair], SCORES[PER_SEED_SCORE])
        for seed, pair in pairs.items()
    }


def _score_difference(pairs: Sequence[JudgementPair], score: Score) -> Estimate:
    task_means = [(_mean_by_task(full, score), _mean_by_task(variant, score)) for full, variant in pairs]
    common_tasks: list[str] = []
    if task_means:
        common_tasks = sorted(set.intersection(*({*full} & {*variant} for full, variant in task_means)))
    return crossed_mean(
        [[variant[task] - full[task] for task in common_tasks] for full, variant in task_means]
    )


def _mean_by_task(judgements: Sequence[Judgement], score: Score) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for judgement in judgements:
        value = score(judgement)
        if value is not None:
            scores.setdefault(judgement.transition.task_id, []).append(value)
    return {task: sum(values) / len(values) for task, values in scores.items()}
