"""How close predicted states are to the real ones as text, in any world: normalised match and token F1.

Both are those of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1). Words are counted when the
predictions are judged (`components/experience/state_comparison.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, clustered_proportion
from components.experience.step_judgements import Judgement


def text_metrics(judgements: Sequence[Judgement], suffix: str = "") -> dict[str, Estimate]:
    """Return `fidelity/normalised_match` and `fidelity/token_f1`, with intervals clustered by task.

    F1 is that of all steps together: twice the common words by the words of both sides; its n are words. An
    answer that cannot be parsed has no word. Empty for judgements of earlier versions, without counts.
    """
    if not any(judgement.words for judgement in judgements):
        return {}
    clusters = [judgement.transition.task_id for judgement in judgements]
    matches = [judgement.same_words for judgement in judgements]
    common = [2 * judgement.common_words for judgement in judgements]
    totals = [judgement.words for judgement in judgements]
    return {
        f"fidelity/normalised_match{suffix}": clustered_proportion(matches, clusters),
        f"fidelity/token_f1{suffix}": clustered_proportion(common, clusters, weights=totals),
    }
