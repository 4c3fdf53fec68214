"""Which files are one log, in which order they are read, and the places of their lines."""

from __future__ import annotations

import gzip

import pytest

from components.trajectories.imports.json_lines import common_folder, log_files, records
from components.trajectories.imports.rotated_files import log_name, log_of


@pytest.mark.parametrize(
    "oldest_first",
    [
        ["a.jsonl.10", "a.jsonl.2.gz", "a.jsonl.1", "a.jsonl"],
        ["a.jsonl.20260101", "a.jsonl.20260102", "a.jsonl"],
        ["a.jsonl.2026-01-01", "a.jsonl.2026-01-02.gz", "a.jsonl"],
        ["a.jsonl.2026-01-01_09", "a.jsonl.2026-01-01_10", "a.jsonl"],
        ["a.jsonl-20260101.gz", "a.jsonl-20260102", "a.jsonl"],
        ["a.jsonl.1700000000", "a.jsonl.1800000000", "a.jsonl"],
        ["a.2.jsonl", "a.1.jsonl", "a.jsonl"],
        ["a.2026-01-01_09-00-00_123456.jsonl", "a.2026-01-02_09-00-00_000000.jsonl.gz", "a.jsonl"],
        ["a.jsonl.2026-01-01.9", "a.jsonl.2026-01-01.10", "a.jsonl.2026-01-02.1", "a.jsonl"],
        ["agent.log.2", "agent.log.1", "agent.log"],
    ],
    ids=lambda names: names[0],
)
def test_files_of_one_log_are_read_oldest_first(tmp_path, oldest_first):
    for name in oldest_first:
        (tmp_path / name).write_text("{}")
    files = log_files([tmp_path / name for name in sorted(oldest_first)])
    assert [path.name for path in files] == oldest_first
    assert len({log_name(path.name) for path in files}) == 1


@pytest.mark.parametrize(
    "name",
    [
        "run1.jsonl",
        "run-1.jsonl",
        "run_20260101.jsonl",
        "run-2026-01-01.jsonl",
        "heat0.7.jsonl",
        "00001.jsonl",
    ],
)
def test_numbers_in_the_names_of_runs_are_no_rotation(name):
    assert log_name(name) == log_name(f"{name}.gz") == log_name(f"{name}.1") == name


def test_places_say_which_file_of_a_folder_and_of_which_log(tmp_path):
    for folder in ("r1", "r2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log.jsonl.1").write_text("{}\n")
        (tmp_path / folder / "log.jsonl").write_text("{}\n")

    def places(*paths):
        return [place for file in log_files(paths) for place, _ in records(file, common_folder(paths))]

    both = ["r1/log.jsonl.1:1", "r1/log.jsonl:1", "r2/log.jsonl.1:1", "r2/log.jsonl:1"]
    assert places(tmp_path) == places(tmp_path / "r1", tmp_path / "r2") == both
    assert [log_of(place) for place in both] == ["r1/log.jsonl"] * 2 + ["r2/log.jsonl"] * 2
    assert places(tmp_path / "r1" / "log.jsonl") == ["log.jsonl:1"]


def test_a_file_that_is_named_in_two_ways_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "log.jsonl"
    file.write_text("{}\n")
    assert len(log_files([file, file.relative_to(tmp_path), tmp_path])) == 1


def _flip_checksum(data):
    return data[:-8] + bytes(4) + data[-4:]


def _break_block(data):
    return data[:10] + b"\xff" * (len(data) - 10)


@pytest.mark.parametrize(
    ("damage", "lines"),
    [(_flip_checksum, 2), (_break_block, 0), (lambda data: data[:-6], 2), (lambda data: data + b"junk", 2)],
    ids=["checksum", "block", "cut", "appended"],
)
def test_a_damaged_compressed_file_is_named_and_the_next_file_is_read(tmp_path, damage, lines):
    whole = gzip.compress(b'{"a": 1}\n{"a": 2}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(damage(whole))
    (tmp_path / "b.jsonl").write_text('{"b": 1}\n')
    entries = [entry for file in log_files([tmp_path]) for entry in records(file, tmp_path)]
    (skipped,) = [entry for entry in entries if not isinstance(entry, tuple)]
    assert (skipped.reason, skipped.place) == ("a compressed file that is cut off or damaged", "a.jsonl.gz")
    assert skipped.found, "the cause"
    assert [record for entry in entries if isinstance(entry, tuple) for record in [entry[1]]] == [
        {"a": 1},
        {"a": 2},
    ][:lines] + [{"b": 1}]
