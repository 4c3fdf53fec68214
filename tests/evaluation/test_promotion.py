"""The promotion gate: its conditions, its decision and its reasons."""

import json

import pytest

from components.config import PromotionConfig
from components.errors import DataError
from components.evaluation.metrics.intervals import proportion
from components.evaluation.metrics.paired_outcomes import paired_difference
from components.evaluation.promotion.conditions import family_changes
from components.evaluation.promotion.gate import decide
from components.evaluation.promotion.promotion_batches import PlayedGames, decide_in_batches


def games(wins, n, start=0):
    return {f"game-{start + i}": i < wins for i in range(n)}


def config(threshold=0.2, change=0.0, p=1.0, batches=1):
    """Return a config with one look and no p-value, for tests of other conditions."""
    return PromotionConfig(
        threshold=threshold, min_absolute_change=change, max_p_value=p, max_batches=batches
    )


def test_the_lower_bound_of_a_first_champion_must_reach_the_floor():
    decision = decide(games(37, 128), None, PromotionConfig())
    assert decision.promoted
    (floor,) = decision.conditions
    assert (floor.name, floor.n, floor.passed) == ("threshold", 128, True) and floor.low >= 0.2
    assert "no champion yet" in decision.reason
    undecided = decide(games(36, 128), None, PromotionConfig())
    assert not undecided.promoted and undecided.undecided, "0.281 is above the floor, its lower bound is not"
    assert undecided.reason.startswith("The challenger won 36 of 128 validation games (0.281; bounds 0.")
    assert "the floor 0.200 lies between the bounds, so it is not shown that" in undecided.reason
    refused = decide(games(10, 128), None, PromotionConfig())
    assert (
        not refused.promoted
        and not refused.undecided
        and "the upper bound is below the floor 0.200" in refused.reason
    )


def test_a_condition_that_failed_for_good_makes_the_decision_final():
    families = {f"game-{i}": "heat" if i < 10 else "cool" for i in range(40)}
    champion = {game: i < 20 for i, game in enumerate(families)}
    challenger = {game: i >= 10 for i, game in enumerate(families)}
    assert not decide(challenger, champion, PromotionConfig(), families=families).undecided
    without_families = decide(challenger, champion, PromotionConfig(), families=dict.fromkeys(families, ""))
    assert not any(condition.name == "max_family_drop" for condition in without_families.conditions), (
        "tasks without a family are no family"
    )


def test_the_gain_is_measured_on_the_same_games():
    decision = decide(games(6, 10), games(4, 10), config(change=0.2))
    floor, gain = decision.conditions
    assert decision.promoted
    assert (floor.value, floor.n) == (0.6, 10)
    assert gain.value == pytest.approx(0.2)
    assert gain.low < 0.2 < gain.high
    assert "gained 2 and lost 0 of 10" in gain.reason
    assert not decide(games(6, 10), games(4, 10), config(change=0.25)).promoted


def test_the_floor_also_applies_against_a_weak_champion():
    decision = decide(games(1, 10), games(0, 10), config(threshold=0.5))
    assert not decision.promoted
    assert [condition.passed for condition in decision.conditions] == [False, True]
    assert not decide(games(3, 128), games(0, 128), config(threshold=0.5)).undecided


def test_only_shared_games_count_for_the_gain():
    challenger = games(6, 10)
    champion = {**dict.fromkeys(list(challenger)[:5], False), "other": True}
    gain = decide(challenger, champion, config()).conditions[1]
    assert (gain.n, gain.value) == (5, 1.0)
    assert "6 games that only one of them played are not counted" in gain.reason


def test_missing_or_unshared_games_are_errors_with_a_next_step():
    with pytest.raises(DataError, match="no game in common.*Evaluate both"):
        decide(games(5, 5), games(5, 5, start=100), config())
    with pytest.raises(DataError, match="played no game.*evaluation.tasks"):
        decide({}, None, config())


def test_a_loss_is_refused_and_a_gain_within_chance_is_noted():
    assert not decide(games(4, 10), games(6, 10), config()).promoted
    assert "may be due to chance" in decide(games(5, 10), games(4, 10), config()).reason
    assert "may be due to chance" not in decide(games(60, 64), games(10, 64), config()).reason


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


def play_families(lost, gained=0, n=10, others=30):
    """Return games of two families: heat, with `n` games of which `lost` are lost and `gained` are gained;
    and cool, which the challenger alone wins.
    """
    families = {f"game-{i}": "heat" if i < n else "cool" for i in range(n + others)}
    champion = {game: i < n - gained for i, game in enumerate(families)}
    challenger = {game: i >= lost for i, game in enumerate(families)}
    return challenger, champion, families


def test_a_family_that_certainly_loses_more_than_allowed_refuses_for_good():
    challenger, champion, families = play_families(lost=9)
    decision = decide(challenger, champion, config(), families=families)
    assert not decision.promoted and not decision.undecided
    assert decision.reason.startswith(
        "In the family heat it gained 0 and lost 9 of 10 games (-0.900; bounds -"
    )
    assert "): it loses more than the allowed 0.250." in decision.reason
    (heat,) = [c for c in decision.conditions if not c.passed]
    assert heat.metric == "success_rate_change/heat" and heat.low < heat.value < heat.high < -0.25
    assert decide(challenger, champion, config()).promoted, "without families none is examined"
    assert decide(
        challenger, champion, PromotionConfig(max_batches=1, max_family_drop=1), families=families
    ).promoted, "a limit of 1 allows any loss"


def test_an_undecided_family_is_decided_by_its_change_after_the_last_batch():
    for lost, promoted in ((2, True), (4, False)):
        challenger, champion, families = play_families(lost=lost)
        undecided = decide(challenger, champion, config(), families=families)
        assert (
            not undecided.promoted
            and undecided.undecided
            and "the allowed loss of 0.250 lies between the bounds." in undecided.reason
        )
        last = decide(challenger, champion, config(), families=families, final=True)
        (heat,) = [c for c in last.conditions if c.metric == "success_rate_change/heat"]
        assert last.promoted == heat.passed == promoted and not last.undecided
        assert "after the last batch, so the change itself decided. It " in heat.reason
        assert heat.reason.endswith(f"{'is within' if promoted else 'exceeds'} the allowed loss.")


def test_the_number_of_games_that_a_family_needs_is_as_documented():
    """As in docs/reference/metrics.md: five families and three looks, so an error of 0.05 over 15 bounds."""

    def bounds(both, gained, lost, neither):
        challenger = [True] * (both + gained) + [False] * (lost + neither)
        champion = [True] * both + [False] * gained + [True] * lost + [False] * neither
        outcomes = [dict(zip(map(str, range(len(one))), one, strict=True)) for one in (challenger, champion)]
        families = dict.fromkeys(outcomes[0], "heat") | {f"other {i}": f"family {i}" for i in range(4)}
        for one in outcomes:
            one |= {f"other {i}": True for i in range(4)}
        heat = family_changes(*outcomes, families, PromotionConfig())["heat"]
        expected = paired_difference(challenger, champion, 1 - 2 * 0.05 / 15)
        assert (heat.low, heat.high) == (expected.low, expected.high)
        return heat.low, heat.high

    assert bounds(3, 0, 0, 4)[0] < -0.25 <= bounds(4, 0, 0, 4)[0], "half of the games won by both: 8 games"
    assert bounds(22, 0, 0, 0)[0] < -0.25 <= bounds(23, 0, 0, 0)[0], "all won by both: 23"
    assert bounds(8, 2, 2, 8)[0] < -0.25 <= bounds(8, 2, 2, 9)[0], "a tenth gained, a tenth lost: 21"
    assert bounds(0, 0, 6, 0)[1] >= -0.25 > bounds(0, 0, 7, 0)[1], "all lost: 7"


def test_further_batches_are_played_while_a_family_is_undecided():
    def batch(number):
        challenger, champion, families = play_families(lost=2, gained=2, n=10)
        renamed = [
            {f"{number}/{game}": value for game, value in one.items()}
            for one in (challenger, champion, families)
        ]
        return PlayedGames(*renamed)

    decision, batches = decide_in_batches(batch(0), batch, PromotionConfig())
    heat = next(c for c in decision.conditions if c.metric == "success_rate_change/heat")
    assert decision.promoted and (batches, heat.n, heat.passed) == (3, 30, True)
    decision, batches = decide_in_batches(batch(0), lambda number: None, PromotionConfig())
    assert decision.promoted and batches == 1, "without further games the change itself decides"


def test_a_gain_within_chance_is_undecided_and_a_clear_gain_promotes():
    undecided = decide(games(6, 10), games(4, 10), config(change=0.02, p=0.05))
    assert not undecided.promoted and undecided.undecided
    assert "by chance is p=0.2500 (McNemar, one-sided), above the allowed 0.0500" in undecided.reason
    promoted = decide(games(60, 64), games(10, 64), PromotionConfig())
    p_value = promoted.conditions[-1]
    assert promoted.promoted and not p_value.greater_is_better and p_value.n == 64


def test_several_looks_share_the_maximal_p_value():
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
        assert (
            not refused.promoted and not refused.undecided and "below the required +0.020" in refused.reason
        )


def test_the_champion_itself_is_not_compared():
    same = decide(games(60, 128), games(60, 128), PromotionConfig(), is_champion=True)
    assert same.promoted and [condition.name for condition in same.conditions] == ["threshold"]
    assert "The challenger is already the champion" in same.reason and "no champion yet" not in same.reason


def test_too_few_confirmed_dreamed_successes_refuse_the_challenger():
    refused = decide(games(6, 10), None, config(), agreement=(proportion(7, 10), 0.8))
    assert (
        not refused.promoted
        and "confirmed 0.700 of 10 dreamed successes; the floor is 0.800" in refused.reason
    )
    assert decide(games(6, 10), None, config(), agreement=(proportion(8, 10), 0.8)).promoted
    assert decide(games(6, 10), None, config(), agreement=(proportion(0, 0), 0.8)).promoted, (
        "without a dreamed success the condition passes"
    )
