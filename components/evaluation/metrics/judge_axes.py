"""The four axes of the paper's judge (Fig. 4, App. C.4), scored by rules: no language model, no API key,
reproducible.

Each predicted transition is compared with the real one (`experience/step_judgements.py`) and scored 0, 1 or 2
on each axis by the rules below. A prediction that cannot be parsed scores 0 on all axes. A *revealing* step
shows something that no history determines, such as the contents of a cabinet. For such a step an invention
is no error if it fits the history and is right about what every state reports: the place and the hand.

**consistency**: does the state follow from the history and the action?
  2  It is the real state. Or all of these hold: it fits its history, it reports the same kind of event, it
     asserts all facts of the real state, and it asserts no denied fact. (Revealing: it changes facts if and
     only if the real state does, and it is right about what every state reports.)
  1  It fits its history but is not the result of this action: an update is missing, a fact is denied, or a
     different event is reported.
  0  It contradicts its own history.

**diversity**: does the state change when the real one does?
  2  Both stay. Or both change, and the prediction changes at least half as many facts (on a revealing step:
     reveals at least half as many).
  1  Both change, and the prediction changes fewer facts.
  0  One changes and the other stays, or the prediction contradicts its own history.

**informativeness**: how much of the real state does it report? On a determined step this is its share of the
real state's facts. On a revealing step it is its number of facts compared with the real state's, since the
facts themselves cannot be known.
  2  All of them (revealing: at least half as many, some of them new, and it fits its history).
  1  At least half (revealing: some are new).
  0  Less.

**hallucination** (2 is best, no hallucination): are the reward and the event right, and nothing invented?
  2  The reward is right, the event is of the same kind, it fits its history, and no determined fact is
     denied.
  1  A success is missed, a different event is reported, it contradicts its history, or a determined fact is
     denied.
  0  It claims a success that is none, or it changes something where the action changed nothing (a failure is
     ignored).

Difference from the paper: there GPT-4o judges 100 trajectories without the real next state. Here the real
environment gives the next state. `judge.py` compares a language-model judge with these rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.evaluation.metrics.intervals import Estimate, mean
from components.experience.step_judgements import Judgement

AXES = ("consistency", "diversity", "informativeness", "hallucination")
BEST = 2
Scores = Mapping[str, int]
"""Axis -> 0, 1 or 2."""


def axes_metrics(judgements: Sequence[Judgement], confidence: float = 0.95) -> dict[str, Estimate]:
    """Return `axes/<axis>`: the mean score (0 to 2) with Student's t interval; n counts transitions."""
    return mean_scores("axes", [axis_scores(judgement) for judgement in judgements], confidence)


def axis_scores(judgement: Judgement) -> dict[str, int]:
    """Return the score of each axis, 0, 1 or 2, by the rules of this module."""
    if not judgement.parsed:
        return dict.fromkeys(AXES, 0)
    return {
        "consistency": _score_consistency(judgement),
        "diversity": _score_diversity(judgement),
        "informativeness": _score_informativeness(judgement),
        "hallucination": _score_hallucination(judgement),
    }


def mean_scores(prefix: str, scores: Sequence[Scores], confidence: float = 0.95) -> dict[str, Estimate]:
    """Return `<prefix>/<axis>`: the mean score with an interval clipped to 0 to 2.

    Without scores it is 0 with n = 0 and the interval 0 to 2.
    """
    means = {axis: mean([float(row[axis]) for row in scores], confidence) for axis in AXES}
    if not scores:
        return {f"{prefix}/{axis}": Estimate(0.0, 0, 0.0, float(BEST)) for axis in AXES}
    return {
        f"{prefix}/{axis}": Estimate(e.value, e.n, max(0.0, e.low), min(float(BEST), e.high))
        for axis, e in means.items()
    }


def _score_consistency(judgement: Judgement) -> int:
    if judgement.exact:
        return 2
    if judgement.incoherent:
        return 0
    moves_alike = bool(judgement.changed) == bool(judgement.predicted_changed)
    is_complete = moves_alike if judgement.revealing else judgement.right == judgement.truths
    return 2 if is_complete and judgement.same_event and not _denied_claims(judgement) else 1


def _score_diversity(judgement: Judgement) -> int:
    real, predicted = judgement.changed, judgement.predicted_changed
    if judgement.incoherent or bool(real) != bool(predicted):
        return 0
    return 2 if 2 * predicted >= real else 1


def _score_informativeness(judgement: Judgement) -> int:
    if judgement.exact:
        return 2
    if judgement.revealing:
        is_detailed = 2 * judgement.claims >= judgement.truths and not judgement.incoherent
        return 0 if not judgement.predicted_changed else 2 if is_detailed else 1
    if not judgement.truths or 2 * judgement.right < judgement.truths:
        return 0
    return 2 if judgement.right == judgement.truths else 1


def _score_hallucination(judgement: Judgement) -> int:
    is_success, claims_success = judgement.reward > 0.5, judgement.predicted_reward > 0.5
    if claims_success and not is_success or not judgement.changed and judgement.predicted_changed:
        return 0
    is_right = (
        claims_success == is_success
        and judgement.same_event
        and not judgement.incoherent
        and not _denied_claims(judgement)
    )
    return 2 if is_right else 1


def _denied_claims(judgement: Judgement) -> int:
    """Return the number of claims that the real state denies although the history determined them."""
    return judgement.contradicted_sure if judgement.revealing else judgement.contradicted
