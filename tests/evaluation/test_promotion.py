"""The promotion gate: floor, gain on the same games, and what it says."""

import json

import pytest

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.promotion import decide


def games(wins, n, start=0):
    return {f"game-{start + i}": i < wins for i in range(n)}


def config(threshold=0.2, change=0.0):
    return PromotionConfig(threshold=threshold, min_absolute_change=change)


def test_the_first_champion_needs_the_floor():
    decision = decide(games(2, 10), None, config())
    assert decision.promoted
    assert [condition.name for condition in decision.conditions] == ["threshold"]
    assert "no champion yet" in decision.reason
    refused = decide(games(1, 10), None, config())
    assert not refused.promoted
    assert "won 1 of 10" in refused.reason
    assert "below the floor 0.200" in refused.reason


def test_the_gain_counts_on_the_same_games():
    decision = decide(games(6, 10), games(4, 10), config(change=0.2))
    floor, gain = decision.conditions
    assert decision.promoted
    assert (floor.value, floor.n) == (0.6, 10)
    assert gain.value == pytest.approx(0.2)
    assert gain.low < 0.2 < gain.high
    assert "gained 2 and lost 0 of 10" in gain.reason
    assert not decide(games(6, 10), games(4, 10), config(change=0.25)).promoted


def test_the_floor_holds_against_a_weak_champion_too():
    decision = decide(games(1, 10), games(0, 10), config(threshold=0.5))
    assert not decision.promoted
    assert [condition.passed for condition in decision.conditions] == [False, True]


def test_only_shared_games_count_for_the_gain():
    challenger = games(6, 10)
    champion = {**dict.fromkeys(list(challenger)[:5], False), "other": True}
    gain = decide(challenger, champion, config()).conditions[1]
    assert (gain.n, gain.value) == (5, 1.0)
    assert "6 games that only one of them played" in gain.reason


def test_no_shared_game_and_no_game_are_errors_that_say_what_to_do():
    with pytest.raises(DataError, match="no game in common.*Evaluate both"):
        decide(games(5, 5), games(5, 5, start=100), config())
    with pytest.raises(DataError, match="played no game.*evaluation.tasks"):
        decide({}, None, config())


def test_a_loss_is_refused_and_a_change_by_chance_is_called_so():
    assert not decide(games(4, 10), games(6, 10), config()).promoted
    assert "may be chance" in decide(games(5, 10), games(4, 10), config()).reason
    assert "may be chance" not in decide(games(60, 64), games(10, 64), config()).reason


def test_a_threshold_met_exactly_passes():
    # 0.3 - 0.2 is less than 0.1 in binary
    assert decide(games(3, 10), games(2, 10), config(change=0.1)).promoted


def test_json_and_markdown_name_every_condition():
    decision = decide(games(6, 10), games(4, 10), config())
    data = json.loads(json.dumps(decision.to_json()))
    assert data["promoted"] is True
    assert data["conditions"][1]["name"] == "min_absolute_change"
    table = decision.to_markdown()
    assert table.startswith("**Promoted.**")
    assert "| threshold | success_rate | 0.600 |" in table
    assert table.count("| pass |") == 2
