"""The promotion gate: floor, gain on the same games, and what it says."""

import json

import pytest

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.metrics.intervals import paired_difference, proportion
from components.evaluation.promotion.gate import decide, family_changes
from components.evaluation.promotion.promotion_batches import Match, decide_in_batches


def games(wins, n, start=0):
    return {f"game-{start + i}": i < wins for i in range(n)}


def config(threshold=0.2, change=0.0, p=1.0, batches=1):
    """One look, and no p-value, where a test is about something else."""
    return PromotionConfig(
        threshold=threshold, min_absolute_change=change, max_p_value=p, max_batches=batches
    )


def test_the_first_champion_must_show_that_it_reaches_the_floor():
    decision = decide(games(37, 128), None, PromotionConfig())
    assert decision.promoted
    (floor,) = decision.conditions
    assert (floor.name, floor.n, floor.passed) == ("threshold", 128, True) and floor.low >= 0.2
    assert "no champion yet" in decision.reason
    open_still = decide(games(36, 128), None, PromotionConfig())
    assert not open_still.promoted and open_still.undecided, (
        "0.281 is above the floor, its lower bound is not"
    )
    assert (
        "won 36 of 128 validation games" in open_still.reason and "it is not shown that" in open_still.reason
    )
    refused = decide(games(10, 128), None, PromotionConfig())
    assert (
        not refused.promoted
        and not refused.undecided
        and "upper bound lie below the floor 0.200" in refused.reason
    )


def test_a_condition_that_failed_for_good_ends_an_undecided_decision():
    families = {f"game-{i}": "heat" if i < 10 else "cool" for i in range(40)}
    champion = {game: i < 20 for i, game in enumerate(families)}
    challenger = {game: i >= 10 for i, game in enumerate(families)}
    assert not decide(challenger, champion, PromotionConfig(), families=families).undecided
    without = decide(challenger, champion, PromotionConfig(), families=dict.fromkeys(families, ""))
    assert not any(condition.name == "max_family_drop" for condition in without.conditions), (
        "tasks without a family are no family"
    )


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


def _heat(lost, gained=0, n=10, others=30):
    """Games of a family of `n` that loses and gains so many, and of another one that the challenger alone
    wins.
    """
    families = {f"game-{i}": "heat" if i < n else "cool" for i in range(n + others)}
    champion = {game: i < n - gained for i, game in enumerate(families)}
    challenger = {game: i >= lost for i, game in enumerate(families)}
    return challenger, champion, families


def test_a_family_that_is_shown_to_lose_more_than_the_margin_is_refused_for_good():
    challenger, champion, families = _heat(lost=9)
    decision = decide(challenger, champion, config(), families=families)
    assert not decision.promoted and not decision.undecided
    assert decision.reason.startswith(
        "Of the family heat it gained 0 and lost 9 of 10 games (-0.900; bounds -"
    )
    assert "): it loses more than the allowed loss of 0.250." in decision.reason
    (heat,) = [c for c in decision.conditions if not c.passed]
    assert heat.metric == "success_rate_change/heat" and heat.low < heat.value < heat.high < -0.25
    assert decide(challenger, champion, config()).promoted, "without families none is looked at"
    assert decide(
        challenger, champion, PromotionConfig(max_batches=1, max_family_drop=1), families=families
    ).promoted, "any loss"


def test_a_family_whose_bounds_hold_the_margin_is_undecided_and_after_the_last_batch_its_change_decides():
    for lost, promoted in ((2, True), (4, False)):
        challenger, champion, families = _heat(lost=lost)
        open_still = decide(challenger, champion, config(), families=families)
        assert (
            not open_still.promoted
            and open_still.undecided
            and "the bounds hold the allowed loss" in open_still.reason
        )
        last = decide(challenger, champion, config(), families=families, final=True)
        (heat,) = [c for c in last.conditions if c.metric == "success_rate_change/heat"]
        assert last.promoted == heat.passed == promoted and not last.undecided
        assert "after the last batch, so the change itself decided" in heat.reason


def test_the_games_that_a_family_needs_are_those_of_the_documents():
    """docs/reference/metrics.md: five families, three looks, so an error of 0.05 over 15 bounds."""

    def bounds(both, gained, lost, neither):
        challenger = [True] * (both + gained) + [False] * (lost + neither)
        champion = [True] * both + [False] * gained + [True] * lost + [False] * neither
        outcomes = [dict(zip(map(str, range(len(one))), one, strict=True)) for one in (challenger, champion)]
        families = dict.fromkeys(outcomes[0], "heat") | {f"other {i}": f"family {i}" for i in range(4)}
        for one in outcomes:
            one |= {f"other {i}": True for i in range(4)}
        found = family_changes(*outcomes, families, PromotionConfig())["heat"]
        same = paired_difference(challenger, champion, 1 - 2 * 0.05 / 15)
        assert (found.low, found.high) == (same.low, same.high)
        return found.low, found.high

    assert bounds(3, 0, 0, 4)[0] < -0.25 <= bounds(4, 0, 0, 4)[0], "half of the games won by both: 8"
    assert bounds(22, 0, 0, 0)[0] < -0.25 <= bounds(23, 0, 0, 0)[0], "all won by both: 23"
    assert bounds(8, 2, 2, 8)[0] < -0.25 <= bounds(8, 2, 2, 9)[0], "a tenth gained, a tenth lost: 21"
    assert bounds(0, 0, 6, 0)[1] >= -0.25 > bounds(0, 0, 7, 0)[1], "all lost: 7"


def test_an_undecided_family_is_played_on_until_its_bounds_or_the_last_batch_decide():
    def batch(number):
        challenger, champion, families = _heat(lost=2, gained=2, n=10)
        renamed = [
            {f"{number}/{game}": value for game, value in one.items()}
            for one in (challenger, champion, families)
        ]
        return Match(*renamed)

    decision, batches = decide_in_batches(batch(0), batch, PromotionConfig())
    heat = next(c for c in decision.conditions if c.metric == "success_rate_change/heat")
    assert decision.promoted and (batches, heat.n, heat.passed) == (3, 30, True)
    decision, batches = decide_in_batches(batch(0), lambda number: None, PromotionConfig())
    assert decision.promoted and batches == 1, "a world without further games: the change itself decides"


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
    assert one.promoted and one.conditions[-1].value == three.conditions[-1].value == pytest.approx(
        0.0392, abs=1e-4
    )
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
    assert (
        not refused.promoted
        and "confirmed 0.700 of 10 dreamed successes; the floor is 0.800" in refused.reason
    )
    assert decide(games(6, 10), None, config(), agreement=(proportion(8, 10), 0.8)).promoted
    assert decide(games(6, 10), None, config(), agreement=(proportion(0, 0), 0.8)).promoted, (
        "nothing to confirm denies nothing"
    )
