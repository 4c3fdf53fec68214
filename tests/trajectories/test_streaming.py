"""Tables that are read batch by batch: the episodes of one read whole, in a memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import make_task, make_transition, shipped

from components.errors import DataError
from components.records import Task, Trajectory, Transition
from components.trajectories import parquet_file, replay_log, store

RECORDED = [(world, split) for world in ("alfworld", "browser", "webshop") for split in ("train", "fidelity")]


def read_whole(tasks: list[Task], path: Path) -> list[Trajectory]:
    """Return the episodes of a table that is in memory as a whole, in the order of their first rows."""
    episodes: dict[str, list[Transition]] = {}
    for row in parquet_file.read_table(path).to_pylist():
        step = Transition(**({"thought": ""} | row))
        episodes.setdefault(step.episode_id, []).append(step)
    task_of = {task.id: task for task in tasks}
    return [
        Trajectory(task_of[steps[0].task_id], tuple(sorted(steps, key=lambda step: step.step)))
        for steps in episodes.values()
    ]


@pytest.mark.parametrize(("world", "split"), RECORDED)
def test_recorded_data_gives_the_episodes_of_a_table_read_whole(world, split):
    tasks = store.read_tasks(shipped(f"data/{world}/tasks", f"{split}.parquet"))
    path = shipped(f"data/{world}/trajectories", f"{split}.parquet")
    assert list(store.iter_episodes(tasks, path)) == read_whole(tasks, path)


@pytest.fixture
def small_parts(monkeypatch):
    """Files of 50 rows, read in batches of 7."""
    monkeypatch.setattr(store, "SHARD_ROWS", 50)
    monkeypatch.setattr(parquet_file, "_BATCH_ROWS", 7)


@pytest.mark.parametrize("order", ["episode by episode", "in turns", "any"])
@pytest.mark.parametrize("seed", range(5))
def test_episodes_over_batches_and_files_come_in_the_order_of_their_begins(
    tmp_path, small_parts, order, seed
):
    rng = random.Random(seed)
    steps = [
        make_transition(step, f"e{n}", f"t{n % 3}") for n in range(30) for step in range(rng.randint(1, 20))
    ]
    if order == "in turns":
        steps.sort(key=lambda step: step.step)
    elif order == "any":
        rng.shuffle(steps)
    path = tmp_path / "train.parquet"
    store.write_transitions(path, steps)
    assert len(list(path.iterdir())) > 3
    tasks = [make_task(number) for number in range(3)]
    found = list(store.iter_episodes(tasks, path))
    assert found == read_whole(tasks, path) == store.trajectories(tasks, steps)
    assert store.read_transitions(path) == steps


def test_an_episode_waits_for_those_that_began_before_it(tmp_path, monkeypatch):
    """Rows: the begin of a, all of b, all of c, the end of a, all of d."""
    rows = [("a", 0), ("b", 0), ("b", 1), ("c", 0), ("a", 1), ("d", 0)]
    monkeypatch.setattr(parquet_file, "_BATCH_ROWS", 1)
    store.write_transitions(tmp_path / "a.parquet", [make_transition(step, name) for name, step in rows])
    read: list[str] = []

    def watched(*given, **options) -> Iterator[Transition]:
        for step in original(*given, **options):
            read.append(step.episode_id)
            yield step

    original = store.iter_transitions
    monkeypatch.setattr(store, "iter_transitions", watched)
    episodes = store.iter_episodes([make_task()], tmp_path / "a.parquet")
    seen = [(episode.steps[0].episode_id, len(read)) for episode in episodes]
    assert seen == [("a", 5), ("b", 5), ("c", 5), ("d", 6)]


def test_a_pass_over_many_transitions_takes_little_memory(tmp_path, monkeypatch):
    """As a list, these transitions are 25 MB of Python objects."""
    count, most = 100_000, 6 << 20
    monkeypatch.setattr(store, "SHARD_ROWS", 30_000)
    path = tmp_path / "train.parquet"
    store.write_transitions(
        path, (make_transition(number % 20, f"episode {number // 20}") for number in range(count))
    )
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        steps = arrow_peak = 0
        for episode in store.iter_episodes([make_task()], path):
            steps += len(episode.steps)
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes() - arrow)
        assert steps == count
        assert tracemalloc.get_traced_memory()[1] < most
        assert arrow_peak < most
    finally:
        tracemalloc.stop()


def as_table(steps: list[Transition], **columns) -> pa.Table:
    """A table of the steps with some columns replaced."""
    return pa.table(
        {name: [getattr(one, name) for one in steps] for name in store.TRANSITION_SCHEMA.names} | columns
    )


STEPS = [make_transition(step) for step in range(30)]


def test_missing_values_are_counted_in_the_whole_table(tmp_path, small_parts):
    actions = ["go" if number not in (9, 10, 29) else None for number in range(30)]
    states = ["s" if number != 28 else None for number in range(30)]
    pq.write_table(as_table(STEPS, action=actions, state=states), tmp_path / "a.parquet")
    read: list[Transition] = []
    with pytest.raises(DataError, match=r"missing values in state \(1\), action \(3\)\. Expected a value"):
        read.extend(store.iter_transitions(tmp_path / "a.parquet"))
    assert [step.step for step in read] == list(range(7))


@pytest.mark.parametrize("place", [0, 8, 29])
def test_a_default_stands_only_for_a_column_without_any_value(tmp_path, small_parts, place):
    pq.write_table(as_table(STEPS, reasoning=pa.nulls(30, pa.string())), tmp_path / "a.parquet")
    assert {step.reasoning for step in store.read_transitions(tmp_path / "a.parquet")} == {""}
    reasoning = ["because" if number == place else None for number in range(30)]
    pq.write_table(as_table(STEPS, reasoning=reasoning), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"missing values in reasoning \(29\)"):
        store.read_transitions(tmp_path / "a.parquet")


def test_values_that_cannot_be_read_are_named_with_their_rows_in_the_table(tmp_path, small_parts):
    steps = [float(number) if number not in (15, 22) else number + 0.5 for number in range(30)]
    states = [b"s" if number != 25 else b"\xff" for number in range(30)]
    pq.write_table(as_table(STEPS, step=steps, state=pa.array(states, pa.binary())), tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match=r"step is 15.5 in row 15 \(double\); state is b'\\xff' in row 25\."
    ) as raised:
        store.read_transitions(tmp_path / "a.parquet")
    assert "frame['step'].iloc[15] is the value" in raised.value.next_step


@pytest.mark.parametrize("ids", [[1] * 30, [b"\xff"] * 30, [None] * 30])
def test_ids_that_cannot_be_read_are_an_error_before_the_first_episode(tmp_path, small_parts, ids):
    pq.write_table(as_table(STEPS, episode_id=ids), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="episode_id"):
        next(store.iter_episodes([make_task()], tmp_path / "a.parquet"))
    pq.write_table(as_table(STEPS).drop_columns(["episode_id", "state"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"episode_id is missing.*; state is missing"):
        next(store.iter_episodes([make_task()], tmp_path / "a.parquet"))


def test_a_damaged_file_is_named(tmp_path, small_parts):
    path = tmp_path / "train.parquet"
    store.write_transitions(path, [make_transition(number % 25, f"e{number // 25}") for number in range(150)])
    last = path / "00003-of-00003.parquet"
    content = last.read_bytes()
    last.write_bytes(content[:300] + bytes(byte ^ 0xFF for byte in content[300:340]) + content[340:])
    for read in (store.iter_transitions, lambda table: store.iter_episodes([make_task()], table)):
        with pytest.raises(
            DataError, match=r"00003-of-00003.parquet .* is damaged or no Parquet file.*dvc pull"
        ):
            list(read(path))


def test_a_log_whose_empty_shard_has_other_columns_is_refused(tmp_path):
    pq.write_table(as_table([]).drop_columns(["state"]), tmp_path / "00001-first.parquet")
    with pytest.raises(DataError, match="state is missing"):
        replay_log.read_log(tmp_path)
