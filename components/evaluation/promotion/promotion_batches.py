"""Batches of the promotion gate: further validation games are played while a condition is undecided.

There are at most `promotion.max_batches` batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from components.config import PromotionConfig
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.promotion.gate import Decision, decide


@dataclass(frozen=True)
class PlayedGames:
    """Validation games that both policies have played: task id -> won, and task id -> family.

    `champion` is None if there is no champion, or if the challenger is the champion itself.
    """

    challenger: Mapping[str, bool]
    champion: Mapping[str, bool] | None = None
    families: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: PlayedGames) -> PlayedGames:
        champion = None if self.champion is None else {**self.champion, **(other.champion or {})}
        return PlayedGames(
            {**self.challenger, **other.challenger}, champion, {**self.families, **other.families}
        )


PlayBatch = Callable[[int], PlayedGames | None]
"""Takes the number of a batch, from 1; returns the games of that batch, or None if no tasks are left."""


def decide_in_batches(
    first: PlayedGames,
    play_batch: PlayBatch,
    config: PromotionConfig,
    confidence: float = 0.95,
    *,
    agreement: tuple[Estimate, float] | None = None,
    is_champion: bool = False,
) -> tuple[Decision, int]:
    """Return the decision and the number of batches that were played.

    Args:
        first: games of the first batch.
        play_batch: plays one further batch.
        config: limits of the conditions and the maximum number of batches.
        confidence: see `decide`.
        agreement: see `decide`.
        is_champion: see `decide`.
    """

    def decide_games(games: PlayedGames, final: bool) -> Decision:
        return decide(
            games.challenger,
            games.champion,
            config,
            confidence,
            families=games.families,
            agreement=agreement,
            is_champion=is_champion,
            final=final,
        )

    games = first
    batch_count = 1
    while True:
        decision = decide_games(games, batch_count == config.max_batches)
        is_open = decision.undecided and batch_count < config.max_batches
        further_games = play_batch(batch_count) if is_open else None
        if further_games is None:
            return decide_games(games, True), batch_count
        games = games + further_games
        batch_count += 1
