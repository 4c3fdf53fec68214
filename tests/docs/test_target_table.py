"""The table of targets: words of a verdict, the stronger start of reality, minutes that are not known."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "docs" / "scripts")]

import budget_table  # noqa: E402
import target_table  # noqa: E402

from components.evaluation.study.cells import Cell  # noqa: E402


def cell(method, won, **changes):
    games = {f"g{n}": bool(flag) for n, flag in enumerate(won)}
    return replace(Cell(method, 0, {}, games, dict.fromkeys(games, "")), **changes)


@pytest.mark.parametrize(
    ("is_reached", "seeds", "words"),
    [
        (True, 3, "met, 3 seeds"),
        (False, 3, "**missed**, 3 seeds"),
        (True, 2, "reached in 2 seeds, too few to test"),
        (False, 1, "**missed** in 1 seed"),
    ],
)
def test_a_target_is_met_by_three_seeds_and_more_alone(is_reached, seeds, words):
    assert target_table.verdict(is_reached, seeds) == words


def test_the_dream_is_compared_with_the_better_start_of_reality(monkeypatch):
    folders = {
        "runs": {
            f"{way}-{steps}": [cell(f"{way}-{steps}", won)]
            for steps in (500, 1000)
            for way, won in (("gigpo-real", [1] * 4 + [0] * 36), ("s2r-gigpo", [1] * 20 + [0] * 20))
        },
        "runs-successes-1000": {"successes-gigpo-real": [cell("successes-gigpo-real", [1] * 22 + [0] * 18)]},
    }
    monkeypatch.setattr(budget_table, "read_cells", lambda name: folders.get(name, {}))
    monkeypatch.setattr(budget_table, "REAL_STEPS", (500, 1000))
    found = budget_table.budget_differences(1000, "runs")
    assert {steps: (difference.value, starts) for steps, (difference, starts) in found.items()} == {
        500: (pytest.approx(0.4), 1),
        1000: (pytest.approx(-0.05), 2),
    }
    monkeypatch.setattr(target_table, "budget_differences", lambda most: found)
    shown = target_table._above_reality(1000)
    assert shown.startswith("**missed** in 1 seed: 500: +0.400 (") and ", one start; 1,000: -0.050 (" in shown


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        ((67.0, 38.0, True), "**missed** in 1 seed: 67 minutes, reality 38 to as much success"),
        ((12.0, 38.0, True), "reached in 1 seed, too few to test: 12 minutes, reality 38 to as much success"),
        ((12.0, 38.0, False), "reached in 1 seed, too few to test: 12 minutes, reality more than 38 to"),
        ((30.0, 38.0, False), "1 seed: 30 minutes, reality more than 38 to as much success"),
    ],
)
def test_minutes_have_a_verdict_where_reality_won_as_much(monkeypatch, minutes, words):
    monkeypatch.setattr(target_table, "minutes_to_success", lambda name: minutes)
    assert target_table._time("study-slow").startswith(words)
