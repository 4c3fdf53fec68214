"""How often the gate promotes: exact numbers against simulations of `decide` itself, and the tables of the
documents.
"""

from pathlib import Path

import numpy as np
import pytest

from components.config import PromotionConfig
from components.evaluation.promotion.promotion_batches import Match, decide_in_batches
from components.evaluation.promotion.promotion_power import (
    power_tables,
    promoted_over_champion,
    promoted_over_floor,
)

DEFAULT = PromotionConfig()
SEQUENCES = 1000
GAMES = 64
MARGIN = 0.05
"""Three standard errors of a simulated probability of 0.5 over 1,000 sequences are 0.047, of 0.03 they are
0.016.
"""


def played(rng, number, gain, discordance):
    """A batch of games, of which each policy wins some alone; the others are won by both, or by neither."""
    kinds = rng.choice(
        4, GAMES, p=[(discordance + gain) / 2, (discordance - gain) / 2, 0.4, 0.6 - discordance]
    )
    names = [f"{number}-{game}" for game in range(GAMES)]
    challenger = {name: kind in (0, 2) for name, kind in zip(names, kinds, strict=True)}
    return Match(challenger, {name: kind in (1, 2) for name, kind in zip(names, kinds, strict=True)})


def simulated(gain, discordance, seed):
    rng = np.random.default_rng(seed)
    runs = (
        decide_in_batches(
            played(rng, 0, gain, discordance), lambda n: played(rng, n, gain, discordance), DEFAULT
        )
        for _ in range(SEQUENCES)
    )
    return np.mean([decision.promoted for decision, _ in runs])


def test_a_challenger_that_equals_the_champion_is_seldom_promoted():
    """The false promotion rate: at most max_p_value over all looks; computed, and simulated with the code of
    the gate.
    """
    for discordance in (0.1, 0.2, 0.3, 0.5):
        assert promoted_over_champion(0.0, discordance, 128, DEFAULT)[-1] <= DEFAULT.max_p_value
    assert simulated(0.0, 0.3, seed=1) <= DEFAULT.max_p_value


def test_a_worse_challenger_is_promoted_more_seldom_still():
    assert promoted_over_champion(-0.05, 0.3, 128, DEFAULT)[-1] < 0.002


def test_the_power_that_is_computed_is_the_gates():
    exact = promoted_over_champion(0.15, 0.3, GAMES, DEFAULT)[-1]
    assert simulated(0.15, 0.3, seed=2) == pytest.approx(exact, abs=MARGIN) and exact > 0.8


def test_playing_on_finds_gains_that_one_batch_does_not():
    one, two, three = promoted_over_champion(0.1, 0.3, 128, DEFAULT)
    assert one < 0.5 < 0.75 < two < 0.9 < three


def test_a_first_champion_below_the_floor_is_seldom_promoted():
    assert promoted_over_floor(0.2, 128, DEFAULT)[-1] <= 1 - DEFAULT.confidence
    assert promoted_over_floor(0.15, 128, DEFAULT)[-1] < 0.001
    assert promoted_over_floor(0.4, 128, DEFAULT)[0] > 0.99


def test_without_a_p_value_every_gain_of_the_least_size_promotes():
    bold = PromotionConfig(max_p_value=1, max_batches=1, min_absolute_change=0.0)
    (share,) = promoted_over_champion(0.0, 0.3, 128, bold)
    assert 0.5 < share < 0.6, "heads, or a tie"


def test_the_tables_of_the_documents_are_those_of_the_code():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    assert power_tables(DEFAULT).strip() in text


@pytest.mark.parametrize(
    ("gains", "batches"), [([20, 0, 0], 1), ([5, 9, 0], 2), ([5, 0, 0], 3), ([0, 20, 20], 1)]
)
def test_the_gate_plays_until_it_is_decided(gains, batches):
    """20 of 64 gained and none lost: promoted. 5: undecided. None: refused."""
    asked = []

    def batch(number):
        asked.append(number)
        names = [f"{number}-{game}" for game in range(GAMES)]
        return Match(
            {n: g < 20 + gains[number] for g, n in enumerate(names)}, {n: g < 20 for g, n in enumerate(names)}
        )

    decision, needed = decide_in_batches(batch(0), batch, DEFAULT)
    assert needed == batches and asked == list(range(batches))
    assert decision.promoted == (sum(gains[:batches]) >= 6) and (not decision.undecided or batches == 3)


def test_where_the_world_has_no_further_games_the_gate_decides_on_those_there_are():
    match = Match({str(game): game < 40 for game in range(128)})
    decision, batches = decide_in_batches(match, lambda number: None, PromotionConfig(threshold=0.3))
    assert batches == 1 and not decision.promoted and "it is not shown" in decision.reason
