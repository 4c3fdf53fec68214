"""The promotion gate: floor, gain on the same games, and what it says."""

import json

import pytest

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.intervals import proportion
from components.evaluation.promotion import decide


def games(wins, n, start=0):
    return {f"game-{start + i}": i < wins for i in range(n)}


def config(threshold=0.2, change=0.0, p=1.0, batches=1):
    """One look, and no p-value, where a test is about something else."""
    return PromotionConfig(threshold=threshold, min_absolute_change=change, max_p_value=p, max_batches=batches)


def test_the_first_champion_must_show_that_it_reaches_the_floor():
    decision = decide(games(37, 128), None, PromotionConfig())
    assert decision.promoted
    (floor,) = decision.conditions
    assert (floor.name, floor.n, floor.passed) == ("threshold", 128, True) and floor.low >= 0.2
    assert "no champion yet" in decision.reason
    open_still = decide(games(36, 128), None, PromotionConfig())
    assert not open_still.promoted and open_still.undecided, "0.281 is above the floor, its lower bound is not"
    assert "won 36 of 128 validation games" in open_still.reason and "it is not shown that" in open_still.reason
    refused = decide(games(10, 128), None, PromotionConfig())
    assert not refused.promoted and not refused.undecided and "upper bound lie below the floor 0.200" in refused.reason


def test_a_condition_that_failed_for_good_ends_an_undecided_decision():
    families = {f"game-{i}": "heat" if i < 10 else "cool" for i in range(40)}
    champion = {game: i < 20 for i, game in enumerate(families)}
    challenger = {game: i >= 4 for i, game in enumerate(families)}
    assert not decide(challenger, champion, PromotionConfig(), families=families).undecided


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
    assert not decide(games(3, 128), games(0, 128), config(threshold=0.5)).undecided


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
    assert decide(games(3, 10), games(2, 10), config(threshold=0.05, change=0.1)).promoted


def test_json_and_markdown_name_every_condition():
    decision = decide(games(6, 10), games(4, 10), config())
    data = json.loads(json.dumps(decision.to_json()))
    assert data["promoted"] is True
    assert data["conditions"][1]["name"] == "min_absolute_change"
    table = decision.to_markdown()
    assert table.startswith("**Promoted.**")
    assert "| threshold | success_rate | 0.600 |" in table
    assert table.count("| pass |") == 2


def test_no_family_may_fall_by_more_than_the_margin():
    families = {f"game-{i}": "heat" if i < 10 else "cool" for i in range(40)}
    champion = {game: i < 20 for i, game in enumerate(families)}
    challenger = {game: i >= 4 for i, game in enumerate(families)}
    decision = decide(challenger, champion, config(), families=families)
    assert not decision.promoted and decision.reason.startswith("Of the family heat it gained 0 and lost 4 of 10 games (-0.400), more than")
    assert [c.metric for c in decision.conditions if not c.passed] == ["success_rate_change/heat"]
    wide = PromotionConfig(threshold=0.2, max_family_drop=0.4)
    assert decide(challenger, champion, wide, families=families).promoted
    assert decide(challenger, champion, config()).promoted, "without families none is looked at"


def test_a_gain_by_chance_is_undecided_and_a_clear_one_promotes():
    left = decide(games(6, 10), games(4, 10), config(change=0.02, p=0.05))
    assert not left.promoted and left.undecided
    assert "by chance with p=0.2500 (McNemar, one-sided), above the allowed 0.0500" in left.reason
    found = decide(games(60, 64), games(10, 64), PromotionConfig())
    assert found.promoted and not found.conditions[-1].greater_is_better and found.conditions[-1].n == 64


def test_several_looks_share_the_p_value():
    gained = {f"game-{i}": i < 70 for i in range(128)}
    before = {f"game-{i}": 5 <= i < 60 or i >= 122 for i in range(128)}
    one, three = (decide(gained, before, config(p=0.05, batches=batches)) for batches in (1, 3))
    assert one.promoted and one.conditions[-1].value == three.conditions[-1].value == pytest.approx(0.0392, abs=1e-4)
    assert not three.promoted and three.undecided and "0.0167 (max_p_value 0.05 over 3 looks)" in three.reason


def test_a_challenger_that_is_not_ahead_is_refused_without_further_games():
    for before in (games(60, 128), games(64, 128)):
        refused = decide(games(60, 128), before, PromotionConfig())
        assert not refused.promoted and not refused.undecided and "below the needed +0.020" in refused.reason


def test_the_champion_itself_has_nothing_to_be_compared_with():
    same = decide(games(60, 128), games(60, 128), PromotionConfig(), is_champion=True)
    assert same.promoted and [condition.name for condition in same.conditions] == ["threshold"]
    assert "It is the champion already" in same.reason and "no champion yet" not in same.reason


def test_a_dream_that_reality_denies_promotes_nobody():
    refused = decide(games(6, 10), None, config(), agreement=(proportion(7, 10), 0.8))
    assert not refused.promoted and "confirmed 0.700 of 10 dreamed successes; the floor is 0.800" in refused.reason
    assert decide(games(6, 10), None, config(), agreement=(proportion(8, 10), 0.8)).promoted
    assert decide(games(6, 10), None, config(), agreement=(proportion(0, 0), 0.8)).promoted, "nothing to confirm denies nothing"
