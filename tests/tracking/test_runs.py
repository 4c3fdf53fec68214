"""Run directories, the latest link and metrics.json."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from components.errors import DataError, TrackingError
from components.tracking.runs import (
    find_run,
    list_runs,
    new_run_id,
    point_latest,
    read_metrics,
    start_run_directory,
    write_metrics,
)

ENTRY = {"value": 0.5, "n": 64, "low": 0.38, "high": 0.62}


def test_ids_sort_by_time_and_are_in_utc():
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", new_run_id())
    noon = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert new_run_id(noon) < new_run_id(noon + timedelta(seconds=1))
    assert new_run_id(noon.astimezone(timezone(timedelta(hours=5)))).startswith("20260131-120000-")


def test_latest_points_at_the_newest_run_and_not_the_last_to_end(tmp_path):
    runs = tmp_path / "runs"
    old = start_run_directory(runs, "20260101-000000-aaaa")
    new = start_run_directory(runs, "20260102-000000-aaaa")
    assert (runs / "latest").resolve() == new.resolve()
    point_latest(old)
    assert find_run(runs) == new.resolve()
    assert find_run(runs, old.name) == old.resolve()
    assert list_runs(runs) == [old.name, new.name]


def test_a_dangling_latest_is_replaced_and_a_real_directory_is_not(tmp_path):
    run = start_run_directory(tmp_path, "20260102-000000-aaaa")
    run.rmdir()
    assert find_run(tmp_path, start_run_directory(tmp_path, "20260101-000000-bbbb").name)
    assert (tmp_path / "latest").resolve().name == "20260101-000000-bbbb"
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    with pytest.raises(DataError, match="is not a link.*mv "):
        point_latest(run)


def test_an_unknown_run_names_the_nearest(tmp_path):
    with pytest.raises(DataError, match="dreamgym retrain"):
        find_run(tmp_path / "runs")
    start_run_directory(tmp_path, "20260101-000000-aaaa")
    with pytest.raises(DataError, match="such as 20260101-000000-aaaa"):
        find_run(tmp_path, "20260101-000000-aaab")
    with pytest.raises(DataError, match="no run '../x'"):
        find_run(tmp_path, "../x")


def test_metrics_are_written_and_read_in_one_format(tmp_path):
    path = write_metrics(tmp_path, {"fidelity/next_state_exact": ENTRY})
    assert json.loads(path.read_text()) == {"fidelity/next_state_exact": ENTRY}
    assert read_metrics(tmp_path) == {"fidelity/next_state_exact": ENTRY}
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_a_number_that_is_not_finite_becomes_null(tmp_path):
    text = write_metrics(tmp_path, {"x": {**ENTRY, "value": float("nan"), "high": float("inf")}}).read_text()
    assert "NaN" not in text
    assert read_metrics(tmp_path)["x"] == {"value": None, "n": 64, "low": 0.38, "high": None}


def test_an_unwritable_path_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="metrics.json cannot be written.*Make .* a directory"):
        write_metrics(tmp_path / "file", {"x": ENTRY})
    with pytest.raises(DataError, match="cannot be written"):
        start_run_directory(tmp_path / "file")


@pytest.mark.parametrize("entry", [0.5, {"value": 1.0}, {**ENTRY, "extra": 1}, {**ENTRY, "value": "much"}])
def test_another_format_is_refused(tmp_path, entry):
    with pytest.raises(TrackingError, match="The metric x"):
        write_metrics(tmp_path, {"x": entry})
    assert not (tmp_path / "metrics.json").exists()


def test_missing_and_damaged_metrics_have_different_messages(tmp_path):
    with pytest.raises(DataError, match="is not finished"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.json").write_text('{"x": {"val')
    with pytest.raises(DataError, match="is damaged"):
        read_metrics(tmp_path)
