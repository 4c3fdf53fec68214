"""Tables of pandas, Spark and Arrow: the same values are read from any type, and a lossy cast is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_store import make_transition

from components.config import DataConfig
from components.errors import DataError
from components.records import Task
from components.trajectories import parquet_file, store
from components.trajectories.columns import bytes_of
from components.trajectories.validation import validate

TASKS = [Task("t0", "alfworld", "train", "put the mug on the desk", "state 0")]
STEPS = [
    make_transition(0, behaviour="expert"),
    make_transition(1, behaviour="expert"),
    make_transition(2, behaviour="expert", reward=1.0, done=True),
]


def table_of(**columns) -> pa.Table:
    """The three steps as a table, with some columns replaced."""
    plain = {name: [getattr(step, name) for step in STEPS] for name in store.TRANSITION_SCHEMA.names}
    return pa.table(plain | columns)


def test_a_file_without_thoughts_is_read(tmp_path):
    """Files of earlier versions and of other programs have none."""
    path = tmp_path / "a.parquet"
    pq.write_table(table_of().drop_columns(["thought"]), path)
    assert store.read_transitions(path) == STEPS and {step.thought for step in STEPS} == {""}
    pq.write_table(table_of(thought=["find mug", "", "put it"]), path)
    assert [step.thought for step in store.read_transitions(path)] == ["find mug", "", "put it"]


def texts(name):
    return [getattr(step, name) for step in STEPS]


SAME = {
    "dictionary": {"behaviour": pa.array(texts("behaviour")).dictionary_encode()},
    "dictionary of large strings": {"state": pa.array(texts("state"), pa.large_string()).dictionary_encode()},
    "large string": {"state": pa.array(texts("state"), pa.large_string())},
    "string view": {"next_state": pa.array(texts("next_state"), pa.string_view())},
    "bytes in UTF-8": {"action": pa.array([text.encode() for text in texts("action")], pa.binary())},
    "reward int64": {"reward": pa.array([0, 0, 1], pa.int64())},
    "reward bool": {"reward": pa.array([False, False, True])},
    "reward decimal": {"reward": pa.array([Decimal("0.0"), Decimal("0.0"), Decimal("1.0")])},
    "reward float16": {"reward": pa.array([0, 0, 1], pa.float16())},
    "step float64": {"step": pa.array([0.0, 1.0, 2.0])},
    "step int32": {"step": pa.array([0, 1, 2], pa.int32())},
    "step uint64": {"step": pa.array([0, 1, 2], pa.uint64())},
    "step decimal": {"step": pa.array([Decimal("0.00"), Decimal("1.00"), Decimal("2.00")])},
    "step dictionary": {"step": pa.array([0, 1, 2]).dictionary_encode()},
    "done int8": {"done": pa.array([0, 0, 1], pa.int8())},
    "done float": {"done": pa.array([0.0, 0.0, 1.0])},
    "no reasoning at all": {"reasoning": pa.nulls(3)},
    "no run at all": {"run_id": pa.array([None] * 3, pa.string())},
}


@pytest.mark.parametrize("kind", SAME)
def test_a_cast_without_loss_gives_the_same_transitions(tmp_path, kind):
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(**SAME[kind]), path)
    expected = [make_transition(0), make_transition(1), make_transition(2, reward=1.0, done=True)]
    expected = [type(step)(**(vars(step) | {"behaviour": "expert"})) for step in expected]
    if kind == "no reasoning at all":
        expected = [type(step)(**(vars(step) | {"reasoning": ""})) for step in expected]
    read = store.read_transitions(path)
    assert read == expected
    assert [type(value) for value in vars(read[2]).values()] == [
        type(value) for value in vars(expected[2]).values()
    ]


def test_a_table_with_all_these_types_passes_validation(tmp_path):
    """A frame of pandas with an index of its own, categories, time stamps and whole floats."""
    frame = table_of().to_pandas()
    frame = frame.assign(
        behaviour=frame["behaviour"].astype("category"),
        reward=frame["reward"].astype("int64"),
        step=frame["step"].astype("float64"),
        done=frame["done"].astype("int8"),
        policy_version=None,
        recorded_at=datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC),
    )
    frame.index = pd.Index([7, 8, 9])
    frame.to_parquet(tmp_path / "a.parquet")
    report = validate(tmp_path / "a.parquet", {"train": TASKS}, DataConfig(), tmp_path / "out")
    assert report.valid_rows == 3 and report.columns.unread == ["recorded_at", "__index_level_0__"]
    assert report.columns.casts["step"] == "double" and set(report.columns.casts) >= {
        "behaviour",
        "reward",
        "step",
        "done",
    }
    assert store.read_transitions(report.clean_path) == STEPS


LOST = {
    "step 1.5": ({"step": pa.array([0.0, 1.5, 2.0])}, r"step is 1.5 in row 1 \(double\)", "step: an integer"),
    "step infinite": (
        {"step": pa.array([0.0, float("inf"), 2.0])},
        "step is inf in row 1",
        "step: an integer",
    ),
    "step bool": ({"step": pa.array([False, True, True])}, "step is False in row 0", "step: an integer"),
    "step text": ({"step": pa.array(["0", "1", "2"])}, "step is string", "step: an integer"),
    "step too large": (
        {"step": pa.array([0, 1, 2**64 - 1], pa.uint64())},
        "step is 18446744073709551615 in row 2",
        "an integer",
    ),
    "reward decimal": (
        {"reward": pa.array([Decimal("0"), Decimal("0"), Decimal("0.1")])},
        "reward is 0.1 in row 2",
        "a number",
    ),
    "reward text": ({"reward": pa.array(["low", "low", "high"])}, "reward is string", "reward: a number"),
    "done 2": ({"done": pa.array([0, 0, 2])}, "done is 2 in row 2", "done: true or false"),
    "done text": ({"done": pa.array(["no", "no", "yes"])}, "done is string", "done: true or false"),
    "task_id integer": ({"task_id": pa.array([1, 1, 1])}, "task_id is int64", "task_id: text"),
    "state bytes": ({"state": pa.array([b"a", b"\xff", b"c"])}, "state is .* in row 1", "text in UTF-8"),
    "state list": ({"state": pa.array([["a"], ["b"], ["c"]])}, "state is list", "state: text"),
    "time stamps": (
        {"step": pa.array([datetime.datetime(2026, 1, 1)] * 3)},
        "step is timestamp",
        "step: an integer",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_what_no_cast_keeps_is_refused_with_column_value_and_cure(tmp_path, name):
    columns, found, expected = LOST[name]
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(**columns), path)
    with pytest.raises(DataError, match=f"a.parquet cannot be read without changing it: {found}") as raised:
        store.read_transitions(path)
    assert expected in raised.value.expected and "The file is unchanged" in raised.value.next_step
    assert "collect" not in str(raised.value)


def test_a_missing_column_names_the_one_that_looks_like_it(tmp_path):
    table = table_of()
    pq.write_table(
        table.rename_columns(["reasonning" if name == "reasoning" else name for name in table.column_names]),
        tmp_path / "a.parquet",
    )
    with pytest.raises(
        DataError,
        match=r"reasoning is missing \(there is reasonning\).*rename\(columns={'reasonning': 'reasoning'}",
    ):
        store.read_transitions(tmp_path / "a.parquet")


def test_a_column_that_stands_twice_is_refused(tmp_path):
    table = table_of()
    pq.write_table(table.append_column("state", table["state"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="state occurs 2 times"):
        store.read_transitions(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", ["dictionary", "string_view"])
def test_shared_texts_count_once_a_row(kind):
    """A small file whose rows share one long text would otherwise be unpacked to more than there is
    memory.
    """
    array = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 10_000]))
    if kind == "string_view":
        array = array.cast(pa.string()).cast(pa.string_view())
    assert bytes_of(pa.record_batch({"state": array})) >= 10_000_000


def test_a_small_file_of_categories_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "MAX_TABLE_BYTES", 1 << 27)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"state": text}), tmp_path / "bomb.parquet", compression="zstd")
    with pytest.raises(DataError, match=r"its table above 134,217,728 bytes of rows"):
        parquet_file.read_table(tmp_path / "bomb.parquet")
