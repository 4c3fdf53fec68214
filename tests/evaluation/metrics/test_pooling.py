"""Success rates of several runs pooled over the same games, with the game as the unit of n."""

import pytest
from scipy.stats import t

from components.errors import DataError
from components.evaluation.metrics.pooling import pool


def games(**policies):
    return {
        policy: {f"game-{i}": outcome == "1" for i, outcome in enumerate(won)}
        for policy, won in policies.items()
    }


def test_a_game_counts_once_however_often_it_is_played():
    pooled = pool({"a": games(cloned="1100"), "b": games(cloned="1000")})
    rate = pooled["evaluate/cloned/success_rate"]
    # games 1, 0.5, 0, 0 and runs 0.5, 0.25 about 0.375: mean squares 2 * 0.6875 / 3 and 4 * 0.03125, over 8
    # cells
    assert (rate.value, rate.n) == (0.375, 4)
    games_square, runs_square = 1.375 / 3, 0.125
    freedom = (games_square + runs_square) ** 2 / (games_square**2 / 3 + runs_square**2)
    half = t.ppf(0.975, freedom) * ((games_square + runs_square) / 8) ** 0.5
    assert (rate.low, rate.high) == pytest.approx((max(0.0, 0.375 - half), min(1.0, 0.375 + half)), abs=1e-5)


def test_a_difference_is_paired_by_game():
    pooled = pool({"a": games(cloned="1100", dreamed="1110"), "b": games(cloned="1100", dreamed="1101")})
    gain = pooled["evaluate/dreamed_minus_cloned"]
    assert gain.value == pytest.approx(0.25)
    assert gain.n == 4
    # differences per game are 0, 0, 0.5, 0.5: an unpaired interval would be wider
    assert gain.high - gain.low < 2 * 0.5


def test_runs_with_different_games_are_refused():
    with pytest.raises(
        DataError, match=r"The runs a and b differ in 1 games of the cloned policy, such as game-2"
    ):
        pool({"a": games(cloned="11"), "b": games(cloned="111")})
    with pytest.raises(DataError, match="same policies"):
        pool({"a": games(cloned="11"), "b": games(dreamed="11")})
    with pytest.raises(DataError, match="The run a has no games of cloned"):
        pool({"a": games(cloned=""), "b": games(cloned="")})
    with pytest.raises(DataError, match="The run b has no games of any policy"):
        pool({"a": games(cloned="1"), "b": {}})
    with pytest.raises(DataError, match="at least two"):
        pool({"a": games(cloned="11")})
