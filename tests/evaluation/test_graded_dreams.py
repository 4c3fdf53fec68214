"""The measures of graded dreams against the success of the policies trained in them."""

from __future__ import annotations

import pytest

from components.evaluation.study.cells import Cell
from components.evaluation.study.graded_dreams import (
    draw_graded_dreams,
    has_graded_dreams,
    measures_against_success,
)

EXACT = "fidelity/next_state_exact/determined"
KIND = "fidelity/kindness/dreamed"
AGREEMENT = "fidelity/rollout_agreement/dreamed"


def cell(method, seed, wins, **figures):
    games = {f"game-{number}": number < wins for number in range(10)}
    names = {"exact": EXACT, "kind": KIND, "agreement": AGREEMENT}
    return Cell(method, seed, {}, games, figures={names[name]: value for name, value in figures.items()})


@pytest.fixture
def cells():
    """Success goes up with exactness and down with kindness; agreement has three cells only."""
    grades = {"500-steps": 1, "10-flipped": 3, "20-swapped": 2, "full": 7}
    found = {
        f"graded-{name}": [
            cell(f"graded-{name}", seed, wins + seed, exact=(wins + seed) / 10, kind=-wins - seed)
            for seed in (0, 1)
        ]
        for name, wins in grades.items()
    }
    for method in list(found)[:3]:
        found[method][0].figures[AGREEMENT] = 0.5
    crashed = Cell("graded-5-flipped", 0, {}, crash="TrainingError")
    return found | {"graded-5-flipped": [crashed], "dream-gigpo": [cell("dream-gigpo", 0, 9, exact=0.0)]}


def test_a_measure_that_orders_the_policies_has_a_rank_correlation_of_one(cells):
    found = measures_against_success(cells)
    assert set(found) == {f"spearman/{EXACT}", f"spearman/{KIND}"}
    exact, kind = found[f"spearman/{EXACT}"], found[f"spearman/{KIND}"]
    assert exact.value == pytest.approx(1) and exact.n == 8
    assert kind.value == pytest.approx(-1) and kind.high <= 0


def test_ties_and_disagreement_lower_it(cells):
    swapped = cells["graded-20-swapped"][0]
    swapped.figures[EXACT] = 0.95  # looks best, is third
    found = measures_against_success(cells)[f"spearman/{EXACT}"]
    assert 0 < found.value < 1
    assert found.low < found.value <= found.high


def test_a_measure_with_one_value_has_no_correlation(cells):
    for own in cells.values():
        for one in own:
            one.figures[EXACT] = 0.9
    assert f"spearman/{EXACT}" not in measures_against_success(cells)


def test_the_figure_has_a_panel_for_each_measure(cells):
    figure = draw_graded_dreams(cells)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "rank correlation 1.00" in titles[0] and len(titles) == 7
    assert has_graded_dreams(cells) and not has_graded_dreams({"dream-gigpo": cells["dream-gigpo"]})
