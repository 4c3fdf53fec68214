"""The four axes of the paper's judge (Fig. 4, App. C.4) from facts alone: no language model, no key, the same
number every time.

Each predicted transition is held against the real one (`experience/fidelity.py`) and gets 0, 1 or 2 on each
axis, by these rules. A prediction that cannot be read gets 0 on all. *Revealing* steps show what no history
could tell (what lies in the cabinet): there an invention is no mistake, as long as it fits the history and
what every state tells anyway, the place and the hand, is right.

**consistency**: does the state follow from the history and the action?
  2  it is the real state; or it fits its history, reports the same kind of event, and asserts all facts of
  the real state and none
     that is denied (revealing: it moves where the real one does, and what every state tells is right)
  1  it fits its history, and is not what this action leads to: an update is missing, a fact is denied, or
  another event is reported 0  it contradicts its own history

**diversity**: does the state move where the real one does?
  2  both stay; or both move, and the prediction changes at least half as many facts (on a revealing step:
  reveals as much) 1  both move, and the prediction changes fewer 0  one moves and the other stays, or the
  prediction contradicts its own history

**informativeness**: how much of the real state does it tell? Where determined, its share of the real state's
facts; on a revealing step, the number of its facts against that of the real state, since which ones cannot be
known.
  2  all of them (revealing: at least half as many, of which some are new, and it fits its history)
  1  at least half (revealing: some are new)
  0  less

**hallucination** (2 is best: none): right signals, nothing invented?
  2  the reward is right, the event is of the same kind, it fits its history, and no fact is denied that was
  determined 1  a success is missed, another event is reported, it contradicts its history, or a determined
  fact is denied 0  a success that is none; or something changes where the action changed nothing (a failure
  is ignored)

Differs from the paper: there GPT-4o judges 100 trajectories without knowing the real next state; here the
real environment answered. `judge.py` holds such a judge against these rules.
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
    """`axes/<axis>`: the mean score (0 to 2) of all transitions with Student's t interval; n counts
    transitions.
    """
    return mean_scores("axes", [axis_scores(judgement) for judgement in judgements], confidence)


def axis_scores(judgement: Judgement) -> dict[str, int]:
    """Axis -> 0, 1 or 2, by the rules above."""
    if not judgement.parsed:
        return dict.fromkeys(AXES, 0)
    return {
        "consistency": _consistency(judgement),
        "diversity": _diversity(judgement),
        "informativeness": _informativeness(judgement),
        "hallucination": _hallucination(judgement),
    }


def mean_scores(prefix: str, scores: Sequence[Scores], confidence: float = 0.95) -> dict[str, Estimate]:
    """`<prefix>/<axis>`: mean of the scores; the interval is kept inside 0 to 2, and of nothing it is all of
    that.
    """
    found = {axis: mean([float(row[axis]) for row in scores], confidence) for axis in AXES}
    if not scores:
        return {f"{prefix}/{axis}": Estimate(0.0, 0, 0.0, float(BEST)) for axis in AXES}
    return {
        f"{prefix}/{axis}": Estimate(e.value, e.n, max(0.0, e.low), min(float(BEST), e.high))
        for axis, e in found.items()
    }


def _consistency(judgement: Judgement) -> int:
    if judgement.exact:
        return 2
    if judgement.incoherent:
        return 0
    moves = bool(judgement.changed) == bool(judgement.predicted_changed)
    complete = moves if judgement.revealing else judgement.right == judgement.truths
    return 2 if complete and judgement.same_event and not _denied(judgement) else 1


def _diversity(judgement: Judgement) -> int:
    real, predicted = judgement.changed, judgement.predicted_changed
    if judgement.incoherent or bool(real) != bool(predicted):
        return 0
    return 2 if 2 * predicted >= real else 1


def _informativeness(judgement: Judgement) -> int:
    if judgement.exact:
        return 2
    if judgement.revealing:
        detailed = 2 * judgement.claims >= judgement.truths and not judgement.incoherent
        return 0 if not judgement.predicted_changed else 2 if detailed else 1
    if not judgement.truths or 2 * judgement.right < judgement.truths:
        return 0
    return 2 if judgement.right == judgement.truths else 1


def _hallucination(judgement: Judgement) -> int:
    won, claimed = judgement.reward > 0.5, judgement.predicted_reward > 0.5
    if claimed and not won or not judgement.changed and judgement.predicted_changed:
        return 0
    return (
        2
        if claimed == won and judgement.same_event and not judgement.incoherent and not _denied(judgement)
        else 1
    )


def _denied(judgement: Judgement) -> int:
    """Claims that the real state denies although they could have been known."""
    return judgement.contradicted_sure if judgement.revealing else judgement.contradicted
