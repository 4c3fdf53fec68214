"""Tables of studies and of transfer: their cells, their place in a document, the published ones."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from test_study import cell, make_trained_cell

from components.errors import DataError
from components.evaluation.metrics.intervals import Estimate
from components.evaluation.metrics.paired_outcomes import paired_difference
from components.evaluation.report.document_tables import insert_table, table_markers
from components.evaluation.study.cells import Cell
from components.evaluation.study.seed_table import seed_table
from components.evaluation.study.study_results import summarise
from components.evaluation.study.study_table import study_table
from components.evaluation.study.transfer_table import transfer_table
from flows.jobs.studies.method import BASE
from flows.jobs.studies.study import write_study
from flows.jobs.studies.study_methods import BASES, CONTROLS, METHODS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_study_table_is_inserted_into_a_document(tmp_path):
    base = [
        replace(make_trained_cell("base", seed, won, [0.0]), commit="abcdef012")
        for seed, won in ((0, [1, 0]), (1, [1, 1]))
    ]
    other = [
        make_trained_cell("other", 0, [1, 1], [0.6], real=0.0),
        make_trained_cell("other", 1, [1, 0], [0.5]),
    ]
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
    assert third[:2] == ["gone", "no finished cell"] and len(third) == len(head)
    problems = "- `gone`, seed 0, crashed: TrainingError: the loss is nan\n- no cell: `gone` for seed 1"
    assert below == f"{problems}\n\nCommit: abcdef0 (2 cells)."
    assert head[3] == "difference from base (paired)" and len(head) == len(first) == len(second)
    assert first[0] == "base" and first[2:5] == ["0.500; 1.000", "", ""] and first[-1] == "2 of 2, 20, 1.00"
    assert (
        second[0] == "other"
        and second[2] == "1.000; 0.500"
        and second[3].startswith("+0.000 (")
        and "ratio" not in second[3]
    ), "with two games the base's rate may be 0"
    assert second[-1] == "1 of 2, 0, 0.50"
    document, (begin, end) = tmp_path / "results.md", table_markers("study")
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    insert_table(document, table)
    insert_table(document, table)
    assert document.read_text() == f"before\n{begin}\n{table}\n{end}\nafter\n"
    for text in ("", begin, f"{end} {begin}"):
        document.write_text(text)
        with pytest.raises(DataError, match="no place for the table study"):
            insert_table(document, table)
    with pytest.raises(DataError, match="no place for the table study"):
        insert_table(tmp_path / "nowhere.md", table)


def test_the_table_says_what_is_surely_not_inferior():
    later_cell = partial(cell, run_id="20261201-000000-x")
    cells = {
        "base": [later_cell("base", seed, [1] * 38 + [0] * 2) for seed in range(3)],
        "better": [later_cell("better", seed, [1] * 40) for seed in range(3)],
        "worse": [later_cell("worse", seed, [1] * 30 + [0] * 10) for seed in range(3)],
    }
    better, worse = study_table(summarise(cells, "base"), cells, "base").splitlines()[3:5]
    assert ", ratio 1.05 (" in better and "), not inferior |" in better
    assert ", ratio 0.79 (" in worse and "inferior" not in worse


def test_a_planned_method_without_a_cell_has_a_row_that_says_so():
    cells = {name: [cell(name, 0, [1, 0])] for name in ("base", "other")}
    metrics = summarise(cells, "base", None, ["base", "gone", "other"])
    lines = study_table(metrics, cells, "base").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| base", "| gone", "| other"]
    assert lines[3].startswith("| gone | no finished cell |")


def test_a_base_without_a_finished_cell_gives_way_to_the_common_one():
    cells = {
        "base": [cell("base", 0, [1, 0, 0, 0])],
        "other": [cell("other", 0, [1, 1, 1, 0])],
        "gone": [Cell("gone", 0, {}, crash="killed")],
    }
    bases = {"other": "gone"}
    other = study_table(summarise(cells, "base", bases), cells, "base", bases).splitlines()[3]
    assert "| +0.500 (" in other
    metrics = summarise(cells, "base", bases)["other"]
    assert "difference/p_value" not in metrics, "that comparison was not planned"
    assert seed_table(cells, "base", bases).splitlines()[2].startswith("| other | base | +0.500 (")


def test_differences_within_a_seed_are_paired_by_game():
    cells = {
        "base": [cell("base", seed, [1] * 10 + [0] * 30) for seed in (0, 2)],
        "other": [cell("other", 0, [1] * 30 + [0] * 10), cell("other", 1, [1] * 40)],
        "part": [cell("part", 0, [1] * 20 + [0] * 20)],
    }
    expected = paired_difference([True] * 30 + [False] * 10, [True] * 10 + [False] * 30)
    shown = f"+0.500 ({expected.low:+.3f} to {expected.high:+.3f})"
    rows = [row.split(" | ") for row in seed_table(cells, "base", {"part": "other"}).splitlines()]
    assert rows[0] == ["| method", "compared with", "seed 0", "seed 1", "seed 2 |"]
    assert rows[2] == ["| other", "base", shown, "", " |"]
    assert [row[:2] for row in rows[3:]] == [["| part", "base"], ["| part", "other"]]
    assert rows[4][2].startswith("-0.250 (")


def test_the_table_counts_all_real_steps_that_the_models_ever_read():
    """Of pretraining, logs, play and checks. Where the backbone does not say its part, the sum is a bound."""
    logs = {"offline": 1000}
    cells = {
        "base": [replace(cell("base", 0, [1, 0]), recorded_transitions=logs | {"pretraining": 50_000})],
        "other": [
            replace(
                cell("other", 0, [1, 1]),
                recorded_transitions=logs,
                real_interactions=200,
                check_interactions=30,
            )
        ],
    }

    def columns(cells):
        lines = study_table(summarise(cells, "base"), cells, "base").splitlines()
        rows = [[part.strip() for part in line[1:-1].split("|")] for line in lines if line.startswith("|")]
        return {head: [base, other] for head, _, base, other in zip(*rows, strict=True)}, lines[4:]

    table, notes = columns(cells)
    assert table["real steps"] == ["0", "200"]
    column = "all real steps: pretraining, logs, online, checks"
    assert table[f"{column} and evaluation"] == ["51,000", "≥ 1,230"]
    apart = {name: [replace(one, evaluation_interactions=7) for one in own] for name, own in cells.items()}
    assert columns(apart)[0][column] == ["51,000", "≥ 1,230"], "games that evaluate are no part of it"
    assert summarise(apart, "base")["other"]["cost/evaluation_interactions"].value == 7
    assert "cost/evaluation_interactions" not in summarise(cells, "base")["other"]
    assert notes == [
        "",
        "≥: those that the backbone read in its pretraining come on top; its card does not say how many.",
    ]
    older = {name: [replace(one, recorded_transitions={}) for one in own] for name, own in cells.items()}
    assert not any("all real steps" in head for head in columns(older)[0])


def test_each_study_has_its_own_table_in_a_document(tmp_path):
    """Markers have names, so the table of another study stays."""
    cells = {"base": [cell("base", 0, [1, 0]), cell("base", 1, [1, 1])]}
    metrics, document = summarise(cells, "base"), tmp_path / "results.md"
    (begin, end), (other, close) = table_markers("study"), table_markers("study-browser")
    document.write_text(f"{begin}\nfirst\n{end}\n{other}\nold\n{close}\n")
    assert write_study(cells, metrics, None, None, document, "study-browser") == [document]
    head, _, rest = document.read_text().partition(other)
    assert head == f"{begin}\nfirst\n{end}\n" and "| base | 0.750 (" in rest and "old" not in rest


def test_transfer_has_two_tables():
    """Rows are evaluated environments, columns are training environments."""

    def make_estimate(value: float) -> Estimate:
        return Estimate(value, 10, 0.0, 1.0)

    worlds = {"shop": 0.5, "web": 0.25}
    metrics = {
        world: {
            f"transfer/{source}/{metric}": make_estimate(rate if source == world else 0.0)
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
    policies, models = transfer_table(metrics).split("\n\n")
    assert (
        policies.splitlines()[0] == "| held-out games of | policy trained in shop | policy trained in web |"
    )
    rate = "{0:.3f} (0.000 to 1.000), {1} {0:.3f}, n=10"
    assert policies.splitlines()[2] == f"| shop | {rate.format(0.5, 'clone')} | {rate.format(0, 'clone')} |"
    assert (
        models.splitlines()[3]
        == f"| web | {rate.format(0, 'unparsable')} | {rate.format(0.25, 'unparsable')} |"
    )


@pytest.mark.parametrize(("study", "min_cells"), [("study", 45), ("study-browser", 9)])
def test_the_published_table_equals_the_published_cells(study, min_cells):
    """docs/all-tables.md and the study's JSON file are recomputed from the published cells."""
    all_cells = [
        Cell(**json.loads(path.read_text())) for path in sorted((DOCS / "results" / study).glob("*.json"))
    ]
    cells = {
        name: [cell for cell in all_cells if cell.method == name]
        for name in METHODS
        if any(cell.method == name for cell in all_cells)
    }
    metrics = summarise(cells, BASE, BASES, controls=CONTROLS)
    assert study_table(metrics, cells, BASE, BASES) in (DOCS / "all-tables.md").read_text()
    written = json.loads((DOCS / "results" / f"{study}.json").read_text())
    assert written.keys() == metrics.keys() and len(all_cells) >= min_cells
    for name, method_metrics in metrics.items():
        for metric, value in method_metrics.items():
            assert written[name][metric] == pytest.approx(value.to_json()), (name, metric)
