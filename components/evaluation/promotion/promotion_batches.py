"""The promotion gate plays further validation games while its conditions are undecided, up to
`promotion.max_batches` batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from components.config import PromotionConfig
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.promotion.gate import Decision, decide


@dataclass(frozen=True)
class Match:
    """Validation games that challenger and champion have both played: task id -> won, and task id -> family.

    `champion` is None where there is none, or where the challenger is the champion itself.
    """

    challenger: Mapping[str, bool]
    champion: Mapping[str, bool] | None = None
    families: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Match) -> Match:
        champion = None if self.champion is None else {**self.champion, **(other.champion or {})}
        return Match({**self.challenger, **other.challenger}, champion, {**self.families, **other.families})


PlayBatch = Callable[[int], Match | None]
"""Called with the number of a batch from 1; the games of that batch alone, or None where the world has no
further ones.
"""


def decide_in_batches(
    first: Match,
    play_batch: PlayBatch,
    config: PromotionConfig,
    confidence: float = 0.95,
    *,
    agreement: tuple[Estimate, float] | None = None,
    is_champion: bool = False,
) -> tuple[Decision, int]:
    """The decision, and the number of batches that it took. See `decide` for the arguments."""

    def judge(match: Match, final: bool) -> Decision:
        return decide(
            match.challenger,
            match.champion,
            config,
            confidence,
            families=match.families,
            agreement=agreement,
            is_champion=is_champion,
            final=final,
        )

    match, number = first, 1
    while True:
        decision = judge(match, number == config.max_batches)
        further = play_batch(number) if decision.undecided and number < config.max_batches else None
        if further is None:
            return judge(match, True), number
        match, number = match + further, number + 1
