"""How often the promotion gate promotes, computed exactly for a given gain over the champion or success rate.

    python -m components.evaluation.promotion.promotion_power

prints the tables of docs/reference/metrics.md. The numbers are those of `decide` with the conditions
`threshold`, `min_absolute_change` and `max_p_value`. The conditions on single families and on the dream's
agreement are left out. Games are treated as independent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from scipy.signal import fftconvolve
from scipy.stats import binom

from components.config import PromotionConfig
from components.evaluation.metrics.sequential import ABOVE, BELOW, least_successes, verdict_against

GAMES = 128
"""Games per batch in configs/quick.yaml."""
DISCORDANCE = (0.2, 0.3)
"""Shares of games that only one of two policies wins: two versions of one policy, and two separate
trainings.
"""
GAINS = (-0.05, 0.0, 0.05, 0.10, 0.15, 0.20)
RATES = (0.15, 0.20, 0.25, 0.30, 0.35, 0.40)


def promotion_probabilities_by_gain(
    gain: float, discordance: float, games: int, config: PromotionConfig
) -> list[float]:
    """Return the probability that the challenger is promoted by the end of the first, second ... batch.

    Args:
        gain: the challenger's true success rate minus the champion's.
        discordance: share of games that only one of the two wins.
        games: games per batch.
        config: limits of the conditions and number of batches.
    """
    wins, losses = (discordance + gain) / 2, (discordance - gain) / 2
    gained, lost = np.meshgrid(np.arange(games + 1), np.arange(games + 1), indexing="ij")
    batch = binom.pmf(gained, games, wins) * binom.pmf(lost, games - gained, losses / (1 - wins))
    undecided = np.ones((1, 1))
    promoted = 0.0
    probabilities = []
    for look in range(1, config.max_batches + 1):
        undecided = np.clip(fftconvolve(undecided, batch), 0.0, None)
        passes, stays_open = _gain_verdicts(
            look * games, config.min_absolute_change, config.max_p_value, config.max_batches
        )
        promoted += float(undecided[passes].sum())
        undecided = undecided * stays_open
        probabilities.append(promoted)
    return probabilities


@functools.lru_cache(maxsize=16)
def _gain_verdicts(n: int, min_gain: float, p_value: float, looks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks over (gained, lost) after `n` games: promoted, and undecided."""
    gained, lost = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    is_ahead = (gained - lost) / n >= min_gain - 1e-9
    max_p_value = p_value / looks if p_value < 1 else 1.0
    min_gained = [_min_gained(discordant, max_p_value) for discordant in range(2 * n + 1)]
    passes = is_ahead & (gained >= np.array(min_gained)[gained + lost])
    return passes, is_ahead & ~passes


def _min_gained(discordant: int, max_p_value: float) -> int:
    """Return the fewest of `discordant` games to be gained for a one-sided p-value of at most
    `max_p_value`.
    """
    return int(binom.isf(max_p_value, discordant, 0.5)) + 1 if max_p_value < 1 else 0


def promotion_probabilities_by_rate(rate: float, games: int, config: PromotionConfig) -> list[float]:
    """Return the probability that a first champion is promoted by the end of the first, second ... batch.

    Args:
        rate: its true success rate.
        games: games per batch.
        config: floor, confidence and number of batches.
    """
    looks = config.max_batches
    error = 1 - config.confidence
    batch = binom.pmf(np.arange(games + 1), games, rate)
    undecided = np.ones(1)
    promoted = 0.0
    probabilities = []
    for look in range(1, looks + 1):
        undecided = np.convolve(undecided, batch)
        n = look * games
        verdicts = [_floor_verdict(config.threshold, wins, n, looks, error) for wins in range(n + 1)]
        promoted += float(undecided[[verdict == ABOVE for verdict in verdicts]].sum())
        undecided = np.where([verdict in (ABOVE, BELOW) for verdict in verdicts], 0.0, undecided)
        probabilities.append(promoted)
    return probabilities


@functools.cache
def _floor_verdict(floor: float, wins: int, n: int, looks: int, error: float) -> str:
    return verdict_against(floor, wins, n, looks=looks, error=error)


def power_tables(config: PromotionConfig, games: int = GAMES) -> str:
    """Return the two tables of docs/reference/metrics.md as Markdown."""
    looks = range(1, config.max_batches + 1)
    look_headers = [f"after {look * games} games" for look in looks]
    lines = _header(["true gain", "games that one wins alone", *look_headers])
    for discordance in DISCORDANCE:
        for gain in GAINS:
            if abs(gain) <= discordance:
                shares = promotion_probabilities_by_gain(gain, discordance, games, config)
                cells = [f"{gain:+.2f}", f"{discordance:.2f}", *(f"{share:.3f}" for share in shares)]
                lines.append(_row(cells))
    lines += ["", *_header(["true success of a first champion", *look_headers])]
    for rate in RATES:
        shares = promotion_probabilities_by_rate(rate, games, config)
        lines.append(_row([f"{rate:.2f}", *(f"{share:.3f}" for share in shares)]))
    needed_wins = [
        least_successes(config.threshold, n * games, looks=config.max_batches, error=1 - config.confidence)
        for n in looks
    ]
    return "\n".join([*lines, _row(["wins needed", *map(str, needed_wins)])]) + "\n"


def _header(names: Sequence[str]) -> list[str]:
    return [_row(names), "|" + "---|" * len(names)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(power_tables(PromotionConfig()), end="")
