"""The Parquet store on real files."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import DataError
from components.records import SYNTHETIC, Task, Transition
from components.tracking.mlflow_adapter.dataset_schema import describe_parquet
from components.trajectories import parquet_file, replay_log, store
from flows.jobs.collect import move_files


def make_task(number: int = 0) -> Task:
    return Task(
        f"t{number}", "alfworld", "train", "put the mug on the desk", "you see a desk", spec='{"seed": 1}'
    )


def make_transition(step: int = 0, episode: str = "e0", task: str = "t0", **changes) -> Transition:
    return replace(
        Transition(task, episode, step, f"state {step}", "go", f"state {step + 1}", 0.0, False), **changes
    )


def test_work_that_is_done_again_appends_once(tmp_path):
    for _ in range(2):
        replay_log.append_once(tmp_path, [make_transition()], "iteration-0001")
    replay_log.append_once(tmp_path, [make_transition(1)], "iteration-0002")
    assert [step.step for step in replay_log.read_log(tmp_path)] == [0, 1]


def test_tasks_and_transitions_come_back_equal_and_in_order(tmp_path):
    tasks = [make_task(2), make_task(1)]
    transitions = [
        make_transition(1, reward=1.0, done=True, source=SYNTHETIC),
        make_transition(0, reasoning="ünïcödé\n<success>"),
    ]
    store.write_tasks(tmp_path / "deep" / "tasks.parquet", tasks)
    store.write_transitions(tmp_path / "transitions.parquet", transitions)
    assert store.read_tasks(tmp_path / "deep" / "tasks.parquet") == tasks
    read = store.read_transitions(tmp_path / "transitions.parquet")
    assert read == transitions and type(read[0].step) is int and type(read[0].done) is bool


def test_only_an_unknown_outcome_adds_a_column(tmp_path):
    known = [make_transition(), make_transition(1)]
    unknown = [replace(step, outcome_known=False) for step in known]
    for name, steps in (("known", known), ("unknown", known + unknown)):
        path = tmp_path / f"{name}.parquet"
        store.write_transitions(path, steps)
        assert store.read_transitions(path) == steps
        assert ("outcome_known" in pq.read_schema(path).names) == (name == "unknown")
        replay_log.append_transitions(tmp_path / name, steps, "real")
        assert replay_log.read_log(tmp_path / name) == steps
        (shard,) = (tmp_path / name).glob("*.parquet")
        assert shard.read_bytes() == path.read_bytes()


def test_the_shards_of_a_table_have_the_same_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SHARD_ROWS", 2)
    steps = [make_transition(step, outcome_known=step < 4) for step in range(5)]
    store.write_transitions(tmp_path / "a.parquet", iter(steps))
    assert store.read_transitions(tmp_path / "a.parquet") == steps


UNWRITABLE = make_transition(5, state="\ud800")


class TestShards:
    """A table of many rows is a directory of files."""

    @pytest.fixture(autouse=True)
    def three_rows_a_file(self, monkeypatch):
        monkeypatch.setattr(store, "SHARD_ROWS", 3)

    @staticmethod
    def written(path, count):
        transitions = [make_transition(step) for step in range(count)]
        store.write_transitions(path, iter(transitions))
        assert store.read_transitions(path) == transitions
        return {file.name: file.read_bytes() for file in path.glob("*")} if path.is_dir() else {}

    def test_further_rows_leave_the_shards_before_as_they_are(self, tmp_path):
        path = tmp_path / "train.parquet"
        first = self.written(path, 7)
        assert sorted(first) == [f"0000{number}-of-00003.parquet" for number in (1, 2, 3)]
        second = self.written(path, 11)
        assert len(second) == 4
        kept = set(first.values()) & set(second.values())
        assert kept == {first[f"0000{number}-of-00003.parquet"] for number in (1, 2)}
        assert [file.name for file in tmp_path.iterdir()] == ["train.parquet"]

    def test_a_file_replaces_a_directory_and_the_other_way_round(self, tmp_path):
        path = tmp_path / "train.parquet"
        for count in (3, 4, 2):
            assert bool(self.written(path, count)) == (count > 3)
            assert path.is_dir() == (count > 3)

    def test_an_empty_table_is_one_file(self, tmp_path):
        store.write_transitions(tmp_path / "none.parquet", [])
        with pytest.raises(DataError, match="has no rows"):
            store.read_transitions(tmp_path / "none.parquet")

    def test_a_missing_a_damaged_and_a_foreign_shard_are_refused(self, tmp_path):
        path = tmp_path / "train.parquet"
        self.written(path, 9)
        store.write_tasks(path / "00002-of-00003.parquet", [make_task()])
        with pytest.raises(DataError, match="have different columns"):
            store.read_transitions(path)
        (path / "00002-of-00003.parquet").write_bytes(b"PAR1")
        with pytest.raises(DataError, match="00002-of-00003.parquet .4 bytes. is damaged"):
            store.read_transitions(path)
        (path / "00002-of-00003.parquet").unlink()
        with pytest.raises(DataError, match="has 2 files, and 00002-of-00003.parquet is not among them"):
            store.read_transitions(path)

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_every_lost_shard_is_missed(self, tmp_path, lost):
        path = tmp_path / "train.parquet"
        self.written(path, 9)
        (path / f"0000{lost}-of-00003.parquet").unlink()
        with pytest.raises(DataError, match=f"has 2 files, and 0000{lost}-of-00003"):
            store.read_transitions(path)

    def test_a_failure_leaves_the_earlier_table_whole(self, tmp_path):
        path = tmp_path / "train.parquet"
        self.written(path, 7)
        with pytest.raises(DataError, match="cannot be written"):
            store.write_transitions(path, [make_transition(step) for step in range(5)] + [UNWRITABLE])
        assert len(store.read_transitions(path)) == 7
        assert [file.name for file in tmp_path.iterdir()] == ["train.parquet"]

    def test_the_bound_on_the_bytes_holds_for_all_files_together(self, tmp_path, monkeypatch):
        path = tmp_path / "train.parquet"
        self.written(path, 9)
        monkeypatch.setattr(parquet_file, "MAX_TABLE_BYTES", 700)
        with pytest.raises(DataError, match="00003-of-00003.parquet .* brings its table above 700 bytes"):
            store.read_transitions(path)

    def test_mlflow_counts_the_rows_of_all_files(self, tmp_path):
        path = tmp_path / "train.parquet"
        self.written(path, 7)
        schema, profile = describe_parquet(path)
        assert '"num_rows": 7' in profile and '"name": "state"' in schema

    def test_staged_tables_are_moved_whole(self, tmp_path):
        staged, data = tmp_path / "staged", tmp_path / "data"
        for count, more in ((7, 2), (2, 7), (8, 8)):
            self.written(staged / "trajectories" / "train.parquet", count)
            self.written(staged / "trajectories" / "fidelity.parquet", more)
            (staged / "settings.json").write_text(str(count))
            move_files(staged, data)
            assert len(store.read_transitions(data / "trajectories" / "train.parquet")) == count
            assert len(store.read_transitions(data / "trajectories" / "fidelity.parquet")) == more
            assert (data / "settings.json").read_text() == str(count)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(), st.integers(0, 2**31), st.floats(allow_nan=False), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_any_text_and_number_survives_with_identical_bytes(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    try:
        transitions = [
            make_transition(step, state=text, reward=reward, done=done) for text, step, reward, done in rows
        ]
        store.write_transitions(folder / "a.parquet", transitions)
    except DataError as error:  # a lone surrogate is not text
        assert "surrogates not allowed" in str(error)
        return
    store.write_transitions(folder / "b.parquet", transitions)
    assert (folder / "a.parquet").read_bytes() == (folder / "b.parquet").read_bytes()
    assert store.read_transitions(folder / "a.parquet") == transitions


def test_every_flipped_byte_is_detected_or_harmless(tmp_path):
    path, transitions = tmp_path / "a.parquet", [make_transition(step) for step in range(3)]
    store.write_transitions(path, transitions)
    good, detected = path.read_bytes(), 0
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            assert store.read_transitions(path) == transitions
        except DataError:
            detected += 1
    assert detected > len(good) / 7 / 2


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a table, but long enough to be one PAR1", None])
def test_a_damaged_or_truncated_file_is_named(tmp_path, content):
    path = tmp_path / "a.parquet"
    store.write_transitions(path, [make_transition()])
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(DataError, match=r"a.parquet \(\d.* bytes\) is damaged or no Parquet file.*dvc pull"):
        store.read_transitions(path)


def test_missing_and_empty_files_are_reported_with_advice(tmp_path):
    with pytest.raises(
        DataError, match=r"There is no file .*a.parquet. Type `dvc pull` .* `dreamgym collect`"
    ):
        store.read_tasks(tmp_path / "a.parquet")
    store.write_tasks(tmp_path / "a.parquet", [])
    with pytest.raises(DataError, match="a.parquet has no rows"):
        store.read_tasks(tmp_path / "a.parquet")


def test_a_small_file_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    """The same long text in every row, written once: 300 MB in a few kilobytes."""
    monkeypatch.setattr(parquet_file, "MAX_TABLE_BYTES", 1 << 27)
    path = tmp_path / "bomb.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"state": text}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"brings its table above 134,217,728 bytes of rows.*Take fewer"):
        parquet_file.read_table(path)


def test_other_columns_types_and_nulls_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    store.write_transitions(path, [make_transition(), make_transition(1)])
    frame = parquet_file.read_frame(path)
    frame.drop(columns="state").assign(extra=1, step=["0", "1"]).to_parquet(path)
    with pytest.raises(
        DataError,
        match=r"step is .*string.*; state is missing.*Expected step: an integer; state: a column of that "
        r"name",
    ):
        store.read_transitions(path)
    frame.assign(action=["go", None]).to_parquet(path)
    with pytest.raises(DataError, match=r"missing values in action \(1\)"):
        store.read_transitions(path)
    frame.astype({"step": "int32", "reward": "float32"}).to_parquet(path)  # other widths, the same values
    assert store.read_transitions(path) == [make_transition(), make_transition(1)]


def test_read_frame_is_raw(tmp_path):
    pd.DataFrame({"anything": [1]}).to_parquet(tmp_path / "a.parquet")
    assert list(parquet_file.read_frame(tmp_path / "a.parquet").columns) == ["anything"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, code):
    path = tmp_path / "a.parquet"
    store.write_transitions(path, [make_transition()])

    def full(descriptor: int) -> None:  # filling a real disk would hit everybody on the machine
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        DataError,
        match=r"disk is full: .*a.parquet needs [\d,]+ bytes, [\d,]+ bytes are free. Nothing that was there",
    ):
        store.write_transitions(path, [make_transition(), make_transition(1)])
    assert store.read_transitions(path) == [make_transition()]
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_an_unwritable_path_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        store.write_tasks(tmp_path / "file" / "a.parquet", [make_task()])


def test_the_log_only_grows_and_keeps_the_order_of_appending(tmp_path):
    assert replay_log.read_log(tmp_path / "replay") == []
    for number in range(11):
        path = replay_log.append_transitions(
            tmp_path / "replay", [make_transition(episode=f"e{number}")], f"dream-{number}"
        )
    assert path.name == "00011-dream-10.parquet"
    replay_log.append_transitions(tmp_path / "replay", [], "nothing")
    assert [transition.episode_id for transition in replay_log.read_log(tmp_path / "replay")] == [
        f"e{number}" for number in range(11)
    ]
    assert [transition.episode_id for transition in replay_log.read_log(tmp_path / "replay", shards=2)] == [
        "e0",
        "e1",
    ]


def test_a_shard_is_never_rewritten(tmp_path):
    path = replay_log.append_transitions(tmp_path, [make_transition()], "real")
    before = path.read_bytes()
    replay_log.append_transitions(tmp_path, [make_transition(1)], "dream")
    with pytest.raises(DataError, match=r"already has .*00001-real.parquet.*never rewritten"):
        replay_log.append_transitions(tmp_path, [make_transition(2)], "real")
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 2
    with pytest.raises(DataError, match="'../x' is not a plain file name"):
        replay_log.append_transitions(tmp_path, [], "../x")
    path.write_bytes(b"")
    with pytest.raises(DataError, match="00001-real.parquet .* is damaged"):
        replay_log.read_log(tmp_path)


def test_a_shard_of_another_process_is_not_overwritten(tmp_path, monkeypatch):
    path = replay_log.append_transitions(tmp_path, [make_transition()], "x")
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: iter(())
    )  # the other process has not written it yet
    with pytest.raises(DataError, match="already has"):
        replay_log.append_transitions(tmp_path, [make_transition(1)], "x")
    monkeypatch.undo()
    assert store.read_transitions(path) == [make_transition()]
    assert list(tmp_path.iterdir()) == [path]


def test_trajectories_are_grouped_in_order_of_appearance_and_sorted():
    transitions = [make_transition(1, "b"), make_transition(0, "a", "t1"), make_transition(0, "b")]
    first, second = store.trajectories([make_task(0), make_task(1)], transitions)
    assert [step.step for step in first.steps] == [0, 1] and first.task.id == "t0"
    assert second.steps[0].episode_id == "a" and second.task.id == "t1"


@pytest.mark.parametrize(
    ("transitions", "words"),
    [
        ([make_transition(task="t9")], "Episode e0 plays the unknown task 't9'"),
        ([make_transition(), make_transition(1, task="t1")], "transitions of the tasks t0, t1"),
        ([make_transition(), make_transition(2)], r"has the steps \[0, 2\]. Expected 0 to 1"),
        ([make_transition(), make_transition()], r"has the steps \[0, 0\]"),
    ],
)
def test_an_inconsistent_episode_is_refused(transitions, words):
    with pytest.raises(DataError, match=words):
        store.trajectories([make_task(0), make_task(1)], transitions)


def test_the_layout_of_data():
    layout = store.DataLayout.of(Path("here"), "alfworld")
    assert str(layout.tasks("test")) == "here/data/alfworld/tasks/test.parquet"
    assert str(layout.trajectories("train")) == "here/data/alfworld/trajectories/train.parquet"
    assert (str(layout.replay), str(layout.backbone)) == (
        "here/data/alfworld/replay",
        "here/data/alfworld/backbone",
    )
