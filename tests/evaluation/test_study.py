"""Cells of a study pooled and compared: numbers by hand, SciPy's own t test, what is refused; and that the
pictures are drawn.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate, crossed_mean, proportion
from components.evaluation.report.document_tables import insert_table, marks
from components.evaluation.study.study_figures import draw_study
from components.evaluation.study.study_results import (
    Cell,
    holm,
    reached_at,
    require_different_cells,
    summarise,
)
from components.evaluation.study.study_table import study_table
from components.evaluation.study.transfer_table import transfer_table
from flows.jobs.study import write_study
from flows.jobs.study_methods import BASE, BASES, METHODS

DOCS = Path(__file__).parents[2] / "docs"


def cell(method, seed, won, *, families=("a", "b"), **changes):
    games = {f"g{n}": bool(flag) for n, flag in enumerate(won)}
    kinds = {game: families[n % len(families)] for n, game in enumerate(games)}
    return replace(Cell(method, seed, {}, games, kinds, 100 * seed, seconds={"real_rl": 60.0}), **changes)


def test_a_game_counts_once_however_many_seeds_played_it():
    cells = {
        "base": [cell("base", 1, [1, 0, 1, 0]), cell("base", 2, [1, 1, 0, 0])],
        "other": [cell("other", 1, [1, 1, 1, 1])],
    }
    found = summarise(cells, "base")
    rate = found["base"]["evaluate/success_rate"]
    assert (rate.value, rate.n) == (0.5, 4) and 0 <= rate.low < 0.5 < rate.high <= 1
    assert (
        found["base"]["evaluate/success_rate/a"].value == 0.75
        and found["base"]["evaluate/success_rate/b"].value == 0.25
    )
    assert found["base"]["evaluate/success_rate/seed_2"].value == 0.5
    assert found["base"]["cost/real_interactions"].value == 150 and found["base"]["cost/seconds"].value == 60
    assert "difference/success_rate" not in found["base"]


@pytest.mark.parametrize("name", ["run_id", "policy"])
def test_two_seeds_of_a_method_that_are_one_policy_are_refused(name):
    copies = [cell("base", seed, [1, 0], **{name: "same"}) for seed in (0, 1)]
    with pytest.raises(DataError, match="The cells base, seed 0 and seed 1, are one policy"):
        require_different_cells({"base": copies})
    require_different_cells({"base": copies[:1], "other": [replace(copies[1], method="other")]})
    require_different_cells({"base": [cell("base", seed, [1, 0]) for seed in (0, 1)]})


def test_figures_that_every_seed_has_are_means_over_the_seeds():
    first, second = {"a": 1.0, "b": 3.0, "share": 0.9}, {"a": 2.0, "share": 1.0}
    cells = {"dream": [cell("dream", 0, [1, 0], figures=first), cell("dream", 1, [1, 0], figures=second)]}
    found = summarise(cells, "real")["dream"]
    assert (found["a"].value, found["a"].n) == (1.5, 2) and "b" not in found
    assert found["a"].high > 2 and found["share"].high == 1.0, "a share has no interval beyond 1"


def test_a_difference_is_paired_by_game_over_the_seeds_that_both_have():
    base, other = [0, 1, 0, 0, 1, 0, 1, 0], [1, 1, 0, 1, 1, 0, 1, 0]
    cells = {"base": [cell("base", 0, base), cell("base", 5, [1] * 8)], "other": [cell("other", 0, other)]}
    found = summarise(cells, "base")["other"]
    assert found["difference/success_rate"].value == 0.25 and found["difference/success_rate"].n == 8
    assert found["difference/p_value"].value == pytest.approx(ttest_rel(other, base).pvalue)
    assert found["ratio/success_rate"].value == pytest.approx(1 + 0.25 / (3 / 8)), (
        "over the base of the seeds that both have"
    )


def test_seeds_that_disagree_widen_a_difference():
    base = [0, 1, 0, 0, 1, 0, 1, 0]
    better, same, worse = [1, 1, 0, 1, 1, 0, 1, 0], base, [0, 0, 0, 0, 1, 0, 0, 0]
    cells = {
        "base": [cell("base", seed, base) for seed in range(3)],
        "other": [cell("other", 0, better), cell("other", 1, same)],
    }
    alike = summarise(cells, "base")["other"]
    cells["other"].append(cell("other", 2, worse))
    apart = summarise(cells, "base")["other"]
    assert alike["difference/success_rate"].value == 0.125 and apart["difference/success_rate"].value == 0.0
    rows = [[a - b for a, b in zip(row, base, strict=True)] for row in (better, same, worse)]
    assert apart["difference/success_rate"] == crossed_mean(rows) and apart["difference/p_value"].value == 1.0
    of_games = crossed_mean([[sum(column) / 3 for column in zip(*rows, strict=True)]])
    assert apart["difference/success_rate"].low < of_games.low


def test_without_a_common_seed_nothing_is_compared():
    """What a seed shares does not cancel, and what seeds differ by would be left out of an interval over
    games alone.
    """
    cells = {
        "base": [cell("base", 0, [1, 0, 0, 0]), cell("base", 1, [1, 1, 0, 0])],
        "other": [cell("other", 2, [1, 1, 1, 0])],
    }
    found = summarise(cells, "base")["other"]
    assert "evaluate/success_rate" in found and not [
        name for name in found if name.startswith(("difference", "ratio"))
    ]


def test_games_that_all_end_alike_are_not_known_for_certain():
    cells = {
        name: [cell(name, seed, [won] * 60) for seed in range(3)]
        for name, won in (("never", 0), ("always", 1))
    }
    found = summarise(cells, "never")
    assert (
        found["never"]["evaluate/success_rate"] == proportion(0, 60)
        and found["never"]["evaluate/success_rate"].high > 0.05
    )
    assert found["always"]["evaluate/success_rate/a"] == proportion(30, 30)


def test_p_values_are_corrected_for_their_number():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0} and holm({}) == {}


def test_what_the_watch_saw_counts_once_a_seed():
    seen = [
        cell("dream", 0, [1, 0], watched=[[4, 0.5, 1.0], [8, 0.6, 0.5]]),
        cell("dream", 1, [1, 0], watched=[[4, 0.5, 0.25]]),
    ]
    found = summarise({"dream": seen, "real": [cell("real", 0, [1, 0])]}, "real")
    assert (
        found["dream"]["watched/rollout_agreement"].value,
        found["dream"]["watched/rollout_agreement"].n,
    ) == (0.5, 2)
    assert (
        found["dream"]["watched/rollout_agreement"].low >= 0
        and found["dream"]["watched/rollout_agreement"].high <= 1
    ), "a share"
    assert "watched/rollout_agreement" not in found["real"]


def test_a_crashed_cell_leaves_the_others():
    crashed = Cell("other", 1, {}, crash="TrainingError: nan")
    found = summarise(
        {"base": [cell("base", 0, [1, 0])], "other": [crashed], "third": [crashed, cell("third", 0, [1, 1])]},
        "base",
    )
    assert found["other"].keys() == {"crashed_seeds"} and found["third"]["crashed_seeds"].value == 1
    assert "crashed_seeds" not in found["base"] and found["third"]["evaluate/success_rate"].value == 1.0
    alone = summarise({"base": [crashed], "third": [cell("third", 0, [1, 1])]}, "base")
    assert "difference/success_rate" not in alone["third"]


def test_an_ablation_is_held_against_what_it_lacks_a_part_of():
    rows = {
        "real": [1, 1, 1, 1, 1, 0, 1, 1],
        "dream": [1, 0, 1, 1, 1, 0, 1, 0],
        "no-part": [0, 0, 1, 1, 0, 0, 1, 0],
    }
    cells = {name: [cell(name, 0, won)] for name, won in rows.items()}
    found = summarise(cells, "real", {"no-part": "dream"})
    assert (
        found["no-part"]["difference/success_rate"].value == -0.25
        and found["dream"]["difference/success_rate"].value == -0.25
    )
    for name, base in (("no-part", "dream"), ("dream", "real")):
        assert found[name]["difference/p_value"].value == pytest.approx(
            ttest_rel(rows[name], rows[base]).pvalue
        ), "a family of one each"
    row = next(
        line
        for line in study_table(found, cells, "real", {"no-part": "dream"}).splitlines()
        if line.startswith("| no-part")
    )
    assert "| dream: -0.250 (" in row


def test_transfer_counts_on_families_that_were_not_learnt_from():
    origin = {"config": {"data": {"families": ["a"]}}}
    cells = {
        name: [cell(name, 0, won, origin=origin)]
        for name, won in (("real", [1, 0, 1, 0, 1, 1]), ("dream", [0, 1, 0, 1, 0, 1]))
    }
    found = summarise(cells, "real")
    assert (
        found["dream"]["evaluate/success_rate"].value == 0.5
        and found["dream"]["evaluate/success_rate/held_back"].value == 1.0
    )
    assert found["real"]["evaluate/success_rate/held_back"].value == pytest.approx(1 / 3)
    assert [found[name]["evaluate/success_rate/learnt"].value for name in ("real", "dream")] == [1.0, 0.0]
    difference = found["dream"]["difference/success_rate"]
    assert (difference.value, difference.n) == (pytest.approx(2 / 3), 3)


def test_cells_of_other_games_are_refused():
    with pytest.raises(DataError, match=r"base \(seed 0\) and base \(seed 1\) differ in 1 games, such as g2"):
        summarise({"base": [cell("base", 0, [1, 0]), cell("base", 1, [1, 0, 1])]}, "base")
    with pytest.raises(DataError, match="differ in 1 games"):
        summarise({"base": [cell("base", 0, [1, 0])], "other": [cell("other", 0, [1, 0, 1])]}, "base")


def on_the_way(method, seed, won, rates, *, real=10.0, seconds=1.0, began=0.0):
    """A cell whose policies on the way won `rates` of the held-out games, and the last one `won`."""
    points = [[real * n, 0.0, began + seconds * n, rate] for n, rate in enumerate(rates, start=1)]
    curve = [
        *(point[:3] + [0.9] for point in points),
        [real * (len(rates) + 1), 0.0, began + seconds * (len(rates) + 1), 0.9],
    ]
    return cell(method, seed, won, curve=curve, held_out=points)


def test_where_a_success_was_first_reached():
    made = on_the_way("base", 0, [1, 1, 1, 0], [0.25, 0.5, 0.25])
    assert reached_at(made, 0.25) == (10.0, 1.0) and reached_at(made, 0.4) == (20.0, 2.0)
    assert reached_at(made, 0.75) == (40.0, 4.0), "the last policy counts too"
    assert reached_at(made, 0.8) is None and reached_at(cell("clone", 0, [1]), 0.0) is None


def test_what_it_took_is_held_against_where_the_base_of_the_same_seed_ends():
    base = [on_the_way("base", 0, [1, 0], [0.0, 0.4]), on_the_way("base", 1, [1, 1], [0.4, 1.0, 0.4])]
    other = [
        on_the_way("other", 0, [0, 0], [0.2, 0.5], real=0.0, began=4.0),
        on_the_way("other", 1, [1, 0], [0.9]),
    ]
    found = summarise({"base": base, "other": other, "clone": [cell("clone", 0, [0, 0])]}, "base")
    own = {name: value.value for name, value in found["base"].items() if name.startswith("reached")}
    assert own == {
        "reached/seeds": 2,
        "reached/real_interactions": 25,
        "reached/seconds": 2.5,
        "reached/seconds_ratio": 1,
    }
    assert found["other"]["reached/seeds"].value == 1 and found["other"]["reached/seeds"].n == 2
    assert (
        found["other"]["reached/real_interactions"].value == 0
        and found["other"]["reached/seconds_ratio"].value == 2
    )
    longer = {name: found["other"][f"reached/step_seconds/{name}"].value for name in ("even", "third")}
    assert longer == pytest.approx({"even": (6 - 3) / 30, "third": (3 * 6 - 3) / 30}), (
        "6 s without a real step beside 3 s with 30"
    )
    assert not [name for name in found["clone"] if name.startswith("reached")]


def test_the_pictures_are_drawn_of_what_there_is(tmp_path):
    curve = [[10.0 * n, 0.0, 1.0 * n, 0.2 * n] for n in range(1, 5)]
    dreamed = [[0.0, 10.0 * n, 1.0 * n, 0.2 * n] for n in range(1, 5)]
    names = {
        "grpo-real": curve,
        "clone": [],
        "dream-grpo": dreamed,
        "no-reasoning": dreamed,
        "transfer-clone": [],
    }
    cells = {
        name: [cell(name, seed, [1, 0, 1, seed], curve=points) for seed in (0, 1)]
        for name, points in names.items()
    }
    paths = draw_study(summarise(cells, "grpo-real"), cells, "grpo-real", tmp_path)
    assert [path.name for path in paths] == [
        f"study-{name}.png" for name in ("interactions", "curves", "cost", "ablations", "transfer")
    ]
    assert all(path.stat().st_size > 5000 for path in paths)
    entry = {"proposed": 3, "accepted": 1, "refused": {"not new": 2}, "played": 0, "solved": 0, "pool": 1}
    entry["difficulty"] = {"training": [1, 0, 2, 0, 1], "generated": [0] * 5}
    dreamt = cells | {"dream-grpo": [replace(cells["dream-grpo"][0], curriculum=[entry] * 4)]}
    assert (tmp_path / "study-curriculum.png") in draw_study(
        summarise(dreamt, "grpo-real"), dreamt, "grpo-real", tmp_path
    )
    on_way = {
        name: [replace(c, held_out=[p[:3] + [0.4] for p in c.curve[::2]]) for c in of_method]
        for name, of_method in cells.items()
    }
    again = draw_study(summarise(on_way, "grpo-real"), on_way, "grpo-real", tmp_path / "way")
    assert [path.name for path in again] == [path.name for path in paths]
    assert (tmp_path / "way" / "study-curves.png").read_bytes() != (
        tmp_path / "study-curves.png"
    ).read_bytes()
    few = {name: cells[name] for name in ("clone", "dream-grpo")}
    assert len(draw_study(summarise(few, "grpo-real"), few, "grpo-real", tmp_path / "few")) == 2


def test_the_table_of_a_document_is_what_was_measured(tmp_path):
    base = [
        replace(on_the_way("base", seed, won, [0.0]), commit="abcdef012")
        for seed, won in ((0, [1, 0]), (1, [1, 1]))
    ]
    other = [on_the_way("other", 0, [1, 1], [0.6], real=0.0), on_the_way("other", 1, [1, 0], [0.5])]
    cells = {
        "base": base,
        "other": other,
        "gone": [Cell("gone", 0, {}, crash="TrainingError: the loss\nis nan")],
    }
    table = study_table(summarise(cells, "base"), cells, "base")
    lines, _, below = table.partition("\n\n")
    head, _, first, second, third = (
        [part.strip() for part in line[1:-1].split("|")] for line in lines.splitlines()
    )
    assert third[:2] == ["gone", "no cell was finished"] and len(third) == len(head)
    lacking = "- `gone`, seed 0, crashed: TrainingError: the loss is nan\n- `gone`: no cell of seed 1"
    assert below == f"{lacking}\n\nMade at commit abcdef0 (2 cells)."
    assert head[3] == "beside base (paired)" and len(head) == len(first) == len(second)
    assert first[0] == "base" and first[2:5] == ["0.500; 1.000", "", ""] and first[-1] == "2 of 2, 20, 1.00"
    assert (
        second[0] == "other"
        and second[2] == "1.000; 0.500"
        and second[3].startswith("+0.000 (")
        and "1.00 of it (" in second[3]
    )
    assert second[-1] == "1 of 2, 0, 0.50"
    document, (begin, end) = tmp_path / "results.md", marks("study")
    document.write_text(f"before\n{begin}\nold\n{end}\nbehind\n")
    insert_table(document, table)
    insert_table(document, table)
    assert document.read_text() == f"before\n{begin}\n{table}\n{end}\nbehind\n"
    for text in ("", begin, f"{end} {begin}"):
        document.write_text(text)
        with pytest.raises(DataError, match="no place for a table"):
            insert_table(document, table)
    with pytest.raises(DataError, match="no place for a table"):
        insert_table(tmp_path / "nowhere.md", table)


def test_a_document_has_a_table_of_each_study(tmp_path):
    """The marks are named: what another study wrote stays."""
    cells = {"base": [cell("base", 0, [1, 0]), cell("base", 1, [1, 1])]}
    metrics, document = summarise(cells, "base"), tmp_path / "results.md"
    (begin, end), (other, close) = marks("study"), marks("study-browser")
    document.write_text(f"{begin}\nmine\n{end}\n{other}\nold\n{close}\n")
    assert write_study(cells, metrics, None, None, document, "study-browser") == [document]
    head, _, rest = document.read_text().partition(other)
    assert head == f"{begin}\nmine\n{end}\n" and "| base | 0.750 (" in rest and "old" not in rest


def test_transfer_stands_in_two_tables():
    """Rows the worlds played, columns those trained in."""

    def of(value: float) -> Estimate:
        return Estimate(value, 10, 0.0, 1.0)

    worlds = {"shop": 0.5, "web": 0.25}
    found = {
        world: {
            f"transfer/{source}/{metric}": of(rate if source == world else 0.0)
            for source in worlds
            for metric in (
                "success_rate/dreamed",
                "success_rate/cloned",
                "next_state_exact",
                "unparsable_rate",
            )
        }
        for world, rate in worlds.items()
    }
    policies, models = transfer_table(found).split("\n\n")
    assert (
        policies.splitlines()[0] == "| held-out games of | policy trained in shop | policy trained in web |"
    )
    rate = "{0:.3f} (0.000 to 1.000), {1} {0:.3f}, n=10"
    assert (
        policies.splitlines()[2]
        == f"| shop | {rate.format(0.5, 'its clone')} | {rate.format(0, 'its clone')} |"
    )
    assert (
        models.splitlines()[3]
        == f"| web | {rate.format(0, 'no answer')} | {rate.format(0.25, 'no answer')} |"
    )


@pytest.mark.parametrize(("study", "least"), [("study", 45), ("study-browser", 9)])
def test_the_published_table_is_that_of_the_published_cells(study, least):
    """What docs/results.md and the study's JSON file say, counted again from the cells beside them."""
    found = [
        Cell(**json.loads(path.read_text())) for path in sorted((DOCS / "results" / study).glob("*.json"))
    ]
    cells = {
        name: [cell for cell in found if cell.method == name]
        for name in METHODS
        if any(cell.method == name for cell in found)
    }
    metrics = summarise(cells, BASE, BASES)
    assert study_table(metrics, cells, BASE, BASES) in (DOCS / "results.md").read_text()
    written = json.loads((DOCS / "results" / f"{study}.json").read_text())
    assert written.keys() == metrics.keys() and len(found) >= least
    for name, own in metrics.items():
        for metric, value in own.items():
            assert written[name][metric] == pytest.approx(value.to_json()), (name, metric)
