"""Whether the dream's own likelihood tells when it is wrong: reliability and the area under the ROC curve.

The confidence of an answer is the probability that the model gives to all its tokens. An answer is right if
its state and its reward are the real ones.

- Reliability: answers in bins of equal size by their confidence; in a calibrated model the share of right
  answers in a bin is the mean confidence. The expected calibration error is the mean gap (Naeini et al.,
  2015).
- Area under the ROC curve: the probability that a right answer has more confidence than a wrong one, ties
  counting half (Hanley and McNeil 1982). 0.5: the likelihood tells nothing. Its interval comes from a
  bootstrap over tasks, since steps of one task are correlated.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from components.evaluation.metrics.intervals import Estimate
from components.experience.step_judgements import Judgement

BINS = 10
RESAMPLES = 400
"""Bootstrap samples of the area under the ROC curve."""


def is_right(judgement: Judgement) -> bool:
    """Whether state and reward of the answer are the real ones."""
    return judgement.exact and (judgement.reward > 0.5) == (judgement.predicted_reward > 0.5)


def calibration_metrics(judgements: Sequence[Judgement]) -> dict[str, Estimate]:
    """Return `fidelity/calibration/error` and `fidelity/calibration/auroc`; empty without confidences.

    Without right or without wrong answers there is no area.
    """
    measured = [judgement for judgement in judgements if not math.isnan(judgement.confidence)]
    if not measured:
        return {}
    gap = sum(
        entry["n"] * abs(entry["right"] - entry["confidence"]) for entry in reliability(measured)
    ) / len(measured)
    metrics = {"fidelity/calibration/error": Estimate(gap, len(measured), gap, gap)}
    area = area_under_roc(measured)
    if not math.isnan(area):
        metrics["fidelity/calibration/auroc"] = _with_interval(area, measured)
    return metrics


def reliability(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Return up to `BINS` bins by rising confidence: mean `confidence`, share `right`, and `n`."""
    ordered = sorted(
        (judgement for judgement in judgements if not math.isnan(judgement.confidence)),
        key=lambda judgement: judgement.confidence,
    )
    count = min(BINS, len(ordered))
    bins = []
    for number in range(count):
        part = ordered[number * len(ordered) // count : (number + 1) * len(ordered) // count]
        bins.append(
            {
                "confidence": sum(judgement.confidence for judgement in part) / len(part),
                "right": sum(map(is_right, part)) / len(part),
                "n": len(part),
            }
        )
    return bins


def area_under_roc(judgements: Sequence[Judgement]) -> float:
    """Return the area; NaN without right or without wrong answers."""
    right = [judgement.confidence for judgement in judgements if is_right(judgement)]
    wrong = sorted(judgement.confidence for judgement in judgements if not is_right(judgement))
    if not right or not wrong:
        return math.nan
    below = sum(bisect_left(wrong, value) + bisect_right(wrong, value) for value in right) / 2
    return below / (len(right) * len(wrong))


def _with_interval(area: float, judgements: Sequence[Judgement]) -> Estimate:
    """Return the area with the 95 % interval of a bootstrap over tasks."""
    by_task: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        by_task.setdefault(judgement.transition.task_id, []).append(judgement)
    groups = list(by_task.values())
    rng = random.Random(0)
    areas = sorted(
        value
        for _ in range(RESAMPLES)
        if not math.isnan(
            value := area_under_roc([one for group in rng.choices(groups, k=len(groups)) for one in group])
        )
    )
    low, high = (areas[round(share * (len(areas) - 1))] for share in (0.025, 0.975)) if areas else (0.0, 1.0)
    return Estimate(area, len(judgements), min(low, area), max(high, area))
