"""Validation with the real Great Expectations on Parquet files. One run tests all rules, with one fault per
episode.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from components.config import DataConfig
from components.errors import DataError
from components.records import Task, Transition
from components.trajectories import parquet_file, store
from components.trajectories.validation import ValidationReport, examples, validate
from flows.cli.tables.validation_table import print_validation
from flows.printing.output import Output

LIMIT = DataConfig.max_text_chars
STEPS = 4


def _task(name: str, environment: str = "alfworld") -> Task:
    return Task(name, environment, "train", "put the mug on the desk", "s0")


TASKS = {"train": [_task("t"), _task("foreign", "chess")], "fidelity": [_task("f")], "test": [_task("x")]}


def make_episode(name: str, **changes: Any) -> list[dict]:
    """A valid success of four steps, with `changes` on its third row."""
    steps = [
        Transition("t", name, n, f"s{n}", f"go {n}", f"s{n + 1}", float(n == STEPS - 1), n == STEPS - 1)
        for n in range(STEPS)
    ]
    rows = [dict(vars(step)) for step in steps]
    rows[2].update(changes)
    return rows


def of_task(name: str, task: str) -> list[dict]:
    return [row | {"task_id": task} for row in make_episode(name)]


def broken_episodes() -> dict[str, tuple[list[dict], str]]:
    """Name -> (rows, the rule that they break)."""
    order = make_episode("order")
    order[1], order[2] = order[2], order[1]
    twice = make_episode("twice")
    hole = make_episode("hole")
    del hole[1]
    late = make_episode("late")
    del late[0]
    elsewhere, endless = make_episode("elsewhere"), make_episode("endless")
    elsewhere[0]["state"], endless[-1]["done"] = "nonsense", False
    return {
        "nan_reward": (make_episode("nan_reward", reward=math.nan), "reward_is_present"),
        "big_reward": (make_episode("big_reward", reward=1.5), "reward_value (reward: '1.5')"),
        "negative_reward": (make_episode("negative_reward", reward=-1.0), "reward_value"),
        "half_reward": (make_episode("half_reward", reward=0.5), "reward_value"),
        "early_reward": (make_episode("early_reward", reward=1.0), "reward_is_last"),
        "early_end": (make_episode("early_end", done=True), "end_is_last (done: 'True')"),
        "order": (order, "step_follows (step: '2.0')"),
        "hole": (hole, "step_follows"),
        "late": (late, "step_follows"),
        "negative_step": (make_episode("negative_step", step=-1), "step_follows"),
        "twice": (twice[:3] + twice[2:], "step_is_unique"),
        "no_step": (make_episode("no_step", step=None), "step_is_present"),
        "no_done": (make_episode("no_done", done=None), "done_is_present"),
        "no_state": (make_episode("no_state", state=None), "state_is_present"),
        "empty_action": (make_episode("empty_action", action=""), "action_length (action: '')"),
        "long_action": (make_episode("long_action", action="x" * (LIMIT + 1)), "action_length"),
        "blank_action": (make_episode("blank_action", action="   "), "action_has_words (action: '   ')"),
        "elsewhere": (elsewhere, "start_is_the_tasks (state: 'nonsense')"),
        "endless": (endless, "reward_ends (reward: '1.0')"),
        "jump": (make_episode("jump", state="elsewhere"), "state_follows (state: 'elsewhere')"),
        "two_tasks": (make_episode("two_tasks", task_id="foreign"), "episode_has_one_task"),
        "foreign": (of_task("foreign", "foreign"), "environment_is_known"),
        "unknown": (of_task("unknown", "nobody"), "task_is_known (task_id: 'nobody')"),
        "fidelity": (of_task("fidelity", "f"), "task_is_not_held_out (task_id: 'f')"),
        "test": (of_task("test", "x"), "task_is_not_held_out"),
        "source": (make_episode("source", source="imagined"), "source_value"),
    }


BROKEN = broken_episodes()


def write(path: Path, rows: list[dict]) -> Path:
    """Write a file as another program may do it: with nulls and wider integers, unlike the store."""
    pd.DataFrame(rows).astype({"step": "Int64", "done": "boolean"}).to_parquet(path)
    return path


def good_episodes(count: int) -> list[dict]:
    return [row for number in range(count) for row in make_episode(f"good{number}")]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> ValidationReport:
    """All broken episodes among good ones; one of these spells markers, one has texts of maximum length."""
    folder = tmp_path_factory.mktemp("validation")
    marked, longest = (
        make_episode("marked", action="say <success>"),
        make_episode("longest", action="x" * LIMIT),
    )
    broken = [row for rows, _ in BROKEN.values() for row in rows]
    rows = good_episodes(3) + broken + marked + longest
    config = DataConfig(quarantine_share=0.9)
    names = {
        "title": "alfworld train, data 0123",
        "run_name": "20261126-091140-9999",
    }  # as a time of day it would be impossible
    return validate(write(folder / "raw.parquet", rows), TASKS, config, folder / "out", **names)


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_quarantined_with_its_reason_and_its_whole_episode(report, name):
    rows, rule = BROKEN[name]
    aside = report.quarantined[report.quarantined["episode_id"] == name]
    assert len(aside) == len(rows)
    assert aside["reason"].str.contains(rule, regex=False).any()


def test_the_remaining_episodes_are_clean_and_unchanged(report):
    clean = store.read_transitions(report.clean_path)
    assert {step.episode_id for step in clean} == {"good0", "good1", "good2", "marked", "longest"}
    assert clean[:STEPS] == [Transition(**row) for row in make_episode("good0")]
    assert report.valid_rows == len(clean) == 5 * STEPS and report.rows == len(clean) + len(
        report.quarantined
    )
    assert len(store.trajectories(TASKS["train"], clean)) == 5


def test_the_share_counts_broken_rows_and_not_the_rest_of_their_episodes(report):
    is_valid_row = report.quarantined["reason"] == "another step of the episode is invalid"
    assert report.share == pytest.approx((~is_valid_row).sum() / report.rows)
    assert is_valid_row.any()


def test_the_quarantine_is_a_file(report):
    saved = parquet_file.read_frame(report.clean_path.with_name("quarantine.parquet"))
    assert saved["reason"].tolist() == report.quarantined["reason"].tolist()


def test_markers_are_counted_and_not_an_error(report):
    check = next(check for check in report.checks if check.name == "markers_spelled")
    assert (check.success, check.unexpected) == (True, 1)


def test_every_rule_is_in_the_data_docs_and_reports_its_fault(report):
    failed = {check.name for check in report.checks if not check.success}
    assert failed == {rule.split(" ")[0] for _, rule in BROKEN.values()}
    pages = "".join(page.read_text() for page in report.data_docs.parent.rglob("*.html"))
    assert report.data_docs.is_file()
    for words in (
        "in the order of the file",
        "next state of the step before it",
        "held out",
        "Only the last step",
        "recorded twice",
    ):
        assert words in pages


def test_data_docs_need_no_other_host_and_name_data_set_and_run(report):
    pages = {page: page.read_text() for page in report.data_docs.parent.rglob("*.html")}
    assert len(pages) == 5
    for page, text in pages.items():
        assert not re.search(r"(?:src|href)=.https?:|<script|<link|url\(", text), page
        assert "<title>alfworld train, data 0123</title>" in text and "<style>" in text, page
    first = pages[report.data_docs]
    assert (
        "20261126-091140-9999" in first
        and "A reward is 0.0 or 1.0." in first
        and f"<td>{report.rows}</td>" in first
    )
    links = re.findall(r'href="([^"#]+)"', first)
    assert len(links) == 4 and all((report.data_docs.parent / link).is_file() for link in links)
    assert any("/run-20261126-091140-9999/" in link for link in links)


def test_each_rule_is_a_sentence(report):
    assert all(check.sentence.endswith(".") and " " in check.sentence for check in report.checks)
    assert len({check.sentence for check in report.checks}) == len(report.checks)


def test_examples_show_different_episodes_and_rules(report):
    shown = examples(report.quarantined)
    episodes, rules = [line.split()[1] for line in shown], [line.split(": ")[1].split()[0] for line in shown]
    assert len(shown) == 5 and len(set(episodes)) == 5 and len(set(rules)) == 5
    aside = report.quarantined[report.quarantined["episode_id"].isin(["big_reward", "half_reward"])]
    assert [line.split()[1] for line in examples(aside)] == ["big_reward", "half_reward"]
    assert examples(aside)[0].startswith(
        "episode big_reward step 2: reward_value (reward: '1.5'): A reward is 0.0 or 1.0; reward_ends"
    )


def test_the_printed_report_shows_rules_as_full_sentences(report):
    console = Console(record=True, width=80, file=io.StringIO())
    page = Output(console)
    print_validation(page, "train", report)
    text = console.export_text()
    assert "broken A reward is 0.0 or 1.0. [3 rows] (reward_value)" in text
    assert "kept   Each column of a transition is there" in text and "Set aside: " in text
    assert str(report.data_docs) in text and "quarantine.parquet" in text
    aside = page.data["train"]["set_aside"]
    assert len(aside) == len(report.quarantined)
    assert ("no_step", None) in [(row["episode"], row["step"]) for row in aside]


def test_clean_data_pass_completely_and_silently(tmp_path, capfd):
    transitions = [Transition(**row) for row in good_episodes(5)]
    store.write_transitions(tmp_path / "raw.parquet", transitions)
    report = validate(tmp_path / "raw.parquet", TASKS, DataConfig(), tmp_path / "out")
    assert (report.rows, report.valid_rows, report.share, len(report.quarantined)) == (20, 20, 0.0, 0)
    assert all(check.success for check in report.checks)
    assert report.clean_path.read_bytes() == (tmp_path / "raw.parquet").read_bytes()
    output = capfd.readouterr()
    assert output.out + output.err == ""


def test_an_unknown_outcome_stays_unknown_in_the_clean_data(tmp_path):
    steps = [Transition(**row) for row in good_episodes(2)]
    steps[-2:] = [replace(steps[-2], outcome_known=False)]
    store.write_transitions(tmp_path / "raw.parquet", steps)
    report = validate(tmp_path / "raw.parquet", TASKS, DataConfig(), tmp_path / "out")
    assert store.read_transitions(report.clean_path) == steps


def test_a_dollar_sign_in_a_directory_is_not_a_variable(tmp_path, monkeypatch):
    """Great Expectations replaces `$NAME` in its settings, so that pages went to another directory, or there
    was a traceback.
    """
    monkeypatch.setenv("other", "another")
    raw = write(tmp_path / "raw.parquet", good_episodes(2))
    names = ["cost $k", "$other", "${other}", "$"]
    for name in names:
        assert validate(raw, TASKS, DataConfig(), tmp_path / name).data_docs.is_file()
    assert {path.name for path in tmp_path.iterdir()} == {*names, raw.name}


def test_tasks_of_another_split_are_held_out(tmp_path):
    store.write_transitions(
        tmp_path / "raw.parquet", [replace(Transition(**row), task_id="f") for row in good_episodes(2)]
    )
    assert (
        validate(tmp_path / "raw.parquet", TASKS, DataConfig(), tmp_path / "out", split="fidelity").valid_rows
        == 8
    )


def test_too_many_broken_rows_stop_the_run_and_are_named(tmp_path):
    rows = good_episodes(5) + make_episode("bad", reward=2.0)
    path = write(tmp_path / "raw.parquet", rows)
    assert validate(path, TASKS, DataConfig(quarantine_share=0.05), tmp_path / "out").valid_rows == 20
    with pytest.raises(DataError) as caught:
        validate(path, TASKS, DataConfig(quarantine_share=0.02), tmp_path / "out")
    message = str(caught.value)
    assert "1 of 24 rows" in message and "episode bad step 2: reward_value (reward: '2.0')" in message
    assert "at most 2.0% (data.quarantine_share)" in message and "index.html" in message
    assert len(parquet_file.read_frame(tmp_path / "out" / "quarantine.parquet")) == STEPS
    assert not (tmp_path / "out" / "transitions.parquet").exists()  # nor the one of the run before


def test_other_columns_are_named_and_shown_in_the_data_docs(tmp_path):
    frame = pd.DataFrame(good_episodes(1)).drop(columns="done").assign(reward="high", note="?")
    frame.to_parquet(tmp_path / "raw.parquet")
    with pytest.raises(
        DataError,
        match=r"reward is .*string.*; done is missing\. Expected reward: a number; done: a column of that "
        r"name",
    ):
        validate(tmp_path / "raw.parquet", TASKS, DataConfig(), tmp_path / "out")
    assert (tmp_path / "out" / "data_docs" / "index.html").is_file()
