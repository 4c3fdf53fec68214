"""Logs as files: rotated, compressed, cut off, with lines that are no JSON."""

from __future__ import annotations

import gzip
import json

import pytest

from components.errors import DataError
from components.trajectories.imports import json_lines
from components.trajectories.imports.json_lines import BROKEN_LINE, LONG_LINE, log_files, records
from components.trajectories.imports.logged_episode import Skipped, shortened


def test_rotated_files_are_read_oldest_first(tmp_path):
    names = ["log.jsonl", "log.jsonl.1", "log.jsonl.10", "log.jsonl.2.gz", "other.json"]
    for name in names:
        (tmp_path / name).write_text("{}")
    (tmp_path / "notes.txt").write_text("no log")
    assert [path.name for path in log_files([tmp_path])] == [
        "log.jsonl.10",
        "log.jsonl.2.gz",
        "log.jsonl.1",
        "log.jsonl",
        "other.json",
    ]


def test_missing_files_and_empty_directories_are_named(tmp_path):
    with pytest.raises(DataError, match="There is no file .*gone"):
        log_files([tmp_path / "gone.jsonl"])
    with pytest.raises(DataError, match="has no JSON Lines file"):
        log_files([tmp_path])


def test_lines_that_are_no_records_are_skipped_with_their_place(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MOST_LINE_BYTES", 50)
    path = tmp_path / "log.jsonl"
    long = json.dumps({"text": "x" * 200})
    path.write_text(f'{{"a": 1}}\n\nnot json\n7\n{long}\n[1]\n{{"b": 2')
    found = list(records(path))
    assert [entry for entry in found if not isinstance(entry, Skipped)] == [
        ("log.jsonl:1", {"a": 1}),
        ("log.jsonl:6", [1]),
    ]
    assert [(entry.reason, entry.place) for entry in found if isinstance(entry, Skipped)] == [
        (BROKEN_LINE, "log.jsonl:3"),
        (BROKEN_LINE, "log.jsonl:4"),
        (LONG_LINE, "log.jsonl:5"),
        (BROKEN_LINE, "log.jsonl:7"),
    ]


def test_a_compressed_file_that_is_cut_off_keeps_its_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    lines = "".join(json.dumps({"number": number}) + "\n" for number in range(20_000))
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    found = list(records(path))
    assert (
        isinstance(found[-1], Skipped) and found[-1].reason == "a compressed file that is cut off or damaged"
    )
    whole = [entry for entry in found if not isinstance(entry, Skipped)]
    assert len(whole) > 5_000 and whole[9] == ("log.jsonl.gz:10", {"number": 9})


def test_a_short_text_for_messages_ends_before_a_word_that_is_cut():
    words = "word " * 11
    assert shortened(f"{words}sk-abcdefghijklmnopqrstuvwxyz0123") == f"{words.strip()} ... (88 characters)"
    quoted = f'{{"role":"user","content":"{"k" * 90}"}}'
    assert shortened(quoted) == f'{{"role":"user","content":" ... ({len(quoted)} characters)'
    assert shortened("word") == "word"
