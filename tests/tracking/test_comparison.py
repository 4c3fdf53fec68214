"""Differences between two runs, in a real git repository: each section alone, and none for equal runs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from test_manifest import git, make_manifest, repository  # noqa: F401

from components.tracking.run_differences import PROMPTS, differences


@pytest.fixture
def pair(repository):  # noqa: F811
    (repository / PROMPTS[0]).parent.mkdir(parents=True)
    (repository / PROMPTS[0]).write_text("FORM = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "prompts")
    return repository, make_manifest(repository), make_manifest(repository)


def test_equal_runs_have_no_differences(pair):
    root, first, second = pair
    assert differences(first, second, root) == {}


def test_each_difference_is_named_in_its_section(pair):
    root, first, second = pair
    (root / PROMPTS[0]).write_text("FORM = 2\n")
    (root / "README.md").write_text("no code\n")
    git(root, "add", ".")
    git(root, "commit", "-m", "another form")
    second = copy.deepcopy(second)
    second.environment.git = make_manifest(root).environment.git
    second.config = {"seed": 3, "a": {"b": 1, "c": True}, "tracking": {"uri": "x"}}
    first.config = {"seed": 0, "a": {"b": 1, "c": False}, "d": [1]}
    second.seeds, second.data.dvc_in = {"python": 3}, "abc.dir"
    second.environment.packages |= {"torch": "0.1", "new": "1"}
    second.environment.hardware.threads = 8
    found = differences(first, second, root)
    assert list(found) == ["code", "prompts", "data", "config", "seeds", "packages", "machine"]
    rows = {section: [(d.name, d.first, d.second) for d in entries] for section, entries in found.items()}
    assert rows["prompts"][0][0] == PROMPTS[0]
    assert rows["code"][1] == ("files changed between the commits", "", PROMPTS[0])
    assert rows["config"] == [("a.c", "false", "true"), ("d", "[1]", "-")]
    assert rows["data"] == [("dvc_in", "", "abc.dir")] and rows["seeds"] == [("python", "0", "3")]
    assert ("new", "-", "1") in rows["packages"] and rows["machine"] == [("threads", "2", "8")]


def test_uncommitted_changes_are_code(pair):
    root, first, second = pair
    (root / "code.py").write_text("x = 3\n")
    second.environment.git = make_manifest(root).environment.git
    (entry,) = differences(first, second, root)["code"]
    assert (entry.name, entry.first) == ("uncommitted changes", "clean") and len(entry.second) == 12


def test_a_new_version_of_the_data_is_not_a_change_of_the_code(pair):
    root, first, second = pair
    (root / "data.dvc").write_text("outs: []\n")
    second.environment.git = make_manifest(root).environment.git
    assert second.environment.git.dirty and "code" not in differences(first, second, root)


def test_a_commit_of_another_clone_is_not_an_error(pair):
    root, first, second = pair
    second.environment.git.commit = "f" * 40
    assert [d.name for d in differences(first, second, root)["code"]] == ["commit"]


def test_the_files_of_prompts_exist():
    root = Path(__file__).parents[2]
    assert [path for path in PROMPTS if not (root / path).is_file()] == []
