"""How close predicted states are to the real ones as text, in any world: normalised match and token F1.

Both are those of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1): lower case, no punctuation, no
articles, tokens separated by white space. A token is compared as often as it occurs.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from components.evaluation.metrics.intervals import Estimate, clustered_proportion
from components.experience.step_judgements import Judgement

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised_tokens(text: str) -> list[str]:
    """Return the tokens of a text that a comparison counts."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def text_metrics(judgements: Sequence[Judgement], suffix: str = "") -> dict[str, Estimate]:
    """Return `fidelity/normalised_match` and `fidelity/token_f1`, with intervals clustered by task.

    F1 is that of all steps together: twice the common tokens by the tokens of both sides; its n are tokens.
    An answer that cannot be parsed has no token.
    """
    clusters = [judgement.transition.task_id for judgement in judgements]
    pairs = [
        (normalised_tokens(judgement.predicted), normalised_tokens(judgement.transition.next_state))
        for judgement in judgements
    ]
    matches = [
        judgement.parsed and predicted == real
        for judgement, (predicted, real) in zip(judgements, pairs, strict=True)
    ]
    common = [2 * (Counter(predicted) & Counter(real)).total() for predicted, real in pairs]
    totals = [len(predicted) + len(real) for predicted, real in pairs]
    return {
        f"fidelity/normalised_match{suffix}": clustered_proportion(matches, clusters),
        f"fidelity/token_f1{suffix}": clustered_proportion(common, clusters, weights=totals),
    }
