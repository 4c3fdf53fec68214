"""How often the promotion gate promotes, computed exactly: by the challenger's gain over the champion, and by
its success rate.

    python -m components.evaluation.promotion.promotion_power

prints the tables of docs/reference/metrics.md. The numbers are those of `decide` with the conditions
`threshold`, `min_absolute_change` and `max_p_value`; the guard of single families and the agreement of the
dream are left out. Games are independent of each other.
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
"""Games of a batch in configs/quick.yaml."""
DISCORDANCE = (0.2, 0.3)
"""Share of the games that one of two policies wins alone, from two versions of one policy to two trainings of
it.
"""
GAINS = (-0.05, 0.0, 0.05, 0.10, 0.15, 0.20)
RATES = (0.15, 0.20, 0.25, 0.30, 0.35, 0.40)


def promoted_over_champion(
    gain: float, discordance: float, games: int, config: PromotionConfig
) -> list[float]:
    """Probability that the challenger has been promoted after the first, second ... batch of `games`.

    Args: gain: its success rate minus the champion's. discordance: share of games that one of the two wins
    alone.
    """
    wins, losses = (discordance + gain) / 2, (discordance - gain) / 2
    gained, lost = np.meshgrid(np.arange(games + 1), np.arange(games + 1), indexing="ij")
    batch = binom.pmf(gained, games, wins) * binom.pmf(lost, games - gained, losses / (1 - wins))
    going, promoted, total = np.ones((1, 1)), 0.0, []
    for look in range(1, config.max_batches + 1):
        going = np.clip(fftconvolve(going, batch), 0.0, None)
        passes, goes_on = _verdicts(
            look * games, config.min_absolute_change, config.max_p_value, config.max_batches
        )
        promoted += float(going[passes].sum())
        going = going * goes_on
        total.append(promoted)
    return total


@functools.lru_cache(maxsize=16)
def _verdicts(n: int, needed: float, p_value: float, looks: int) -> tuple[np.ndarray, np.ndarray]:
    """For each (gained, lost) after `n` games: promoted, and played on."""
    gained, lost = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    ahead = (gained - lost) / n >= needed - 1e-9
    most = p_value / looks if p_value < 1 else 1.0
    least = [_least_gained(discordant, most) for discordant in range(2 * n + 1)]
    passes = ahead & (gained >= np.array(least)[gained + lost])
    return passes, ahead & ~passes


def _least_gained(discordant: int, most: float) -> int:
    """Fewest of so many discordant games that must be gained for a one-sided p-value of at most `most`."""
    return int(binom.isf(most, discordant, 0.5)) + 1 if most < 1 else 0


def promoted_over_floor(rate: float, games: int, config: PromotionConfig) -> list[float]:
    """Probability that a first champion of success `rate` has been promoted after the first, second ... batch
    of `games`.
    """
    going, promoted, total = np.ones(1), 0.0, []
    batch, looks, error = (
        binom.pmf(np.arange(games + 1), games, rate),
        config.max_batches,
        1 - config.confidence,
    )
    for look in range(1, looks + 1):
        going, n = np.convolve(going, batch), look * games
        verdicts = [_verdict(config.threshold, wins, n, looks, error) for wins in range(n + 1)]
        promoted += float(going[[verdict == ABOVE for verdict in verdicts]].sum())
        going = np.where([verdict in (ABOVE, BELOW) for verdict in verdicts], 0.0, going)
        total.append(promoted)
    return total


@functools.cache
def _verdict(floor: float, wins: int, n: int, looks: int, error: float) -> str:
    return verdict_against(floor, wins, n, looks=looks, error=error)


def power_tables(config: PromotionConfig, games: int = GAMES) -> str:
    """The two tables as Markdown."""
    looks = range(1, config.max_batches + 1)
    numbers = [f"after {look * games} games" for look in looks]
    lines = _head(["true gain", "games that one wins alone", *numbers])
    for discordance in DISCORDANCE:
        for gain in GAINS:
            if abs(gain) <= discordance:
                found = promoted_over_champion(gain, discordance, games, config)
                lines.append(
                    _row([f"{gain:+.2f}", f"{discordance:.2f}", *(f"{share:.3f}" for share in found)])
                )
    lines += ["", *_head(["true success of a first champion", *numbers])]
    lines += [
        _row([f"{rate:.2f}", *(f"{share:.3f}" for share in promoted_over_floor(rate, games, config))])
        for rate in RATES
    ]
    needed = [
        least_successes(config.threshold, n * games, looks=config.max_batches, error=1 - config.confidence)
        for n in looks
    ]
    return "\n".join([*lines, _row(["wins needed", *map(str, needed)])]) + "\n"


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), "|" + "---|" * len(names)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(power_tables(PromotionConfig()), end="")
