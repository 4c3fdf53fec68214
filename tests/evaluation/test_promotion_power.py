"""How often the gate promotes: exact numbers against simulations of the gate, and the published tables."""

from pathlib import Path

import numpy as np
import pytest

from components.config import PromotionConfig
from components.evaluation.promotion.promotion_batches import PlayedGames, decide_in_batches
from components.evaluation.promotion.promotion_power import (
    power_tables,
    promotion_probabilities_by_gain,
    promotion_probabilities_by_rate,
)

DEFAULT = PromotionConfig()
SEQUENCES = 1000
GAMES = 64
MARGIN = 0.05
"""Above 0.047, three standard errors of a simulated probability of 0.5 over 1,000 sequences."""


def play_batch(rng, number, gain, discordance):
    """Return a random batch of games; the gain and the discordance set who wins each."""
    kinds = rng.choice(
        4, GAMES, p=[(discordance + gain) / 2, (discordance - gain) / 2, 0.4, 0.6 - discordance]
    )
    names = [f"{number}-{game}" for game in range(GAMES)]
    challenger = {name: kind in (0, 2) for name, kind in zip(names, kinds, strict=True)}
    return PlayedGames(challenger, {name: kind in (1, 2) for name, kind in zip(names, kinds, strict=True)})


def simulate_promotion(gain, discordance, seed):
    rng = np.random.default_rng(seed)
    runs = (
        decide_in_batches(
            play_batch(rng, 0, gain, discordance), lambda n: play_batch(rng, n, gain, discordance), DEFAULT
        )
        for _ in range(SEQUENCES)
    )
    return np.mean([decision.promoted for decision, _ in runs])


def test_an_equal_challenger_is_rarely_promoted():
    """The false promotion rate over all looks is at most max_p_value, both computed and simulated."""
    for discordance in (0.1, 0.2, 0.3, 0.5):
        assert promotion_probabilities_by_gain(0.0, discordance, 128, DEFAULT)[-1] <= DEFAULT.max_p_value
    assert simulate_promotion(0.0, 0.3, seed=1) <= DEFAULT.max_p_value


def test_a_worse_challenger_is_promoted_even_less_often():
    assert promotion_probabilities_by_gain(-0.05, 0.3, 128, DEFAULT)[-1] < 0.002


def test_the_computed_power_equals_the_simulated_power():
    exact = promotion_probabilities_by_gain(0.15, 0.3, GAMES, DEFAULT)[-1]
    assert simulate_promotion(0.15, 0.3, seed=2) == pytest.approx(exact, abs=MARGIN) and exact > 0.8


def test_further_batches_raise_the_power():
    one, two, three = promotion_probabilities_by_gain(0.1, 0.3, 128, DEFAULT)
    assert one < 0.5 < 0.75 < two < 0.9 < three


def test_a_first_champion_below_the_floor_is_rarely_promoted():
    assert promotion_probabilities_by_rate(0.2, 128, DEFAULT)[-1] <= 1 - DEFAULT.confidence
    assert promotion_probabilities_by_rate(0.15, 128, DEFAULT)[-1] < 0.001
    assert promotion_probabilities_by_rate(0.4, 128, DEFAULT)[0] > 0.99


def test_without_a_p_value_an_equal_challenger_is_promoted_half_of_the_time():
    lenient = PromotionConfig(max_p_value=1, max_batches=1, min_absolute_change=0.0)
    (share,) = promotion_probabilities_by_gain(0.0, 0.3, 128, lenient)
    assert 0.5 < share < 0.6, "half of the time, plus ties"


def test_the_published_tables_equal_the_computed_ones():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    assert power_tables(DEFAULT).strip() in text


@pytest.mark.parametrize(
    ("gains", "batches"), [([20, 0, 0], 1), ([5, 9, 0], 2), ([5, 0, 0], 3), ([0, 20, 20], 1)]
)
def test_the_gate_plays_batches_until_it_is_decided(gains, batches):
    """Of 64 games 20 gained and none lost is promoted, 5 gained is undecided, none gained is refused."""
    batch_numbers = []

    def batch(number):
        batch_numbers.append(number)
        names = [f"{number}-{game}" for game in range(GAMES)]
        return PlayedGames(
            {n: g < 20 + gains[number] for g, n in enumerate(names)}, {n: g < 20 for g, n in enumerate(names)}
        )

    decision, batch_count = decide_in_batches(batch(0), batch, DEFAULT)
    assert batch_count == batches and batch_numbers == list(range(batches))
    assert decision.promoted == (sum(gains[:batches]) >= 6) and (not decision.undecided or batches == 3)


def test_without_further_games_the_gate_decides_on_the_games_so_far():
    games = PlayedGames({str(game): game < 40 for game in range(128)})
    decision, batches = decide_in_batches(games, lambda number: None, PromotionConfig(threshold=0.3))
    assert batches == 1 and not decision.promoted and "it is not shown" in decision.reason
