"""Studies: cells pooled and compared (by hand and with SciPy), refused cells, tables and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from components.errors import DataError
from components.evaluation.metrics.intervals import (
    Estimate,
    crossed_mean,
    crossed_p_value,
    crossed_ratio,
    proportion,
)
from components.evaluation.study import study_results
from components.evaluation.study.cells import Cell, require_distinct_policies
from components.evaluation.study.crossed_bootstrap import bootstrap_difference, bootstrap_ratio
from components.evaluation.study.reach_costs import first_reach_costs
from components.evaluation.study.study_figures import draw_study
from components.evaluation.study.study_results import holm_correction, summarise
from components.evaluation.study.study_table import study_table

DOCS = Path(__file__).parents[2] / "docs"


def cell(method, seed, won, *, families=("a", "b"), **changes):
    games = {f"g{n}": bool(flag) for n, flag in enumerate(won)}
    kinds = {game: families[n % len(families)] for n, game in enumerate(games)}
    return replace(Cell(method, seed, {}, games, kinds, 100 * seed, seconds={"real_rl": 60.0}), **changes)


def test_n_is_the_number_of_games_for_any_number_of_seeds():
    cells = {
        "base": [cell("base", 1, [1, 0, 1, 0]), cell("base", 2, [1, 1, 0, 0])],
        "other": [cell("other", 1, [1, 1, 1, 1])],
    }
    metrics = summarise(cells, "base")
    rate = metrics["base"]["evaluate/success_rate"]
    assert (rate.value, rate.n) == (0.5, 4) and 0 <= rate.low < 0.5 < rate.high <= 1
    assert (
        metrics["base"]["evaluate/success_rate/a"].value == 0.75
        and metrics["base"]["evaluate/success_rate/b"].value == 0.25
    )
    assert metrics["base"]["evaluate/success_rate/seed_2"].value == 0.5
    assert (
        metrics["base"]["cost/real_interactions"].value == 150 and metrics["base"]["cost/seconds"].value == 60
    )
    assert "difference/success_rate" not in metrics["base"]


@pytest.mark.parametrize("name", ["run_id", "policy"])
def test_two_seeds_of_a_method_that_are_one_policy_are_refused(name):
    copies = [cell("base", seed, [1, 0], **{name: "same"}) for seed in (0, 1)]
    with pytest.raises(DataError, match="The cells base, seed 0 and seed 1, are one policy"):
        require_distinct_policies({"base": copies})
    require_distinct_policies({"base": copies[:1], "other": [replace(copies[1], method="other")]})
    require_distinct_policies({"base": [cell("base", seed, [1, 0]) for seed in (0, 1)]})


def test_figures_that_all_seeds_have_are_averaged_over_seeds():
    first, second = {"a": 1.0, "b": 3.0, "share": 0.9}, {"a": 2.0, "share": 1.0}
    cells = {"dream": [cell("dream", 0, [1, 0], figures=first), cell("dream", 1, [1, 0], figures=second)]}
    metrics = summarise(cells, "real")["dream"]
    assert (metrics["a"].value, metrics["a"].n) == (1.5, 2) and "b" not in metrics
    assert metrics["a"].high > 2 and metrics["share"].high == 1.0, "a share has no interval beyond 1"


def test_a_difference_is_paired_by_game_over_common_seeds():
    base, other = [0, 1, 0, 0, 1, 0, 1, 0], [1, 1, 0, 1, 1, 0, 1, 0]
    cells = {"base": [cell("base", 0, base), cell("base", 5, [1] * 8)], "other": [cell("other", 0, other)]}
    metrics = summarise(cells, "base")["other"]
    assert metrics["difference/success_rate"].value == 0.25 and metrics["difference/success_rate"].n == 8
    assert "difference/p_value" not in metrics, "one seed common: a test would be over games alone"
    interval = ttest_rel(other, base).confidence_interval()
    assert (metrics["difference/success_rate"].low, metrics["difference/success_rate"].high) == pytest.approx(
        (interval.low, interval.high)
    )
    assert "ratio/success_rate" not in metrics, "the base's rate may be 0: it has no finite ratio"


def test_a_ratio_is_relative_to_the_base_with_the_common_seeds_only():
    base, other = [1] * 37 + [0] * 3, [1] * 40
    cells = {"base": [cell("base", 0, base), cell("base", 5, other)], "other": [cell("other", 0, other)]}
    metrics = summarise(cells, "base")["other"]
    assert metrics["ratio/success_rate"].value == pytest.approx(40 / 37)
    assert metrics["ratio/success_rate"] == crossed_ratio([other], [base])
    assert metrics["ratio/success_rate"].low >= 0.9
    assert "ratio/non_inferior" not in metrics, "one seed is not judged"


@pytest.mark.parametrize("is_worse", [False, True])
def test_what_is_not_inferior_is_judged_over_three_seeds_and_more(is_worse):
    fewer, all_won = [1] * 37 + [0] * 3, [1] * 40
    base, other = (all_won, fewer) if is_worse else (fewer, all_won)
    cells = {
        name: [cell(name, seed, won, run_id="20261201-000000-x") for seed in range(3)]
        for name, won in (("a", base), ("b", other))
    }
    metrics = summarise(cells, "a")["b"]
    assert metrics["ratio/non_inferior"].value == (metrics["ratio/success_rate"].low >= 0.9) == (not is_worse)
    assert metrics["ratio/success_rate"].value > 0.9
    assert "ratio/non_inferior" not in summarise(cells, "a", controls={"b"})["b"], "a control"
    for name in cells:
        older = cells | {name: [replace(cells[name][0], run_id="20261128-090000-x"), *cells[name][1:]]}
        assert "ratio/non_inferior" not in summarise(older, "a")["b"], "run before the margin was set"


def test_a_method_is_not_inferior_only_if_both_intervals_say_so(monkeypatch):
    won = {"a": [1] * 37 + [0] * 3, "b": [1] * 40}
    cells = {
        name: [cell(name, seed, games, run_id="20261201-000000-x") for seed in range(3)]
        for name, games in won.items()
    }
    metrics = summarise(cells, "a")["b"]
    assert metrics["ratio/non_inferior"].value == 1
    assert metrics["ratio/bootstrap"] == bootstrap_ratio([won["b"]] * 3, [won["a"]] * 3)
    assert metrics["difference/bootstrap"] == bootstrap_difference([won["b"]] * 3, [won["a"]] * 3)
    for name in ("crossed_ratio", "bootstrap_ratio"):
        with monkeypatch.context() as patched:
            patched.setattr(study_results, name, lambda *rows: Estimate(1.08, 40, 0.89, 1.2))
            assert summarise(cells, "a")["b"]["ratio/non_inferior"].value == 0


def test_nothing_is_called_not_inferior_to_a_clone():
    cells = {
        name: [cell(name, seed, [1] * 40, run_id="20261201-000000-x") for seed in range(3)]
        for name in ("clone", "other")
    }
    cells["clone"] = [replace(one, real_interactions=0, dreamed_interactions=0) for one in cells["clone"]]
    metrics = summarise(cells, "clone")["other"]
    assert "ratio/success_rate" in metrics and "ratio/non_inferior" not in metrics


def test_differing_seeds_widen_the_interval_of_a_difference():
    base = [0, 1, 0, 0, 1, 0, 1, 0]
    better, same, worse = [1, 1, 0, 1, 1, 0, 1, 0], base, [0, 0, 0, 0, 1, 0, 0, 0]
    cells = {
        "base": [cell("base", seed, base) for seed in range(3)],
        "other": [cell("other", 0, better), cell("other", 1, same)],
    }
    similar_seeds = summarise(cells, "base")["other"]
    cells["other"].append(cell("other", 2, worse))
    differing_seeds = summarise(cells, "base")["other"]
    assert (
        similar_seeds["difference/success_rate"].value == 0.125
        and differing_seeds["difference/success_rate"].value == 0.0
    )
    rows = [[a - b for a, b in zip(row, base, strict=True)] for row in (better, same, worse)]
    assert (
        differing_seeds["difference/success_rate"] == crossed_mean(rows)
        and differing_seeds["difference/p_value"].value == 1.0
    )
    over_games_only = crossed_mean([[sum(column) / 3 for column in zip(*rows, strict=True)]])
    assert differing_seeds["difference/success_rate"].low < over_games_only.low


def test_methods_without_a_common_seed_are_not_compared():
    """Without a common seed the effects of a seed do not cancel in the difference."""
    cells = {
        "base": [cell("base", 0, [1, 0, 0, 0]), cell("base", 1, [1, 1, 0, 0])],
        "other": [cell("other", 2, [1, 1, 1, 0])],
    }
    metrics = summarise(cells, "base")["other"]
    assert "evaluate/success_rate" in metrics and not [
        name for name in metrics if name.startswith(("difference", "ratio"))
    ]


def test_a_success_rate_without_variance_has_the_wilson_interval():
    cells = {
        name: [cell(name, seed, [won] * 60) for seed in range(3)]
        for name, won in (("never", 0), ("always", 1))
    }
    metrics = summarise(cells, "never")
    assert (
        metrics["never"]["evaluate/success_rate"] == proportion(0, 60)
        and metrics["never"]["evaluate/success_rate"].high > 0.05
    )
    assert metrics["always"]["evaluate/success_rate/a"] == proportion(30, 30)


def test_p_values_get_the_holm_correction():
    assert holm_correction({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    assert holm_correction({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0} and holm_correction({}) == {}
    assert holm_correction({"a": 0.01, "c": 0.03}, family=3) == pytest.approx({"a": 0.03, "c": 0.06})


@pytest.mark.parametrize("few", [1, 2])
def test_a_method_with_few_seeds_has_no_p_value_and_counts_in_the_family_of_tests(few):
    """Else the p-values of a table would rise when a further seed of another method arrives."""
    won = {"base": [1] * 12 + [0] * 28, "a": [1] * 40, "b": [1] * 20 + [0] * 20}
    cells = {name: [cell(name, seed, games) for seed in range(3)] for name, games in won.items()}
    with_few = cells | {"b": cells["b"][:few]}
    p_value = [summarise(one, "base")["a"]["difference/p_value"].value for one in (cells, with_few)]
    assert p_value[0] == p_value[1] > 0
    assert "difference/p_value" not in summarise(with_few, "base")["b"]


def test_a_planned_method_without_a_cell_counts_in_the_family_of_tests():
    won = {"base": [1] * 12 + [0] * 28, "a": [1] * 20 + [0] * 20}
    cells = {name: [cell(name, seed, games) for seed in range(3)] for name, games in won.items()}
    alone = summarise(cells, "base")["a"]["difference/p_value"].value
    metrics = summarise(cells, "base", {"part": "a"}, ["late", "base", "a", "part", "later"])
    assert 0 < alone < 0.1 and metrics["a"]["difference/p_value"].value == pytest.approx(3 * alone)
    assert metrics["late"] == metrics["later"] == {} and list(metrics)[:2] == ["late", "base"]
    with_crashed = summarise(cells | {"late": [Cell("late", 0, {}, crash="killed")]}, "base")
    assert with_crashed["a"]["difference/p_value"].value == pytest.approx(2 * alone)


def test_the_watched_agreement_is_averaged_over_seeds():
    watched_cells = [
        cell("dream", 0, [1, 0], watched=[[4, 0.5, 1.0], [8, 0.6, 0.5]]),
        cell("dream", 1, [1, 0], watched=[[4, 0.5, 0.25]]),
    ]
    metrics = summarise({"dream": watched_cells, "real": [cell("real", 0, [1, 0])]}, "real")
    assert (
        metrics["dream"]["watched/rollout_agreement"].value,
        metrics["dream"]["watched/rollout_agreement"].n,
    ) == (0.5, 2)
    assert (
        metrics["dream"]["watched/rollout_agreement"].low >= 0
        and metrics["dream"]["watched/rollout_agreement"].high <= 1
    ), "a share"
    assert "watched/rollout_agreement" not in metrics["real"]


def test_crashed_cells_are_counted_and_left_out():
    crashed = Cell("other", 1, {}, crash="TrainingError: nan")
    metrics = summarise(
        {"base": [cell("base", 0, [1, 0])], "other": [crashed], "third": [crashed, cell("third", 0, [1, 1])]},
        "base",
    )
    assert metrics["other"].keys() == {"crashed_seeds"} and metrics["third"]["crashed_seeds"].value == 1
    assert "crashed_seeds" not in metrics["base"] and metrics["third"]["evaluate/success_rate"].value == 1.0
    without_base = summarise({"base": [crashed], "third": [cell("third", 0, [1, 1])]}, "base")
    assert "difference/success_rate" not in without_base["third"]


def test_an_ablation_is_compared_with_its_own_base():
    rows = {
        "real": [1, 1, 1, 1, 1, 0, 1, 1],
        "dream": [1, 0, 1, 1, 1, 0, 1, 0],
        "no-part": [0, 0, 1, 1, 0, 0, 1, 0],
    }
    cells = {name: [cell(name, seed, won) for seed in range(3)] for name, won in rows.items()}
    metrics = summarise(cells, "real", {"no-part": "dream"})
    assert (
        metrics["no-part"]["difference/success_rate"].value == -0.25
        and metrics["dream"]["difference/success_rate"].value == -0.25
    )
    for name, base in (("no-part", "dream"), ("dream", "real")):
        differences = [mine - other for mine, other in zip(rows[name], rows[base], strict=True)]
        assert metrics[name]["difference/p_value"].value == pytest.approx(
            crossed_p_value([differences] * 3)
        ), "each base has one comparison"
    row = next(
        line
        for line in study_table(metrics, cells, "real", {"no-part": "dream"}).splitlines()
        if line.startswith("| no-part")
    )
    assert "| dream: -0.250 (" in row


def test_transfer_methods_are_compared_on_unseen_families():
    origin = {"config": {"data": {"families": ["a"]}}}
    cells = {
        name: [cell(name, 0, won, origin=origin)]
        for name, won in (("real", [1, 0, 1, 0, 1, 1]), ("dream", [0, 1, 0, 1, 0, 1]))
    }
    metrics = summarise(cells, "real")
    assert (
        metrics["dream"]["evaluate/success_rate"].value == 0.5
        and metrics["dream"]["evaluate/success_rate/held_back"].value == 1.0
    )
    assert metrics["real"]["evaluate/success_rate/held_back"].value == pytest.approx(1 / 3)
    assert [metrics[name]["evaluate/success_rate/learnt"].value for name in ("real", "dream")] == [1.0, 0.0]
    difference = metrics["dream"]["difference/success_rate"]
    assert (difference.value, difference.n) == (pytest.approx(2 / 3), 3)


def test_cells_with_different_games_are_refused():
    with pytest.raises(DataError, match=r"base \(seed 0\) and base \(seed 1\) differ in 1 games, such as g2"):
        summarise({"base": [cell("base", 0, [1, 0]), cell("base", 1, [1, 0, 1])]}, "base")
    with pytest.raises(DataError, match="differ in 1 games"):
        summarise({"base": [cell("base", 0, [1, 0])], "other": [cell("other", 0, [1, 0, 1])]}, "base")


def make_trained_cell(method, seed, won, rates, *, real=10.0, seconds=1.0, began=0.0):
    """Return a cell whose policies during training won `rates` of the held-out games, and the last one
    `won`.
    """
    points = [[real * n, 0.0, began + seconds * n, rate] for n, rate in enumerate(rates, start=1)]
    curve = [
        *(point[:3] + [0.9] for point in points),
        [real * (len(rates) + 1), 0.0, began + seconds * (len(rates) + 1), 0.9],
    ]
    return cell(method, seed, won, curve=curve, held_out=points)


def test_the_costs_of_the_first_policy_that_reaches_a_success_rate():
    trained = make_trained_cell("base", 0, [1, 1, 1, 0], [0.25, 0.5, 0.25])
    assert first_reach_costs(trained, 0.25) == (10.0, 1.0) and first_reach_costs(trained, 0.4) == (20.0, 2.0)
    assert first_reach_costs(trained, 0.75) == (40.0, 4.0), "the last policy counts as well"
    assert first_reach_costs(trained, 0.8) is None and first_reach_costs(cell("clone", 0, [1]), 0.0) is None


def test_reach_costs_refer_to_the_final_success_of_the_base_with_the_same_seed():
    base = [
        make_trained_cell("base", 0, [1, 0], [0.0, 0.4]),
        make_trained_cell("base", 1, [1, 1], [0.4, 1.0, 0.4]),
    ]
    other = [
        make_trained_cell("other", 0, [0, 0], [0.2, 0.5], real=0.0, began=4.0),
        make_trained_cell("other", 1, [1, 0], [0.9]),
    ]
    metrics = summarise({"base": base, "other": other, "clone": [cell("clone", 0, [0, 0])]}, "base")
    base_values = {name: value.value for name, value in metrics["base"].items() if name.startswith("reached")}
    assert base_values == {
        "reached/seeds": 2,
        "reached/real_interactions": 25,
        "reached/seconds": 2.5,
        "reached/seconds_ratio": 1,
    }
    assert metrics["other"]["reached/seeds"].value == 1 and metrics["other"]["reached/seeds"].n == 2
    assert (
        metrics["other"]["reached/real_interactions"].value == 0
        and metrics["other"]["reached/seconds_ratio"].value == 2
    )
    step_seconds = {
        name: metrics["other"][f"reached/step_seconds/{name}"].value for name in ("even", "third")
    }
    assert step_seconds == pytest.approx({"even": (6 - 3) / 30, "third": (3 * 6 - 3) / 30}), (
        "6 s without real steps, compared with 3 s and 30 real steps"
    )
    assert not [name for name in metrics["clone"] if name.startswith("reached")]


def test_figures_are_drawn_for_the_existing_methods(tmp_path):
    curve = [[10.0 * n, 0.0, 1.0 * n, 0.2 * n] for n in range(1, 5)]
    dreamed = [[0.0, 10.0 * n, 1.0 * n, 0.2 * n] for n in range(1, 5)]
    names = {
        "gigpo-real": curve,
        "clone": [],
        "dream-gigpo": dreamed,
        "no-reasoning": dreamed,
        "transfer-clone": [],
    }
    cells = {
        name: [cell(name, seed, [1, 0, 1, seed], curve=points) for seed in (0, 1)]
        for name, points in names.items()
    }
    paths = draw_study(summarise(cells, "gigpo-real"), cells, "gigpo-real", tmp_path)
    assert [path.name for path in paths] == [
        f"study-{name}.png" for name in ("success", "curves", "interactions", "cost", "ablations", "transfer")
    ]
    in_dreams = {
        name: [replace(one, real_interactions=0) for one in cells[name]] for name in ("clone", "dream-gigpo")
    }
    without_reality = draw_study(summarise(in_dreams, "clone"), in_dreams, "clone", tmp_path / "dreams")
    assert "study-interactions.png" not in [path.name for path in without_reality]
    assert all(path.stat().st_size > 5000 for path in paths)
    entry = {"proposed": 3, "accepted": 1, "refused": {"not new": 2}, "played": 0, "solved": 0, "pool": 1}
    entry["difficulty"] = {"training": [1, 0, 2, 0, 1], "generated": [0] * 5}
    with_history = cells | {"dream-gigpo": [replace(cells["dream-gigpo"][0], curriculum=[entry] * 4)]}
    assert (tmp_path / "study-curriculum.png") in draw_study(
        summarise(with_history, "gigpo-real"), with_history, "gigpo-real", tmp_path
    )
    with_held_out = {
        name: [replace(c, held_out=[p[:3] + [0.4] for p in c.curve[::2]]) for c in of_method]
        for name, of_method in cells.items()
    }
    held_out_paths = draw_study(
        summarise(with_held_out, "gigpo-real"), with_held_out, "gigpo-real", tmp_path / "held-out"
    )
    assert [path.name for path in held_out_paths] == [path.name for path in paths]
    assert (tmp_path / "held-out" / "study-curves.png").read_bytes() != (
        tmp_path / "study-curves.png"
    ).read_bytes()
    few = {name: cells[name] for name in ("clone", "dream-gigpo")}
    assert len(draw_study(summarise(few, "gigpo-real"), few, "gigpo-real", tmp_path / "few")) == 3
